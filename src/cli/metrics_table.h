// cli/metrics_table.h: runs side by side: one row each, from metrics.jsonl and config.json.
//
// The first columns are those of picotron's table (run_name to avg_mfu), so that what reads its
// table reads ours; then come ours. A figure that a run does not have is empty.

#ifndef CY_CLI_METRICS_TABLE_H
#define CY_CLI_METRICS_TABLE_H

#include "base/output.h"
#include "base/text.h"
#include "config/config.h"
#include "observe/metrics.h"

typedef struct cy_metrics_row {
    char run_name[CY_CONFIG_TEXT_BYTES]; // logging.run_name, or the folder's name
    const char *run;                     // borrowed: as it was given
    const char *status;                  // "completed", "incomplete", or "unknown" without config
    double dp, tp, pp, micro_batch_size, grad_acc, seq_len; // NaN without config, as below
    double avg_tokens_s_gpu, avg_mfu;                       // means after the warm-up; percent
    double step, tokens, loss, val_loss;
    cy_spread step_s, tok_s, tok_s_rank, mfu, mfu_causal, mem_gb;
    double cp, zero_stage, ranks;
    double data_s, data_ready; // means after the warm-up
} cy_metrics_row;

// The folder of a run that is given as such or as its metrics.jsonl.
CY_MUST_CHECK cy_status cy_metrics_folder(cy_text *folder, const char *run);

// Reads the folder's config.json, where there is one, and the history; figures of the first `skip`
// steps do not count as speeds.
CY_MUST_CHECK cy_status cy_metrics_row_fill(
    cy_metrics_row *row, const char *run, const cy_history *history, double skip);

// How a file with such a table, CSV or JSON, is recognised.
extern const cy_output_kind cy_metrics_table_kind;

CY_MUST_CHECK cy_status cy_metrics_add_csv_head(cy_text *table);
CY_MUST_CHECK cy_status cy_metrics_add_csv(cy_text *table, const cy_metrics_row *row);

// Appends the row as a JSON object.
CY_MUST_CHECK cy_status cy_metrics_add_json(cy_text *table, const cy_metrics_row *row);

#endif
