// observe/metrics.h: the metrics of a run: their declarations, the values of one record, the texts
// of a record, and the history of a run, read back from metrics.jsonl.
//
// CY_METRIC_TABLE declares each metric once, in one entry. The console's line, metrics.jsonl,
// TensorBoard's scalars, the columns of `cyclotron metrics` and the curves follow from the entry
// (sinks.h). The trainer sets the value of a metric in a record, and a metric that is not set is
// not written: its entry does not say when it is present, the code that sets it does. Values are
// global, which means sums, means or maxima over ranks. A number that is not finite is `null` in
// the file, `nan` or `inf` on the console.
//
// A record belongs to one thread. The functions fail for memory only.

#ifndef CY_OBSERVE_METRICS_H
#define CY_OBSERVE_METRICS_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// An entry is METRIC(ID, name, type, unit, uses): CY_METRIC_ID is the metric's number.
//
//   name    in metrics.jsonl, and of its columns. "topk.ratio" is `ratio` in the object `topk`.
//           NULL: the metric is on the console only.
//   type    COUNT (int64_t), REAL (double), FLAG (0 or 1), HASH (64 bits, as 16 hex digits), or
//           OBJECT, which has no value and makes the object of that name, even if nothing is in it
//   unit    of the value, or "none"
//   uses    any of these, separated by commas:
//     CONSOLE(place, label, format)   in the line of a step; fields stand in the order of `place`
//     TAG(tag)                        of TensorBoard
//     SUMMARY(rule)                   the value of a whole run, a column of `cyclotron metrics`
//     CURVE(legend, marks)            a loss, drawn by `cyclotron metrics --svg` and `--plot`, with
//                                     a mark at each point if it has few
//
// The order of the entries is that of the fields of metrics.jsonl, of TensorBoard's scalars and of
// the columns. docs/howto/add-a-metric.md explains how to add one.

#define CY_METRIC_TABLE(METRIC)                                                                    \
    METRIC(STEP, "step", COUNT, "updates", CONSOLE(1, "Step", WHOLE))                              \
    METRIC(TOKENS, "tokens", COUNT, "tokens", CONSOLE(6, "Tokens", SHORT), SUMMARY(LAST))          \
    METRIC(LOSS, "loss", REAL, "nats per token", CONSOLE(2, "Loss", FIXED), TAG("train/loss"),     \
        SUMMARY(LAST), CURVE("training", false))                                                   \
    METRIC(VAL_LOSS, "val_loss", REAL, "nats per token", TAG("validation/loss"), SUMMARY(LAST),    \
        CURVE("validation", true))                                                                 \
    METRIC(VAL_TOKENS, "val_tokens", COUNT, "tokens", NO_USES)                                     \
    METRIC(GRAD_NORM, "grad_norm", REAL, "none", CONSOLE(10, "Grad norm", FIXED),                  \
        TAG("train/grad_norm"))                                                                    \
    METRIC(LR, "lr", REAL, "none", CONSOLE(11, "LR", SCIENTIFIC), TAG("train/learning_rate"))      \
    METRIC(STEP_S, "step_s", REAL, "seconds", SUMMARY(MEDIAN))                                     \
    METRIC(TOK_S, "tok_s", REAL, "tokens/s", CONSOLE(4, "Tokens/s", SHORT),                        \
        TAG("speed/tokens_per_second"), SUMMARY(SPREAD))                                           \
    METRIC(TOK_S_RANK, "tok_s_rank", REAL, "tokens/s", CONSOLE(5, "Tokens/s/GPU", SHORT),          \
        SUMMARY(MEDIAN))                                                                           \
    METRIC(MFU, "mfu", REAL, "fraction", CONSOLE(8, "MFU", PERCENT), TAG("speed/mfu"),             \
        SUMMARY(SPREAD))                                                                           \
    METRIC(MFU_CAUSAL, "mfu_causal", REAL, "fraction", SUMMARY(MEDIAN))                            \
    METRIC(MEM_GB, "mem_gb", REAL, "GB", CONSOLE(9, "Memory usage", GB), TAG("memory/gb"),         \
        SUMMARY(MOST))                                                                             \
    METRIC(DATA_S, "data_s", REAL, "seconds", SUMMARY(MEAN))                                       \
    METRIC(DATA_READY, "data_ready", REAL, "fraction", SUMMARY(MEAN))                              \
    METRIC(COMM, "comm", OBJECT, "none", NO_USES)                                                  \
    CY_METRIC_TABLE_COMM(METRIC, TP, "comm.tp.")                                                   \
    CY_METRIC_TABLE_COMM(METRIC, CP, "comm.cp.")                                                   \
    CY_METRIC_TABLE_COMM(METRIC, PP, "comm.pp.")                                                   \
    CY_METRIC_TABLE_COMM(METRIC, DP, "comm.dp.")                                                   \
    CY_METRIC_TABLE_COMM(METRIC, WORLD, "comm.world.")                                             \
    METRIC(TOPK_RATIO, "topk.ratio", REAL, "fraction", NO_USES)                                    \
    METRIC(TOPK_SENT, "topk.sent", COUNT, "elements", NO_USES)                                     \
    METRIC(TOPK_ELEMENTS, "topk.elements", COUNT, "elements", NO_USES)                             \
    METRIC(SKIPPED, "skipped", FLAG, "none", CONSOLE(12, "Skipped", WORD))                         \
    METRIC(REPEATED, "repeated", COUNT, "repetitions", CONSOLE(13, "Repeated", WHOLE))             \
    METRIC(PARAMS_HASH, "params_hash", HASH, "none", NO_USES)                                      \
    METRIC(BATCH_TOKENS, NULL, COUNT, "tokens", CONSOLE(3, "Global batch size", SHORT))            \
    METRIC(MAX_TOKENS, NULL, COUNT, "tokens", CONSOLE(7, "", LIMIT))

// The messages of one dimension of the mesh: sums over all ranks, seconds of the slowest rank.
#define CY_METRIC_TABLE_COMM(METRIC, ID, name)                                                     \
    METRIC(COMM_##ID##_BYTES, name "bytes", COUNT, "bytes", NO_USES)                               \
    METRIC(COMM_##ID##_MESSAGES, name "messages", COUNT, "messages", NO_USES)                      \
    METRIC(COMM_##ID##_S, name "s", REAL, "seconds", NO_USES)                                      \
    METRIC(COMM_##ID##_EXPOSED_S, name "exposed_s", REAL, "seconds", NO_USES)                      \
    METRIC(COMM_##ID##_BYTES_BETWEEN_NODES, name "bytes_between_nodes", COUNT, "bytes", NO_USES)

#define CY_METRIC_NUMBER(id, ...) CY_METRIC_##id,
typedef enum cy_metric { CY_METRIC_TABLE(CY_METRIC_NUMBER) CY_METRICS } cy_metric;
#undef CY_METRIC_NUMBER

// The metrics of a dimension follow each other: those of dp begin at CY_METRIC_COMM_DP_BYTES.
#define CY_METRICS_OF_DIMENSION (CY_METRIC_COMM_CP_BYTES - CY_METRIC_COMM_TP_BYTES)

typedef enum cy_metric_type {
    CY_METRIC_TYPE_COUNT,
    CY_METRIC_TYPE_REAL,
    CY_METRIC_TYPE_FLAG,
    CY_METRIC_TYPE_HASH,
    CY_METRIC_TYPE_OBJECT,
} cy_metric_type;

// How the console shows a value (observe/progress.h).
typedef enum cy_metric_format {
    CY_METRIC_FORMAT_WHOLE, // "12"
    CY_METRIC_FORMAT_SHORT, // "8.19K"
    CY_METRIC_FORMAT_LIMIT, // "/1.00M", without separator and label: a bound of the field before it
    CY_METRIC_FORMAT_FIXED, // "5.1234"
    CY_METRIC_FORMAT_SCIENTIFIC, // "3.00e-04"
    CY_METRIC_FORMAT_PERCENT,    // of a fraction: "61.20%"; "-" where it is not finite
    CY_METRIC_FORMAT_GB,         // "1.20GB"
    CY_METRIC_FORMAT_WORD,       // the label alone, where the value is not 0
} cy_metric_format;

// The value of a whole run. Speeds leave out the first steps (cy_series_summarise).
typedef enum cy_metric_summary {
    CY_METRIC_SUMMARY_NONE,
    CY_METRIC_SUMMARY_LAST,
    CY_METRIC_SUMMARY_MEAN,
    CY_METRIC_SUMMARY_MEDIAN,
    CY_METRIC_SUMMARY_MOST,
    CY_METRIC_SUMMARY_SPREAD, // three columns: NAME is the median, NAME_min and NAME_max
} cy_metric_summary;

// The entry of a metric. Texts are static.
typedef struct cy_metric_entry {
    const char *name; // NULL: on the console only
    const char *unit;
    const char *label; // on the console
    const char *tag;   // NULL: not in TensorBoard
    const char *curve; // the legend; NULL: not drawn
    cy_metric_type type;
    int place; // on the console; 0: not there
    cy_metric_format format;
    cy_metric_summary summary;
    bool curve_marks;
} cy_metric_entry;

const cy_metric_entry *cy_metric_entry_of(cy_metric metric);

// ---- the values of a step, or of an evaluation

// Start from a zeroed struct, in which nothing is set.
typedef struct cy_metrics {
    bool set[CY_METRICS];
    union {
        double real;
        int64_t count;
    } of[CY_METRICS];
} cy_metrics;

// Set a metric: of type REAL, and of the other types. The value of a hash is its bits, that of an
// object is not used.
void cy_metrics_set(cy_metrics *metrics, cy_metric metric, double value);
void cy_metrics_set_count(cy_metrics *metrics, cy_metric metric, int64_t value);

// The value of a metric, of either kind; NaN or 0 where it is not set.
double cy_metrics_real(const cy_metrics *metrics, cy_metric metric);
int64_t cy_metrics_count(const cy_metrics *metrics, cy_metric metric);

// Appends the console's line of a step, without a line end:
// `[rank 0] Step: 12 | Loss: 5.1234 | Global batch size: 8.19K | Tokens/s: 4.21K | Tokens/s/GPU:
// 2.10K | Tokens: 98.3K/1.00M | MFU: 61.20% | Memory usage: 1.20GB | Grad norm: 1.2345 | LR:
// 3.00e-04`. Picotron's fields in its order, then ours.
CY_MUST_CHECK cy_status cy_metrics_add_console(cy_text *line, const cy_metrics *metrics);

// Appends a line of metrics.jsonl, without a line end: one JSON object, described in
// docs/observe.md.
CY_MUST_CHECK cy_status cy_metrics_add_json(cy_text *line, const cy_metrics *metrics);

// ---- reading metrics.jsonl back

typedef struct cy_series {
    double *step;  // owned, [count]
    double *value; // owned, [count]
    int64_t count;
    size_t step_capacity, value_capacity; // elements that are allocated
} cy_series;

// The series of a run, in the order of the file, which is that of the steps: of each metric that
// has a summary or a curve, the values of the lines that contain it. A value that is no number,
// such as `null`, is NaN. Lines that are not whole JSON objects are skipped and counted: a run that
// is being written may end in the middle of one.
typedef struct cy_history {
    cy_series of[CY_METRICS];
    int64_t unreadable; // lines that were skipped
} cy_history;

CY_MUST_CHECK cy_status cy_history_open(cy_history *history, const char *path);
void cy_history_close(cy_history *history);

// A series in figures. The last value is the last of all; the others are of the finite values at
// steps after `after`. NaN where there is none.
typedef struct cy_summary {
    double last, mean, least, median, most;
} cy_summary;

CY_MUST_CHECK cy_status cy_series_summarise(
    cy_summary *summary, const cy_series *series, double after);

#endif
