// `cyclotron metrics`: runs side by side as CSV, and the loss curve of one.

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include "base/file.h"
#include "base/output.h"
#include "cli/metrics_table.h"
#include "observe/curve.h"

#include <inttypes.h>
#include <string.h>

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

static cy_status write_own_row(const char *run, const cy_metrics_row *row)
{
    cy_text path = {0};
    cy_text table = {0};
    cy_status status = cy_metrics_folder(&path, run);
    if (status == CY_OK) status = cy_text_add(&path, "/metrics.csv");
    if (status == CY_OK) status = cy_metrics_add_csv_head(&table);
    if (status == CY_OK) status = cy_metrics_add_csv(&table, row);
    if (status == CY_OK)
        status = cy_output_write(path.bytes, &cy_metrics_table_kind, table.bytes, table.length);
    cy_text_free(&table);
    cy_text_free(&path);
    return status;
}

static cy_status add_run(cy_text *table, const values *v, const char *run)
{
    cy_history history;
    cy_metrics_row row;
    CY_TRY(read_run(&history, run));
    cy_status status = cy_metrics_row_fill(&row, run, &history, (double)v->skip);
    cy_history_close(&history);
    if (status == CY_OK && v->json) {
        status = cy_text_add(table, table->length == 0 ? "[\n" : ",\n");
        if (status == CY_OK) status = cy_metrics_add_json(table, &row);
    } else if (status == CY_OK) {
        status = cy_metrics_add_csv(table, &row);
    }
    if (status == CY_OK && v->per_run) status = write_own_row(run, &row);
    return status;
}

// Returns the exit status. A run that cannot be read does not hide the rows of the others.
static int print_table(const values *v, const cy_arguments *arguments)
{
    cy_text table = {0};
    int exit_status = CY_EXIT_DONE;
    cy_status status = v->json ? CY_OK : cy_metrics_add_csv_head(&table);
    for (int i = 0; i < arguments->count && status == CY_OK; i++) {
        const cy_status run = add_run(&table, v, arguments->positional[i]);
        if (run != CY_OK) exit_status = cy_report_status(run);
    }
    if (status == CY_OK && v->json) {
        status = cy_text_add(&table, table.length == 0 ? "[]\n" : "\n]\n");
    }
    if (status == CY_OK && v->out != NULL) {
        status = cy_output_write(v->out, &cy_metrics_table_kind, table.bytes, table.length);
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
