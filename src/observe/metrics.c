// Writes the metrics of a step for the console and for metrics.jsonl, and reads metrics.jsonl back.

#define _GNU_SOURCE
#include "observe/metrics.h"

#include "base/file.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "observe/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GB 1073741824.0

// ---- the console

static cy_status add_count(cy_text *line, const char *label, double value)
{
    CY_TRY(cy_text_add(line, " | %s: ", label));
    return cy_number_short(line, value);
}

static cy_status add_fixed(cy_text *line, const char *label, double value, int digits)
{
    CY_TRY(cy_text_add(line, " | %s: ", label));
    return cy_number_fixed(line, value, digits);
}

cy_status cy_metrics_add_console(cy_text *line, const cy_step_metrics *metrics)
{
    CY_TRY(cy_text_add(line, "[rank 0] Step: %" PRId64, metrics->step));
    CY_TRY(add_fixed(line, "Loss", metrics->loss, 4));
    CY_TRY(add_count(line, "Global batch size", (double)metrics->batch_tokens));
    CY_TRY(add_count(line, "Tokens/s", metrics->tok_s));
    CY_TRY(add_count(line, "Tokens/s/GPU", metrics->tok_s_rank));
    CY_TRY(add_count(line, "Tokens", (double)metrics->tokens));
    if (metrics->max_tokens > 0) {
        CY_TRY(cy_text_add(line, "/"));
        CY_TRY(cy_number_short(line, (double)metrics->max_tokens));
    }
    if (isfinite(metrics->mfu)) {
        CY_TRY(add_fixed(line, "MFU", 100 * metrics->mfu, 2));
        CY_TRY(cy_text_add(line, "%%"));
    } else {
        CY_TRY(cy_text_add(line, " | MFU: -"));
    }
    CY_TRY(add_fixed(line, "Memory usage", metrics->memory_bytes / GB, 2));
    CY_TRY(cy_text_add(line, "GB"));
    CY_TRY(add_fixed(line, "Grad norm", metrics->grad_norm, 4));
    CY_TRY(cy_text_add(line, " | LR: %.2e", metrics->learning_rate));
    if (metrics->skipped) CY_TRY(cy_text_add(line, " | Skipped"));
    if (metrics->repeats > 0) CY_TRY(cy_text_add(line, " | Repeated: %d", metrics->repeats));
    return CY_OK;
}

// ---- JSON

static json_t *comm_json(const cy_step_metrics *metrics)
{
    CY_ASSERT(0 <= metrics->comm_count && metrics->comm_count <= CY_COMM_METRICS_MAX);
    json_t *dimensions = json_object();
    for (int i = 0; i < metrics->comm_count; i++) {
        const cy_comm_metrics *comm = &metrics->comm[i];
        json_t *traffic = json_pack("{s:I, s:I, s:o, s:o}", "bytes", (json_int_t)comm->bytes,
            "messages", (json_int_t)comm->messages, "s", cy_json_real(comm->seconds), "exposed_s",
            cy_json_real(comm->exposed_seconds));
        if (comm->bytes_between_nodes > 0) {
            cy_json_set(&traffic, "bytes_between_nodes", json_integer(comm->bytes_between_nodes));
        }
        cy_json_set(&dimensions, comm->dimension, traffic);
    }
    return dimensions;
}

static json_t *topk_json(const cy_step_metrics *metrics)
{
    return json_pack("{s:o, s:I, s:I}", "ratio", cy_json_real(metrics->topk_ratio), "sent",
        (json_int_t)metrics->topk_sent, "elements", (json_int_t)metrics->topk_elements);
}

cy_status cy_metrics_add_step(cy_text *line, const cy_step_metrics *metrics)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"loss", metrics->loss},
        {"grad_norm", metrics->grad_norm},
        {"lr", metrics->learning_rate},
        {"step_s", metrics->step_s},
        {"tok_s", metrics->tok_s},
        {"tok_s_rank", metrics->tok_s_rank},
        {"mfu", metrics->mfu},
        {"mfu_causal", metrics->mfu_causal},
        {"mem_gb", metrics->memory_bytes / GB},
        {"data_s", metrics->data_s},
        {"data_ready", metrics->data_ready},
    };
    json_t *step = json_pack(
        "{s:I, s:I}", "step", (json_int_t)metrics->step, "tokens", (json_int_t)metrics->tokens);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        cy_json_set(&step, numbers[i].name, cy_json_real(numbers[i].value));
    cy_json_set(&step, "comm", comm_json(metrics));
    if (metrics->topk_ratio > 0) cy_json_set(&step, "topk", topk_json(metrics));
    cy_json_set(&step, "skipped", json_boolean(metrics->skipped));
    if (metrics->repeats > 0) cy_json_set(&step, "repeated", json_integer(metrics->repeats));
    if (metrics->has_params_hash) {
        cy_json_set(&step, "params_hash", json_sprintf("%016" PRIx64, metrics->params_hash));
    }
    return cy_json_add(line, step, JSON_COMPACT);
}

cy_status cy_metrics_add_validation(
    cy_text *line, int64_t step, double val_loss, int64_t val_tokens)
{
    json_t *evaluation = json_pack("{s:I, s:o, s:I}", "step", (json_int_t)step, "val_loss",
        cy_json_real(val_loss), "val_tokens", (json_int_t)val_tokens);
    return cy_json_add(line, evaluation, JSON_COMPACT);
}

// ---- the file

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

// Room for some thousand steps, while somebody clears a full disk.
#define BACKLOG_BYTES ((size_t)4 << 20)

cy_status cy_metrics_file_open(cy_metrics_file *file, cy_async_writer *writer, const char *path,
    int64_t last_step, int64_t *unreadable)
{
    CY_ASSERT(last_step >= 0);
    int64_t dropped = 0;
    bool there = false;
    CY_TRY(cy_path_find(&there, path));
    if (there) CY_TRY(drop_later_lines(path, last_step, &dropped));

    cy_metrics_file opened = {.writer = writer};
    const cy_async_target target = {.name = path, .path = path, .backlog_bytes = BACKLOG_BYTES};
    CY_TRY(cy_async_writer_add(writer, &opened.target, &target));
    *file = opened;
    if (unreadable != NULL) *unreadable = dropped;
    return CY_OK;
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

cy_status cy_metrics_file_rotate(int *number, const char *path, int64_t last_step)
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

void cy_metrics_file_close(cy_metrics_file *file)
{
    cy_text_free(&file->line);
    *file = (cy_metrics_file){0};
}

static cy_status write_line(cy_metrics_file *file)
{
    CY_TRY(cy_text_add_bytes(&file->line, "\n", 1));
    cy_async_write(file->writer, file->target, file->line.bytes, file->line.length);
    return CY_OK;
}

cy_status cy_metrics_file_step(cy_metrics_file *file, const cy_step_metrics *metrics)
{
    file->line.length = 0;
    CY_TRY(cy_metrics_add_step(&file->line, metrics));
    return write_line(file);
}

cy_status cy_metrics_file_validation(
    cy_metrics_file *file, int64_t step, double val_loss, int64_t val_tokens)
{
    file->line.length = 0;
    CY_TRY(cy_metrics_add_validation(&file->line, step, val_loss, val_tokens));
    return write_line(file);
}

// ---- reading metrics.jsonl back

static const struct {
    const char *name; // in a line of metrics.jsonl
    size_t offset;    // in cy_history
} series_fields[] = {
    {"loss", offsetof(cy_history, loss)},
    {"tokens", offsetof(cy_history, tokens)},
    {"step_s", offsetof(cy_history, step_s)},
    {"tok_s", offsetof(cy_history, tok_s)},
    {"tok_s_rank", offsetof(cy_history, tok_s_rank)},
    {"mfu", offsetof(cy_history, mfu)},
    {"mfu_causal", offsetof(cy_history, mfu_causal)},
    {"mem_gb", offsetof(cy_history, mem_gb)},
    {"data_s", offsetof(cy_history, data_s)},
    {"data_ready", offsetof(cy_history, data_ready)},
    {"val_loss", offsetof(cy_history, val_loss)},
};

#define SERIES (sizeof(series_fields) / sizeof(series_fields[0]))

static cy_series *series_of(cy_history *history, size_t field)
{
    return (void *)((char *)history + series_fields[field].offset);
}

static cy_status append(cy_series *series, double step, const json_t *value)
{
    const size_t wanted = (size_t)series->count + 1;
    void *block = series->step;
    CY_TRY(cy_memory_grow(&block, &series->step_capacity, wanted, sizeof(double)));
    series->step = block;
    block = series->value;
    CY_TRY(cy_memory_grow(&block, &series->value_capacity, wanted, sizeof(double)));
    series->value = block;
    series->step[series->count] = step;
    series->value[series->count] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    series->count++;
    return CY_OK;
}

static cy_status read_fields(cy_history *history, const json_t *object, double step)
{
    for (size_t field = 0; field < SERIES; field++) {
        const json_t *value = json_object_get(object, series_fields[field].name);
        if (value != NULL) CY_TRY(append(series_of(history, field), step, value));
    }
    return CY_OK;
}

static cy_status read_line(cy_history *history, const char *line, size_t length)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    cy_status status = CY_OK;
    if (json_is_number(step)) {
        status = read_fields(history, object, json_number_value(step));
    } else {
        history->unreadable++;
    }
    json_decref(object);
    return status;
}

cy_status cy_history_open(cy_history *history, const char *path)
{
    cy_input_file file;
    CY_TRY(cy_input_open(&file, path));
    cy_history made = {.unreadable = 0};
    cy_lines lines = {.file = &file};
    const char *line = NULL;
    size_t length = 0;
    cy_status status = cy_lines_next(&lines, &line, &length);
    while (status == CY_OK && line != NULL) {
        status = read_line(&made, line, length);
        if (status == CY_OK) status = cy_lines_next(&lines, &line, &length);
    }
    cy_lines_free(&lines);
    cy_input_close(&file);
    if (status != CY_OK) {
        cy_history_close(&made);
        return status;
    }
    *history = made;
    return CY_OK;
}

void cy_history_close(cy_history *history)
{
    for (size_t field = 0; field < SERIES; field++) {
        cy_memory_free(series_of(history, field)->step);
        cy_memory_free(series_of(history, field)->value);
    }
    *history = (cy_history){.unreadable = 0};
}

cy_status cy_series_spread(cy_spread *spread, const cy_series *series, double after)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)series->count, sizeof(double)));
    double *kept = block;
    int64_t count = 0;
    for (int64_t i = 0; i < series->count; i++) {
        if (series->step[i] > after && isfinite(series->value[i])) kept[count++] = series->value[i];
    }
    *spread = (cy_spread){(double)NAN, (double)NAN, (double)NAN};
    if (count > 0) {
        spread->median = cy_median(kept, (int)count); // sorts them
        spread->least = kept[0];
        spread->most = kept[count - 1];
    }
    cy_memory_free(block);
    return CY_OK;
}
