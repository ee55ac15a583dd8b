// `cyclotron metrics`: runs side by side as CSV, and the loss curve of one.

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include "base/file.h"
#include "observe/curve.h"
#include "observe/history.h"
#include "observe/number.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct values {
    int64_t skip;
    bool plot;
    const char *svg;
} values;

static const cy_option options[] = {
    {"skip", CY_OPTION_COUNT, offsetof(values, skip), .initial = "3", .word = "N",
        .doc = "leave the first N steps of a run out of its speed and memory"},
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
    .more = "RUN is a run folder or a metrics.jsonl. Speeds are medians over steps, with the least "
            "and the most;\nlosses are the last ones. A figure that a run does not have is empty.",
    .options = options,
    .option_count = CY_COUNT(options),
};

static cy_status read_run(cy_history *history, const char *run)
{
    cy_text path = {0};
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

static cy_status add_figure(cy_text *row, double value)
{
    CY_TRY(cy_text_add(row, ","));
    return isfinite(value) ? cy_number_json(row, value) : CY_OK;
}

static double last_of(const cy_series *series)
{
    return series->count > 0 ? series->value[series->count - 1] : (double)NAN;
}

// A text as a CSV field: in quotes, where it needs them.
static cy_status add_name(cy_text *row, const char *name)
{
    if (strpbrk(name, ",\"\n\r") == NULL) return cy_text_add(row, "%s", name);
    CY_TRY(cy_text_add(row, "\""));
    for (const char *c = name; *c != '\0'; c++) {
        CY_TRY(cy_text_add(row, *c == '"' ? "\"\"" : "%c", *c));
    }
    return cy_text_add(row, "\"");
}

static cy_status add_row(cy_text *row, const char *run, const cy_history *history, double skip)
{
    cy_spread tok_s, rank, mfu, causal, memory, seconds;
    CY_TRY(cy_series_spread(&seconds, &history->step_s, skip));
    CY_TRY(cy_series_spread(&tok_s, &history->tok_s, skip));
    CY_TRY(cy_series_spread(&rank, &history->tok_s_rank, skip));
    CY_TRY(cy_series_spread(&mfu, &history->mfu, skip));
    CY_TRY(cy_series_spread(&causal, &history->mfu_causal, skip));
    CY_TRY(cy_series_spread(&memory, &history->mem_gb, skip));
    CY_TRY(add_name(row, run));
    const double figures[] = {history->loss.step[history->loss.count - 1],
        last_of(&history->tokens), last_of(&history->loss), last_of(&history->val_loss),
        seconds.median, tok_s.median, tok_s.least, tok_s.most, rank.median, mfu.median, mfu.least,
        mfu.most, causal.median, memory.most};
    for (int i = 0; i < CY_COUNT(figures); i++)
        CY_TRY(add_figure(row, figures[i]));
    return cy_text_add(row, "\n");
}

static cy_status print_table(const values *v, const cy_arguments *arguments)
{
    cy_text table = {0};
    cy_status status = cy_text_add(&table,
        "run,step,tokens,loss,val_loss,step_s,tok_s,tok_s_min,tok_s_max,tok_s_rank,mfu,mfu_min,"
        "mfu_max,mfu_causal,mem_gb\n");
    for (int i = 0; i < arguments->count && status == CY_OK; i++) {
        cy_history history;
        status = read_run(&history, arguments->positional[i]);
        if (status != CY_OK) break;
        status = add_row(&table, arguments->positional[i], &history, (double)v->skip);
        cy_history_close(&history);
    }
    if (status == CY_OK) fputs(table.bytes, stdout);
    cy_text_free(&table);
    return status;
}

// ---- the curve

static cy_status draw(const values *v, const char *run, const cy_history *history)
{
    const cy_curve_page page = {run, "step", "loss (nats per token)"};
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
        if (status == CY_OK) status = cy_file_write(v->svg, out.bytes, out.length);
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
    if (exit_status == CY_GO_ON) {
        const bool curve = v.plot || v.svg != NULL;
        if (curve && arguments.count != 1) {
            exit_status =
                cy_usage_error(&usage, "a curve is of one RUN, there are %d", arguments.count);
        } else if (curve) {
            cy_history history;
            cy_status status = read_run(&history, arguments.positional[0]);
            if (status == CY_OK) {
                status = draw(&v, arguments.positional[0], &history);
                cy_history_close(&history);
            }
            exit_status = cy_report_output(cy_report_status(status));
        } else {
            exit_status = cy_report_output(cy_report_status(print_table(&v, &arguments)));
        }
    }
    cy_arguments_free(&arguments);
    return exit_status;
}
