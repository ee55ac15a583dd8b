// Declares the metrics, writes a record of them for the console and for metrics.jsonl, and reads
// metrics.jsonl back.

#include "observe/metrics.h"

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "observe/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- the table

// The uses of a metric, in its entry.
#define CONSOLE(at, text, form) .place = (at), .label = (text), .format = CY_METRIC_FORMAT_##form
#define TAG(text)               .tag = (text)
#define SUMMARY(rule)           .summary = CY_METRIC_SUMMARY_##rule
#define CURVE(text, dots)       .curve = (text), .curve_marks = (dots)
#define NO_USES                 .place = 0

#define ENTRY(id, word, kind, of_value, ...)                                                       \
    [CY_METRIC_##id] = {                                                                           \
        .name = (word), .type = CY_METRIC_TYPE_##kind, .unit = (of_value), __VA_ARGS__},

static const cy_metric_entry table[CY_METRICS] = {CY_METRIC_TABLE(ENTRY)};

const cy_metric_entry *cy_metric_entry_of(cy_metric metric)
{
    return &table[metric];
}

// ---- a record

void cy_metrics_set(cy_metrics *metrics, cy_metric metric, double value)
{
    CY_ASSERT(table[metric].type == CY_METRIC_TYPE_REAL);
    metrics->set[metric] = true;
    metrics->of[metric].real = value;
}

void cy_metrics_set_count(cy_metrics *metrics, cy_metric metric, int64_t value)
{
    CY_ASSERT(table[metric].type != CY_METRIC_TYPE_REAL);
    metrics->set[metric] = true;
    metrics->of[metric].count = value;
}

double cy_metrics_real(const cy_metrics *metrics, cy_metric metric)
{
    if (!metrics->set[metric]) return (double)NAN;
    if (table[metric].type != CY_METRIC_TYPE_REAL) return (double)metrics->of[metric].count;
    return metrics->of[metric].real;
}

int64_t cy_metrics_count(const cy_metrics *metrics, cy_metric metric)
{
    CY_ASSERT(table[metric].type != CY_METRIC_TYPE_REAL);
    return metrics->set[metric] ? metrics->of[metric].count : 0;
}

// ---- the console

static cy_status add_value(cy_text *line, const cy_metrics *metrics, cy_metric metric)
{
    const double value = cy_metrics_real(metrics, metric);
    switch (table[metric].format) {
    case CY_METRIC_FORMAT_WHOLE:
        return cy_text_add(line, "%" PRId64, cy_metrics_count(metrics, metric));
    case CY_METRIC_FORMAT_SHORT:
    case CY_METRIC_FORMAT_LIMIT:
        return cy_number_short(line, value);
    case CY_METRIC_FORMAT_FIXED:
        return cy_number_fixed(line, value, 4);
    case CY_METRIC_FORMAT_SCIENTIFIC:
        return cy_text_add(line, "%.2e", value);
    case CY_METRIC_FORMAT_PERCENT:
        if (!isfinite(value)) return cy_text_add(line, "-");
        CY_TRY(cy_number_fixed(line, 100 * value, 2));
        return cy_text_add(line, "%%");
    case CY_METRIC_FORMAT_GB:
        CY_TRY(cy_number_fixed(line, value, 2));
        return cy_text_add(line, "GB");
    case CY_METRIC_FORMAT_WORD:
        break; // the label was all
    }
    return CY_OK;
}

// Adds a field where it is set. The places 1 to their number are all used (unit.metrics).
static cy_status add_field(cy_text *line, const cy_metrics *metrics, cy_metric metric)
{
    const cy_metric_entry *entry = &table[metric];
    const bool word = entry->format == CY_METRIC_FORMAT_WORD;
    if (!metrics->set[metric] || (word && cy_metrics_count(metrics, metric) == 0)) return CY_OK;
    if (entry->format == CY_METRIC_FORMAT_LIMIT) {
        CY_TRY(cy_text_add(line, "/"));
    } else {
        const char *separator = entry->place == 1 ? " " : " | ";
        CY_TRY(cy_text_add(line, "%s%s%s", separator, entry->label, word ? "" : ": "));
    }
    return add_value(line, metrics, metric);
}

cy_status cy_metrics_add_console(cy_text *line, const cy_metrics *metrics)
{
    cy_metric at[CY_METRICS + 1]; // by place
    int places = 0;
    for (int i = 0; i < CY_METRICS; i++) {
        at[table[i].place] = (cy_metric)i;
        places += table[i].place > 0;
    }
    CY_TRY(cy_text_add(line, "[rank 0]"));
    for (int place = 1; place <= places; place++)
        CY_TRY(add_field(line, metrics, at[place]));
    return CY_OK;
}

// ---- JSON

#define KEY_BYTES 32

// The object that holds a metric: "comm.dp.bytes" lies in the object `dp` of the object `comm` of
// the line. *name becomes its last part. Objects that are missing are made where `make` is true.
// NULL: there is none, or no memory.
static json_t *find_holder(json_t *line, const char **name, bool make)
{
    json_t *object = line;
    for (const char *dot; (dot = strchr(*name, '.')) != NULL; *name = dot + 1) {
        char key[KEY_BYTES];
        snprintf(key, sizeof(key), "%.*s", (int)(dot - *name), *name);
        json_t *inner = json_object_get(object, key);
        if (inner == NULL && make) {
            inner = json_object();
            if (json_object_set_new(object, key, inner) != 0) inner = NULL;
        }
        object = inner;
    }
    return object;
}

static json_t *value_json(const cy_metrics *metrics, cy_metric metric)
{
    switch (table[metric].type) {
    case CY_METRIC_TYPE_COUNT:
        return json_integer((json_int_t)metrics->of[metric].count);
    case CY_METRIC_TYPE_REAL:
        return cy_json_real(metrics->of[metric].real);
    case CY_METRIC_TYPE_FLAG:
        return json_boolean(metrics->of[metric].count);
    case CY_METRIC_TYPE_HASH:
        return json_sprintf("%016" PRIx64, (uint64_t)metrics->of[metric].count);
    case CY_METRIC_TYPE_OBJECT:
        break;
    }
    return json_object();
}

cy_status cy_metrics_add_json(cy_text *line, const cy_metrics *metrics)
{
    json_t *object = json_object();
    for (int i = 0; i < CY_METRICS; i++) {
        const char *name = table[i].name;
        if (!metrics->set[i] || name == NULL) continue;
        json_t *holder = find_holder(object, &name, true);
        // Takes over the value, and releases it where it fails.
        if (json_object_set_new(holder, name, value_json(metrics, (cy_metric)i)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return cy_json_add(line, object, JSON_COMPACT);
}

// ---- reading metrics.jsonl back

static bool is_read(const cy_metric_entry *entry)
{
    return entry->summary != CY_METRIC_SUMMARY_NONE || entry->curve != NULL;
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

static cy_status read_fields(cy_history *history, json_t *object, double step)
{
    for (int i = 0; i < CY_METRICS; i++) {
        const char *name = table[i].name;
        if (!is_read(&table[i])) continue;
        const json_t *value = json_object_get(find_holder(object, &name, false), name);
        if (value != NULL) CY_TRY(append(&history->of[i], step, value));
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
    for (int i = 0; i < CY_METRICS; i++) {
        cy_memory_free(history->of[i].step);
        cy_memory_free(history->of[i].value);
    }
    *history = (cy_history){.unreadable = 0};
}

cy_status cy_series_summarise(cy_summary *summary, const cy_series *series, double after)
{
    double *kept = NULL;
    CY_TRY(CY_ALLOC(&kept, (size_t)series->count));
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < series->count; i++) {
        if (series->step[i] <= after || !isfinite(series->value[i])) continue;
        sum += series->value[i];
        kept[count++] = series->value[i];
    }
    const double none = (double)NAN;
    *summary =
        (cy_summary){.last = none, .mean = none, .least = none, .median = none, .most = none};
    if (series->count > 0) summary->last = series->value[series->count - 1];
    if (count > 0) {
        summary->mean = sum / (double)count;
        summary->median = cy_median(kept, (int)count); // sorts them
        summary->least = kept[0];
        summary->most = kept[count - 1];
    }
    cy_memory_free(kept);
    return CY_OK;
}
