#define _GNU_SOURCE
#include "cli/metrics_table.h"

#include "base/file.h"
#include "cli/options.h"
#include "cli/report.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset; // of a double in cy_metrics_row
} columns[] = {
#define COLUMN(field)                                                                              \
    {                                                                                              \
#field, offsetof(cy_metrics_row, field)                                                    \
    }
#define AS(name, field)                                                                            \
    {                                                                                              \
        name, offsetof(cy_metrics_row, field)                                                      \
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

cy_status cy_metrics_folder(cy_text *folder, const char *run)
{
    static const char file[] = "metrics.jsonl";
    const char *slash = strrchr(run, '/');
    const char *name = slash != NULL ? slash + 1 : run;
    if (strcmp(name, file) != 0 || cy_path_is_folder(run)) return cy_text_add(folder, "%s", run);
    if (slash == NULL) return cy_text_add(folder, ".");
    const int length = slash == run ? 1 : (int)(slash - run);
    return cy_text_add(folder, "%.*s", length, run);
}

// The last part of a path: "runs/one/" is "one". One that ends in dots is called as it is
// elsewhere.
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

static void fill_from_config(cy_metrics_row *row, const cy_config *config)
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

// A configuration that cannot be read leaves its columns empty, which is said.
static cy_status read_config(cy_metrics_row *row, const char *folder)
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
        // Only the batch is needed: that the model's folder may be gone since is no fault here.
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

cy_status cy_metrics_row_fill(
    cy_metrics_row *row, const char *run, const cy_history *history, double skip)
{
    *row = (cy_metrics_row){.run = run, .status = "unknown"};
    for (int i = 0; i < CY_COUNT(columns); i++) {
        memcpy((char *)row + columns[i].offset, &(double){(double)NAN}, sizeof(double));
    }
    cy_text folder = {0};
    CY_TRY(cy_metrics_folder(&folder, run));
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

static cy_status add_number(cy_text *table, const cy_metrics_row *row, int index, const char *none)
{
    double number;
    memcpy(&number, (const char *)row + columns[index].offset, sizeof(number));
    if (!isfinite(number)) return cy_text_add(table, "%s", none);
    return cy_text_add(table, "%.12g", number);
}

// A text as a CSV field: in quotes, where it needs them.
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

const cy_output_kind cy_metrics_table_kind = {
    .name = "a table of runs",
    // picotron's tables begin alike and have fewer columns.
    .marks = {{.begins = "run_name,status,dp,tp,", .holds = ",mfu_causal,", .ends = "\n"},
        {.begins = "[\n{\"run_name\": ", .holds = ", \"mfu_causal\": ", .ends = "}\n]\n"}},
};

cy_status cy_metrics_add_csv_head(cy_text *table)
{
    CY_TRY(cy_text_add(table, "run_name,status"));
    for (int i = 0; i < CY_COUNT(columns); i++) {
        CY_TRY(cy_text_add(table, ",%s", columns[i].name));
    }
    return cy_text_add(table, ",run\n");
}

cy_status cy_metrics_add_csv(cy_text *table, const cy_metrics_row *row)
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

cy_status cy_metrics_add_json(cy_text *table, const cy_metrics_row *row)
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
