#define _GNU_SOURCE
#include "observe/metrics.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "observe/number.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
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

static cy_status add_number(cy_text *line, const char *name, double value)
{
    return cy_text_add(line, ",\"%s\":%s", name, cy_json_number(value, 17).bytes);
}

static cy_status add_comm(cy_text *line, const cy_step_metrics *metrics)
{
    CY_ASSERT(0 <= metrics->comm_count && metrics->comm_count <= CY_COMM_METRICS_MAX);
    CY_TRY(cy_text_add(line, ",\"comm\":{"));
    for (int i = 0; i < metrics->comm_count; i++) {
        const cy_comm_metrics *comm = &metrics->comm[i];
        CY_TRY(cy_text_add(line, "%s\"%s\":{\"bytes\":%" PRId64 ",\"messages\":%" PRId64,
            i > 0 ? "," : "", comm->dimension, comm->bytes, comm->messages));
        CY_TRY(add_number(line, "s", comm->seconds));
        CY_TRY(add_number(line, "exposed_s", comm->exposed_seconds));
        if (comm->bytes_between_nodes > 0) {
            CY_TRY(
                cy_text_add(line, ",\"bytes_between_nodes\":%" PRId64, comm->bytes_between_nodes));
        }
        CY_TRY(cy_text_add(line, "}"));
    }
    return cy_text_add(line, "}");
}

cy_status cy_metrics_add_step(cy_text *line, const cy_step_metrics *metrics)
{
    CY_TRY(cy_text_add(
        line, "{\"step\":%" PRId64 ",\"tokens\":%" PRId64, metrics->step, metrics->tokens));
    CY_TRY(add_number(line, "loss", metrics->loss));
    CY_TRY(add_number(line, "grad_norm", metrics->grad_norm));
    CY_TRY(add_number(line, "lr", metrics->learning_rate));
    CY_TRY(add_number(line, "step_s", metrics->step_s));
    CY_TRY(add_number(line, "tok_s", metrics->tok_s));
    CY_TRY(add_number(line, "tok_s_rank", metrics->tok_s_rank));
    CY_TRY(add_number(line, "mfu", metrics->mfu));
    CY_TRY(add_number(line, "mfu_causal", metrics->mfu_causal));
    CY_TRY(add_number(line, "mem_gb", metrics->memory_bytes / GB));
    CY_TRY(add_number(line, "data_s", metrics->data_s));
    CY_TRY(add_number(line, "data_ready", metrics->data_ready));
    CY_TRY(add_comm(line, metrics));
    if (metrics->topk_ratio > 0) {
        CY_TRY(cy_text_add(
            line, ",\"topk\":{\"ratio\":%s", cy_json_number(metrics->topk_ratio, 17).bytes));
        CY_TRY(cy_text_add(line, ",\"sent\":%" PRId64 ",\"elements\":%" PRId64 "}",
            metrics->topk_sent, metrics->topk_elements));
    }
    CY_TRY(cy_text_add(line, ",\"skipped\":%s", metrics->skipped ? "true" : "false"));
    if (metrics->repeats > 0) CY_TRY(cy_text_add(line, ",\"repeated\":%d", metrics->repeats));
    if (metrics->has_params_hash) {
        CY_TRY(cy_text_add(line, ",\"params_hash\":\"%016" PRIx64 "\"", metrics->params_hash));
    }
    return cy_text_add(line, "}");
}

cy_status cy_metrics_add_validation(
    cy_text *line, int64_t step, double val_loss, int64_t val_tokens)
{
    CY_TRY(cy_text_add(line, "{\"step\":%" PRId64, step));
    CY_TRY(add_number(line, "val_loss", val_loss));
    return cy_text_add(line, ",\"val_tokens\":%" PRId64 "}", val_tokens);
}

// ---- the file

// The step of a line, or -1 when it is not a JSON object with one.
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
    // What is kept are lines of the file, so all of them are as long as the file.
    if (status == CY_OK && (kept.length != old.bytes || *unreadable > 0)) {
        status = cy_file_write(path, kept.length > 0 ? kept.bytes : "", kept.length);
    }
    cy_text_free(&kept);
    cy_input_close(&old);
    return status;
}

// Some thousand steps, which a full disk may take to be cleared.
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

// Gives `path` the first name that is free.
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
