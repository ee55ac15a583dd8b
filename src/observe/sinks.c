// Writes the metrics of a run to its sinks: the console, metrics.jsonl and TensorBoard.
#include "observe/sinks.h"

#include "base/file.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "observe/tensorboard.h"

#include <stdio.h>
#include <time.h>

// ---- the list

void cy_sinks_add(cy_sinks *sinks, cy_sink *sink)
{
    CY_ASSERT(sinks->count < CY_SINKS_MAX);
    sinks->list[sinks->count++].sink = sink;
}

void cy_sinks_write(cy_sinks *sinks, const cy_metrics *metrics)
{
    for (int i = 0; i < sinks->count; i++) {
        cy_sink *sink = sinks->list[i].sink;
        sinks->list[i].failed = sink->ops->write(sink, metrics) != CY_OK;
        if (!sinks->list[i].failed) continue;
        sinks->list[i].lost++;
        snprintf(sinks->list[i].error, sizeof(sinks->list[i].error), "%s", cy_error_text());
    }
}

bool cy_sinks_take_report(cy_sinks *sinks, cy_text *line)
{
    for (int i = 0; i < sinks->count; i++) {
        const char *name = sinks->list[i].sink->name;
        const bool failed = sinks->list[i].failed;
        if (sinks->list[i].lost == 0 || (failed && sinks->list[i].told)) continue;
        const cy_status status = failed
            ? cy_text_add(line, "%s: records are lost: %s", name, sinks->list[i].error)
            : cy_text_add(line, "%s: %lld records were lost: %s", name,
                  (long long)sinks->list[i].lost, sinks->list[i].error);
        if (status != CY_OK) return false;
        sinks->list[i].told = failed;
        if (!failed) sinks->list[i].lost = 0;
        return true;
    }
    return false;
}

void cy_sinks_close(cy_sinks *sinks)
{
    for (int i = 0; i < sinks->count; i++)
        sinks->list[i].sink->ops->close(sinks->list[i].sink);
    *sinks = (cy_sinks){.count = 0};
}

// Closes a sink that owns nothing else.
static void free_sink(cy_sink *sink)
{
    cy_memory_free(sink);
}

// ---- the console

typedef struct console_sink {
    cy_sink base;
    cy_console_sink_options options;
} console_sink;

static cy_status console_write(cy_sink *base, const cy_metrics *metrics)
{
    const console_sink *sink = (const console_sink *)base;
    const int64_t step = cy_metrics_count(metrics, CY_METRIC_STEP);
    if (!metrics->set[CY_METRIC_LOSS]) return CY_OK;
    if (step % sink->options.every != 0 && step != sink->options.last_step) return CY_OK;
    cy_text line = {0};
    const cy_status status = cy_metrics_add_console(&line, metrics);
    if (status == CY_OK) sink->options.write(sink->options.context, line.bytes);
    cy_text_free(&line);
    return status;
}

cy_status cy_console_sink_open(cy_sink **sink, const cy_console_sink_options *options)
{
    static const cy_sink_ops ops = {.write = console_write, .close = free_sink};
    console_sink *made;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base = (cy_sink){.ops = &ops, .name = "standard output"};
    made->options = *options;
    *sink = &made->base;
    return CY_OK;
}

// ---- metrics.jsonl: the file of an earlier run

// Returns the step of a line, -1 when it is no JSON object with a step.
static int64_t step_of(const char *line, size_t length)
{
    int64_t step = -1;
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *value = json_object_get(object, "step");
    if (json_is_integer(value) && json_integer_value(value) >= 0) step = json_integer_value(value);
    json_decref(object);
    return step;
}

// Adds the lines up to `last_step` to *kept; *steps counts the lines that have a step.
static cy_status keep_lines(
    cy_text *kept, int64_t *steps, int64_t *unreadable, const cy_input_file *old, int64_t last_step)
{
    cy_lines lines = {.file = old};
    const char *line = NULL;
    size_t length = 0;
    cy_status status = cy_lines_next(&lines, &line, &length);
    while (status == CY_OK && line != NULL) {
        const int64_t step = step_of(line, length);
        *steps += step >= 0;
        *unreadable += step < 0;
        if (step >= 0 && step <= last_step && last_step > 0) {
            status = cy_text_add_bytes(kept, line, length);
            if (status == CY_OK) status = cy_text_add_bytes(kept, "\n", 1);
        }
        if (status == CY_OK) status = cy_lines_next(&lines, &line, &length);
    }
    cy_lines_free(&lines);
    return status;
}

static cy_status drop_later_lines(const char *path, int64_t last_step, int64_t *unreadable)
{
    cy_input_file old;
    cy_text kept = {0};
    int64_t steps = 0;
    CY_TRY(cy_input_open(&old, path));
    cy_status status = keep_lines(&kept, &steps, unreadable, &old, last_step);
    // The lines kept are lines of the file: when they have its length, all were kept.
    if (status == CY_OK && (kept.length != old.bytes || *unreadable > 0)) {
        status = cy_file_write(path, kept.length > 0 ? kept.bytes : "", kept.length);
    }
    cy_text_free(&kept);
    cy_input_close(&old);
    return status;
}

// Renames `path` to the first name that is free.
static cy_status rename_to_free(int *number, const char *path)
{
    cy_text name = {0};
    cy_status status;
    int tried = 0;
    bool taken = false;
    do {
        name.length = 0;
        status = cy_text_add(&name, "%s.%d", path, ++tried);
        if (status == CY_OK) status = cy_path_find(&taken, name.bytes);
    } while (status == CY_OK && taken);
    if (status == CY_OK && cy_io_rename(path, name.bytes) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", path, name.bytes);
    }
    cy_text_free(&name);
    if (status == CY_OK) *number = tried;
    return status;
}

cy_status cy_jsonl_rotate(int *number, const char *path, int64_t last_step)
{
    cy_input_file old;
    cy_text kept = {0};
    int64_t steps = 0, unreadable = 0;
    bool there = false;
    *number = 0;
    CY_TRY(cy_path_find(&there, path));
    if (!there) return CY_OK;
    CY_TRY(cy_input_open(&old, path));
    bool keep = old.bytes > 0;
    cy_status status = CY_OK;
    if (keep && last_step > 0) {
        status = keep_lines(&kept, &steps, &unreadable, &old, 0);
        keep = steps == 0;
    }
    cy_text_free(&kept);
    cy_input_close(&old);
    CY_TRY(status);
    return keep ? rename_to_free(number, path) : CY_OK;
}

// ---- metrics.jsonl: the sink

// Room for some thousand steps, while somebody clears a full disk.
#define BACKLOG_BYTES ((size_t)4 << 20)

typedef struct jsonl_sink {
    cy_sink base;
    cy_async_writer *writer; // borrowed
    int target;              // the file's number there
} jsonl_sink;

static cy_status jsonl_write(cy_sink *base, const cy_metrics *metrics)
{
    const jsonl_sink *sink = (const jsonl_sink *)base;
    cy_text line = {0};
    cy_status status = cy_metrics_add_json(&line, metrics);
    if (status == CY_OK) status = cy_text_add_bytes(&line, "\n", 1);
    if (status == CY_OK) cy_async_write(sink->writer, sink->target, line.bytes, line.length);
    cy_text_free(&line);
    return status;
}

cy_status cy_jsonl_sink_open(cy_sink **sink, cy_async_writer *writer, const char *path,
    int64_t last_step, int64_t *unreadable)
{
    static const cy_sink_ops ops = {.write = jsonl_write, .close = free_sink};
    CY_ASSERT(last_step >= 0);
    int64_t dropped = 0;
    bool there = false;
    CY_TRY(cy_path_find(&there, path));
    if (there) CY_TRY(drop_later_lines(path, last_step, &dropped));

    jsonl_sink *made;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base = (cy_sink){.ops = &ops, .name = "metrics.jsonl"};
    made->writer = writer;
    const cy_async_target target = {.name = path, .path = path, .backlog_bytes = BACKLOG_BYTES};
    const cy_status status = cy_async_writer_add(writer, &made->target, &target);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    *sink = &made->base;
    if (unreadable != NULL) *unreadable = dropped;
    return CY_OK;
}

// ---- TensorBoard

typedef struct tensorboard_sink {
    cy_sink base;
    cy_event_file events;
} tensorboard_sink;

static cy_status tensorboard_write(cy_sink *base, const cy_metrics *metrics)
{
    tensorboard_sink *sink = (tensorboard_sink *)base;
    const int64_t step = cy_metrics_count(metrics, CY_METRIC_STEP);
    for (int i = 0; i < CY_METRICS; i++) {
        const char *tag = cy_metric_entry_of((cy_metric)i)->tag;
        if (tag == NULL || !metrics->set[i]) continue;
        const float value = (float)cy_metrics_real(metrics, (cy_metric)i);
        CY_TRY(cy_event_file_scalar(&sink->events, (double)time(NULL), step, tag, value));
    }
    return CY_OK;
}

static void tensorboard_close(cy_sink *base)
{
    tensorboard_sink *sink = (tensorboard_sink *)base;
    cy_event_file_close(&sink->events);
    cy_memory_free(sink);
}

cy_status cy_tensorboard_sink_open(cy_sink **sink, cy_async_writer *writer, const char *folder)
{
    static const cy_sink_ops ops = {.write = tensorboard_write, .close = tensorboard_close};
    tensorboard_sink *made;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base = (cy_sink){.ops = &ops, .name = "TensorBoard's event file"};
    const cy_status status = cy_event_file_open(&made->events, writer, folder);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    *sink = &made->base;
    return CY_OK;
}
