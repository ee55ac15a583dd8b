// cyclotron metrics: compares runs as CSV or JSON, one row each, and draws the loss curve of one.

#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "config/config.h"
#include "observe/curve.h"
#include "observe/metrics.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- a row

// A run in figures. A figure that a run does not have is NaN.
typedef struct metrics_row {
    char run_name[CY_CONFIG_TEXT_BYTES]; // logging.run_name, or the folder's name
    const char *run;                     // borrowed: as it was given
    const char *status;                  // "completed", "incomplete", or "unknown" without config
    double dp, tp, pp, micro_batch_size, grad_acc, seq_len, cp, zero_stage, ranks;
    double avg_tokens_s_gpu, avg_mfu; // means after the warm-up; percent
    double step;                      // the last one
    cy_summary of[CY_METRICS];        // of the metrics that have a summary
} metrics_row;

// The columns that are no metrics. The first ones are those of picotron's table (run_name to
// avg_mfu), so that programs that read its table read this one.
static const struct own_column {
    const char *name;
    size_t offset;    // of a double in metrics_row
    cy_metric before; // the metric whose columns follow it
} own_columns[] = {
#define COLUMN(field, metric)                                                                      \
    {                                                                                              \
#field, offsetof(metrics_row, field), metric                                               \
    }
    COLUMN(dp, CY_METRIC_TOKENS),
    COLUMN(tp, CY_METRIC_TOKENS),
    COLUMN(pp, CY_METRIC_TOKENS),
    COLUMN(micro_batch_size, CY_METRIC_TOKENS),
    COLUMN(grad_acc, CY_METRIC_TOKENS),
    COLUMN(seq_len, CY_METRIC_TOKENS),
    COLUMN(avg_tokens_s_gpu, CY_METRIC_TOKENS),
    COLUMN(avg_mfu, CY_METRIC_TOKENS),
    COLUMN(step, CY_METRIC_TOKENS),
    COLUMN(cp, CY_METRIC_DATA_S),
    COLUMN(zero_stage, CY_METRIC_DATA_S),
    COLUMN(ranks, CY_METRIC_DATA_S),
#undef COLUMN
};

// Adds one column: its head, its cell, or a field of a JSON object.
typedef cy_status add_column(void *out, const char *name, double value);

static cy_status add_metric(
    void *out, const char *name, const cy_summary *of, cy_metric_summary rule, add_column *add)
{
    cy_text least = {0}, most = {0};
    switch (rule) {
    case CY_METRIC_SUMMARY_NONE:
        return CY_OK;
    case CY_METRIC_SUMMARY_LAST:
        return add(out, name, of->last);
    case CY_METRIC_SUMMARY_MEAN:
        return add(out, name, of->mean);
    case CY_METRIC_SUMMARY_MEDIAN:
        return add(out, name, of->median);
    case CY_METRIC_SUMMARY_MOST:
        return add(out, name, of->most);
    case CY_METRIC_SUMMARY_SPREAD:
        break;
    }
    cy_status status = cy_text_add(&least, "%s_min", name);
    if (status == CY_OK) status = cy_text_add(&most, "%s_max", name);
    if (status == CY_OK) status = add(out, name, of->median);
    if (status == CY_OK) status = add(out, least.bytes, of->least);
    if (status == CY_OK) status = add(out, most.bytes, of->most);
    cy_text_free(&least);
    cy_text_free(&most);
    return status;
}

// Adds all columns of figures, in their order.
static cy_status add_columns(void *out, const metrics_row *row, add_column *add)
{
    for (int i = 0; i < CY_METRICS; i++) {
        const cy_metric_entry *entry = cy_metric_entry_of((cy_metric)i);
        for (int own = 0; own < CY_COUNT(own_columns); own++) {
            double value;
            if (own_columns[own].before != (cy_metric)i) continue;
            memcpy(&value, (const char *)row + own_columns[own].offset, sizeof(value));
            CY_TRY(add(out, own_columns[own].name, value));
        }
        CY_TRY(add_metric(out, entry->name, &row->of[i], entry->summary, add));
    }
    return CY_OK;
}

// The folder of a run that is given as such or as its metrics.jsonl.
static cy_status find_folder(cy_text *folder, const char *run)
{
    static const char file[] = "metrics.jsonl";
    const char *slash = strrchr(run, '/');
    const char *name = slash != NULL ? slash + 1 : run;
    if (strcmp(name, file) != 0 || cy_path_is_folder(run)) return cy_text_add(folder, "%s", run);
    if (slash == NULL) return cy_text_add(folder, ".");
    const int length = slash == run ? 1 : (int)(slash - run);
    return cy_text_add(folder, "%.*s", length, run);
}

// The last part of a path: "one" of "runs/one/". A path that ends in dots is resolved first.
static void name_from_path(char *name, size_t bytes, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && path[start - 1] != '/')
        start--;
    const bool dots = length > start && strspn(path + start, ".") >= length - start;
    char whole[PATH_MAX];
    if (dots && realpath(path, whole) != NULL) {
        snprintf(name, bytes, "%s", strrchr(whole, '/') + 1);
    } else {
        snprintf(name, bytes, "%.*s", (int)(length - start), path + start);
    }
}

static void fill_from_config(metrics_row *row, const cy_config *config)
{
    const cy_config_distributed *d = &config->distributed;
    const int64_t steps = config->training.total_train_steps;
    const int64_t tokens = config->training.max_tokens;
    row->dp = d->dp_size;
    row->tp = d->tp_size;
    row->pp = d->pp_size;
    row->cp = d->cp_size;
    row->zero_stage = d->zero_stage;
    row->ranks = (double)cy_config_world(config);
    row->micro_batch_size = (double)config->training.micro_batch_size;
    row->grad_acc = (double)config->training.gradient_accumulation_steps;
    row->seq_len = (double)config->training.seq_length;
    if (config->logging.run_name[0] != '\0') {
        memcpy(row->run_name, config->logging.run_name, sizeof(row->run_name));
    }
    const bool done = (steps > 0 && row->step >= (double)steps) ||
        (tokens > 0 && row->of[CY_METRIC_TOKENS].last >= (double)tokens);
    row->status = done ? "completed" : "incomplete";
}

// Warns about a configuration that cannot be read, and leaves its columns empty.
static cy_status read_config(metrics_row *row, const char *folder)
{
    cy_text path = {0};
    cy_text text = {0};
    cy_config_errors errors = {0};
    cy_config config;
    cy_status status = cy_text_add(&path, "%s/config.json", folder);
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, path.bytes);
    if (!there) goto free_path;
    status = cy_file_read(&text, path.bytes, (size_t)1 << 20);
    if (status == CY_OK) {
        status = cy_config_read(&config, &errors, text.bytes, text.length, path.bytes, NULL, 0);
    }
    if (status == CY_OK) {
        // Only the batch is needed: a model folder that has been removed since is no fault here.
        const cy_status resolved = cy_config_resolve(&config, &errors);
        if (resolved == CY_ERR_MEMORY) status = resolved;
        fill_from_config(row, &config);
    } else if (status != CY_ERR_MEMORY) {
        cy_report_warning("%s: %s", path.bytes, cy_error_text());
        status = CY_OK;
    }
    cy_config_errors_free(&errors);
    cy_text_free(&text);
free_path:
    cy_text_free(&path);
    return status;
}

// Reads the folder's config.json, where there is one, and the history; figures of the first `skip`
// steps do not count as speeds.
static cy_status fill_row(metrics_row *row, const char *run, const cy_history *history, double skip)
{
    const cy_series *loss = &history->of[CY_METRIC_LOSS];
    *row = (metrics_row){.run = run, .status = "unknown"};
    for (int i = 0; i < CY_COUNT(own_columns); i++) {
        memcpy((char *)row + own_columns[i].offset, &(double){(double)NAN}, sizeof(double));
    }
    for (int i = 0; i < CY_METRICS; i++) {
        CY_TRY(cy_series_summarise(&row->of[i], &history->of[i], skip));
    }
    row->step = loss->count > 0 ? loss->step[loss->count - 1] : (double)NAN;
    row->avg_tokens_s_gpu = row->of[CY_METRIC_TOK_S_RANK].mean;
    row->avg_mfu = 100 * row->of[CY_METRIC_MFU].mean;
    cy_text folder = {0};
    CY_TRY(find_folder(&folder, run));
    name_from_path(row->run_name, sizeof(row->run_name), folder.bytes);
    const cy_status status = read_config(row, folder.bytes);
    cy_text_free(&folder);
    return status;
}

static cy_status add_csv_name(void *out, const char *name, double value)
{
    (void)value;
    return cy_text_add(out, ",%s", name);
}

static cy_status add_csv_number(void *out, const char *name, double value)
{
    (void)name;
    return cy_text_add(out, ",%s", isfinite(value) ? cy_json_number(value, 12).bytes : "");
}

static cy_status add_json_number(void *out, const char *name, double value)
{
    cy_json_set(out, name, cy_json_real(value));
    return CY_OK;
}

// Adds a text as a CSV field, in quotes where it needs them.
static cy_status add_csv_text(cy_text *table, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) return cy_text_add(table, "%s", text);
    CY_TRY(cy_text_add(table, "\""));
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"') CY_TRY(cy_text_add(table, "\""));
        CY_TRY(cy_text_add_bytes(table, c, 1));
    }
    return cy_text_add(table, "\"");
}

// How a file with such a table, CSV or JSON, is recognised.
static const cy_output_kind table_kind = {
    .name = "a table of runs",
    // picotron's tables begin with the same columns and have fewer.
    .marks = {{.begins = "run_name,status,dp,tp,", .holds = ",mfu_causal,", .ends = "\n"},
        {.begins = "[\n{\"run_name\": ", .holds = ", \"mfu_causal\": ", .ends = "}\n]\n"}},
};

static cy_status add_csv_head(cy_text *table)
{
    static const metrics_row none;
    CY_TRY(cy_text_add(table, "run_name,status"));
    CY_TRY(add_columns(table, &none, add_csv_name));
    return cy_text_add(table, ",run\n");
}

static cy_status add_csv(cy_text *table, const metrics_row *row)
{
    CY_TRY(add_csv_text(table, row->run_name));
    CY_TRY(cy_text_add(table, ",%s", row->status));
    CY_TRY(add_columns(table, row, add_csv_number));
    CY_TRY(cy_text_add(table, ","));
    CY_TRY(add_csv_text(table, row->run));
    return cy_text_add(table, "\n");
}

static cy_status add_json(cy_text *table, const metrics_row *row)
{
    json_t *object = json_pack("{s:o, s:s}", "run_name",
        cy_json_string(row->run_name, strlen(row->run_name)), "status", row->status);
    const cy_status status = add_columns(&object, row, add_json_number);
    cy_json_set(&object, "run", cy_json_string(row->run, strlen(row->run)));
    if (status != CY_OK) {
        json_decref(object);
        return status;
    }
    return cy_json_add(table, object, JSON_REAL_PRECISION(12));
}

typedef struct values {
    int64_t skip;
    const char *out;
    bool per_run;
    bool json;
    bool plot;
    const char *svg;
} values;

static const cy_option options[] = {
    {"skip", CY_OPTION_COUNT, offsetof(values, skip), .initial = "3", .high = 1e9, .word = "N",
        .doc = "leave the first N steps of a run out of its speed and memory"},
    {"out", CY_OPTION_TEXT, offsetof(values, out), .word = "FILE",
        .doc = "write the table to this file"},
    {"per-run", CY_OPTION_FLAG, offsetof(values, per_run),
        .doc = "also write each run's own row to RUN/metrics.csv"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print an array of objects"},
    {"plot", CY_OPTION_FLAG, offsetof(values, plot),
        .doc = "draw the losses of the one RUN as text instead of the table"},
    {"svg", CY_OPTION_TEXT, offsetof(values, svg), .word = "FILE",
        .doc = "draw the losses of the one RUN to this file instead of the table"},
};

static const cy_usage usage = {
    .name = "metrics",
    .positional = "RUN...",
    .least = 1,
    .most = -1,
    .doc = "Compares runs: one CSV row each, from their metrics.jsonl.",
    .more = "RUN is a run folder or a metrics.jsonl. avg_tokens_s_gpu and avg_mfu (in percent) are "
            "means, the\nother speeds medians over steps, with the least and the most; losses are "
            "the last ones.\nA figure that a run does not have is empty.",
    .options = options,
    .option_count = CY_COUNT(options),
};

static cy_status read_run(cy_history *history, const char *run)
{
    cy_text path = {0};
    if (!cy_path_exists(run)) return CY_FAIL_ERRNO(CY_ERR_REQUEST, "%s", run);
    cy_status status =
        cy_text_add(&path, "%s%s", run, cy_path_is_folder(run) ? "/metrics.jsonl" : "");
    if (status == CY_OK) status = cy_history_open(history, path.bytes);
    if (status == CY_OK && history->unreadable > 0) {
        cy_report_warning("%s: %" PRId64 " lines are no JSON objects with a step and were left out",
            path.bytes, history->unreadable);
    }
    if (status == CY_OK && history->of[CY_METRIC_LOSS].count == 0) {
        cy_history_close(history);
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: no step in it", path.bytes);
    }
    cy_text_free(&path);
    return status;
}

// ---- the table

static cy_status write_own_row(const char *run, const metrics_row *row)
{
    cy_text path = {0};
    cy_text table = {0};
    cy_status status = find_folder(&path, run);
    if (status == CY_OK) status = cy_text_add(&path, "/metrics.csv");
    if (status == CY_OK) status = add_csv_head(&table);
    if (status == CY_OK) status = add_csv(&table, row);
    if (status == CY_OK)
        status = cy_output_write(path.bytes, &table_kind, table.bytes, table.length);
    cy_text_free(&table);
    cy_text_free(&path);
    return status;
}

static cy_status add_run(cy_text *table, const values *v, const char *run)
{
    cy_history history;
    metrics_row row;
    CY_TRY(read_run(&history, run));
    cy_status status = fill_row(&row, run, &history, (double)v->skip);
    cy_history_close(&history);
    if (status == CY_OK && v->json) {
        status = cy_text_add(table, table->length == 0 ? "[\n" : ",\n");
        if (status == CY_OK) status = add_json(table, &row);
    } else if (status == CY_OK) {
        status = add_csv(table, &row);
    }
    if (status == CY_OK && v->per_run) status = write_own_row(run, &row);
    return status;
}

// Returns the exit status. A run that cannot be read does not hide the rows of the others.
static int print_table(const values *v, const cy_arguments *arguments)
{
    cy_text table = {0};
    int exit_status = CY_EXIT_DONE;
    cy_status status = v->json ? CY_OK : add_csv_head(&table);
    for (int i = 0; i < arguments->count && status == CY_OK; i++) {
        const cy_status run = add_run(&table, v, arguments->positional[i]);
        if (run != CY_OK) exit_status = cy_report_status(run);
    }
    if (status == CY_OK && v->json) {
        status = cy_text_add(&table, table.length == 0 ? "[]\n" : "\n]\n");
    }
    if (status == CY_OK && v->out != NULL) {
        status = cy_output_write(v->out, &table_kind, table.bytes, table.length);
    } else if (status == CY_OK) {
        fputs(table.bytes, stdout);
    }
    cy_text_free(&table);
    return status == CY_OK ? exit_status : cy_report_status(status);
}

// ---- the curve

static cy_status draw(const values *v, const char *run, const cy_history *history)
{
    char y_label[64];
    cy_curve curves[CY_CURVES_MAX];
    int count = 0;
    snprintf(y_label, sizeof(y_label), "loss (%s)", cy_metric_entry_of(CY_METRIC_LOSS)->unit);
    const cy_curve_labels page = {run, "step", y_label};
    for (int i = 0; i < CY_METRICS && count < CY_CURVES_MAX; i++) {
        const cy_metric_entry *entry = cy_metric_entry_of((cy_metric)i);
        const cy_series *series = &history->of[i];
        if (entry->curve == NULL || series->count == 0) continue;
        curves[count++] = (cy_curve){
            .name = entry->curve,
            .x = series->step,
            .y = series->value,
            .count = series->count,
            .marks = entry->curve_marks,
        };
    }
    cy_text out = {0};
    cy_status status = CY_OK;
    if (v->svg != NULL) {
        status = cy_curve_svg(&out, &page, curves, count);
        if (status == CY_OK)
            status = cy_output_write(v->svg, &cy_output_svg, out.bytes, out.length);
        out.length = 0;
    }
    if (status == CY_OK && v->plot) {
        status = cy_curve_plot(&out, &page, curves, count, 72, 16);
        if (status == CY_OK) fputs(out.bytes, stdout);
    }
    cy_text_free(&out);
    return status;
}

int cy_command_metrics(int argc, char **argv)
{
    values v;
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &v, &usage, argc, argv);
    if (exit_status == CY_RUN_COMMAND) {
        const bool curve = v.plot || v.svg != NULL;
        if (curve && arguments.count != 1) {
            exit_status =
                cy_usage_error(&usage, "a curve is of one RUN, there are %d", arguments.count);
        } else if (curve && v.json) {
            exit_status = cy_usage_error(&usage, "--json prints figures, a curve is drawn");
        } else if (curve) {
            cy_history history;
            cy_status status = read_run(&history, arguments.positional[0]);
            if (status == CY_OK) {
                status = draw(&v, arguments.positional[0], &history);
                cy_history_close(&history);
            }
            exit_status = cy_report_output(cy_report_status(status));
        } else {
            exit_status = cy_report_output(print_table(&v, &arguments));
        }
    }
    cy_arguments_free(&arguments);
    return exit_status;
}
