#include "observe/history.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/numbers.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name; // in a line of metrics.jsonl
    size_t offset;    // in cy_history
} fields[] = {
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

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static cy_series *series_of(cy_history *history, size_t field)
{
    return (void *)((char *)history + fields[field].offset);
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
    for (size_t field = 0; field < FIELDS; field++) {
        const json_t *value = json_object_get(object, fields[field].name);
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
    for (size_t field = 0; field < FIELDS; field++) {
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
