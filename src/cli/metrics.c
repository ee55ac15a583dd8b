// cyclotron metrics: compares runs as CSV or JSON, one row each, and draws the loss curve of one.

#define _GNU_SOURCE
#include "base/file.h"
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

// The first columns are those of picotron's table (run_name to avg_mfu), so that what reads its
// table reads this one; then come ours. A figure that a run does not have is empty.
typedef struct metrics_row {
    char run_name[CY_CONFIG_TEXT_BYTES]; // logging.run_name, or the folder's name
    const char *run;                     // borrowed: as it was given
    const char *status;                  // "completed", "incomplete", or "unknown" without config
    double dp, tp, pp, micro_batch_size, grad_acc, seq_len; // NaN without config, as below
    double avg_tokens_s_gpu, avg_mfu;                       // means after the warm-up; percent
    double step, tokens, loss, val_loss;
    cy_spread step_s, tok_s, tok_s_rank, mfu, mfu_causal, mem_gb;
    double cp, zero_stage, ranks;
    double data_s, data_ready; // means after the warm-up
} metrics_row;

static const struct {
    const char *name;
    size_t offset; // of a double in metrics_row
} columns[] = {
#define COLUMN(field)                                                                              \
    {                                                                                              \
#field, offsetof(metrics_row, field)                                                       \
    }
#define AS(name, field)                                                                            \
    {                                                                                              \
        name, offsetof(metrics_row, field)                                                         \
    }
    COLUMN(dp),
    COLUMN(tp),
    COLUMN(pp),
    COLUMN(micro_batch_size),
    COLUMN(grad_acc),
    COLUMN(seq_len),
    COLUMN(avg_tokens_s_gpu),
    COLUMN(avg_mfu),
    COLUMN(step),
    COLUMN(tokens),
    COLUMN(loss),
    COLUMN(val_loss),
    AS("step_s", step_s.median),
    AS("tok_s", tok_s.median),
    AS("tok_s_min", tok_s.least),
    AS("tok_s_max", tok_s.most),
    AS("tok_s_rank", tok_s_rank.median),
    AS("mfu", mfu.median),
    AS("mfu_min", mfu.least),
    AS("mfu_max", mfu.most),
    AS("mfu_causal", mfu_causal.median),
    AS("mem_gb", mem_gb.most),
    COLUMN(cp),
    COLUMN(zero_stage),
    COLUMN(ranks),
    COLUMN(data_s),
    COLUMN(data_ready),
};

static double mean_after(const cy_series *series, double skip)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < series->count; i++) {
        if (series->step[i] <= skip || !isfinite(series->value[i])) continue;
        sum += series->value[i];
        count++;
    }
    return count > 0 ? sum / (double)count : (double)NAN;
}

static double last_of(const cy_series *series)
{
    return series->count > 0 ? series->value[series->count - 1] : (double)NAN;
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
    const bool done =
        (steps > 0 && row->step >= (double)steps) || (tokens > 0 && row->tokens >= (double)tokens);
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
    *row = (metrics_row){.run = run, .status = "unknown"};
    for (int i = 0; i < CY_COUNT(columns); i++) {
        memcpy((char *)row + columns[i].offset, &(double){(double)NAN}, sizeof(double));
    }
    cy_text folder = {0};
    CY_TRY(find_folder(&folder, run));
    name_from_path(row->run_name, sizeof(row->run_name), folder.bytes);
    row->step = history->loss.count > 0 ? history->loss.step[history->loss.count - 1] : (double)NAN;
    row->tokens = last_of(&history->tokens);
    row->loss = last_of(&history->loss);
    row->val_loss = last_of(&history->val_loss);
    row->avg_tokens_s_gpu = mean_after(&history->tok_s_rank, skip);
    row->avg_mfu = 100 * mean_after(&history->mfu, skip);
    row->data_s = mean_after(&history->data_s, skip);
    row->data_ready = mean_after(&history->data_ready, skip);
    cy_status status = read_config(row, folder.bytes);
    cy_text_free(&folder);
    CY_TRY(status);
    CY_TRY(cy_series_spread(&row->step_s, &history->step_s, skip));
    CY_TRY(cy_series_spread(&row->tok_s, &history->tok_s, skip));
    CY_TRY(cy_series_spread(&row->tok_s_rank, &history->tok_s_rank, skip));
    CY_TRY(cy_series_spread(&row->mfu, &history->mfu, skip));
    CY_TRY(cy_series_spread(&row->mfu_causal, &history->mfu_causal, skip));
    CY_TRY(cy_series_spread(&row->mem_gb, &history->mem_gb, skip));
    return CY_OK;
}

static cy_status add_number(cy_text *table, const metrics_row *row, int index, const char *none)
{
    double number;
    memcpy(&number, (const char *)row + columns[index].offset, sizeof(number));
    if (!isfinite(number)) return cy_text_add(table, "%s", none);
    return cy_text_add(table, "%.12g", number);
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
    CY_TRY(cy_text_add(table, "run_name,status"));
    for (int i = 0; i < CY_COUNT(columns); i++) {
        CY_TRY(cy_text_add(table, ",%s", columns[i].name));
    }
    return cy_text_add(table, ",run\n");
}

static cy_status add_csv(cy_text *table, const metrics_row *row)
{
    CY_TRY(add_csv_text(table, row->run_name));
    CY_TRY(cy_text_add(table, ",%s", row->status));
    for (int i = 0; i < CY_COUNT(columns); i++) {
        CY_TRY(cy_text_add(table, ","));
        CY_TRY(add_number(table, row, i, ""));
    }
    CY_TRY(cy_text_add(table, ","));
    CY_TRY(add_csv_text(table, row->run));
    return cy_text_add(table, "\n");
}

static cy_status add_json(cy_text *table, const metrics_row *row)
{
    CY_TRY(cy_text_add(table, "{\"run_name\": "));
    CY_TRY(cy_text_add_json_string(table, row->run_name, strlen(row->run_name)));
    CY_TRY(cy_text_add(table, ", \"status\": \"%s\"", row->status));
    for (int i = 0; i < CY_COUNT(columns); i++) {
        CY_TRY(cy_text_add(table, ", \"%s\": ", columns[i].name));
        CY_TRY(add_number(table, row, i, "null"));
    }
    CY_TRY(cy_text_add(table, ", \"run\": "));
    CY_TRY(cy_text_add_json_string(table, row->run, strlen(row->run)));
    return cy_text_add(table, "}");
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
    if (status == CY_OK && history->loss.count == 0) {
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
    const cy_curve_labels page = {run, "step", "loss (nats per token)"};
    const cy_curve curves[] = {
        {.name = "training",
            .x = history->loss.step,
            .y = history->loss.value,
            .count = history->loss.count},
        {.name = "validation",
            .x = history->val_loss.step,
            .y = history->val_loss.value,
            .count = history->val_loss.count,
            .marks = true},
    };
    const int count = history->val_loss.count > 0 ? 2 : 1;
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
