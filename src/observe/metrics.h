// observe/metrics.h: the metrics of a step, as a line on the console and a line in metrics.jsonl;
// and the history of a run, read back from that file.
//
// The trainer fills a cy_step_metrics with global values (sums and maxima over ranks), and rank
// zero gives each whole line to an asynchronous writer (async_writer.h): no disk delays a step, and
// no failed write ends a run. A number that is not finite is `null` in the file, `nan` or `inf` on
// the console.

#ifndef CY_OBSERVE_METRICS_H
#define CY_OBSERVE_METRICS_H

#include "base/status.h"
#include "base/text.h"
#include "observe/async_writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Traffic of one dimension in one step, over all ranks. Exposed seconds are those that did not
// overlap with computation.
typedef struct cy_comm_metrics {
    const char *dimension; // borrowed: "dp", "tp", "pp", "cp", "ep"
    int64_t bytes;
    int64_t messages;
    double seconds;              // of the slowest rank
    double exposed_seconds;      // of the slowest rank
    int64_t bytes_between_nodes; // the part of the bytes that left a node; 0 is not written
} cy_comm_metrics;

#define CY_COMM_METRICS_MAX 8

typedef struct cy_step_metrics {
    int64_t step;         // from 1
    int64_t tokens;       // trained so far, this step's included
    int64_t max_tokens;   // 0: no limit
    int64_t batch_tokens; // of one step
    double loss;          // mean over every token of the global batch
    double grad_norm;
    double learning_rate;
    double step_s;
    double tok_s;      // of all ranks together
    double tok_s_rank; // the same, divided by the ranks
    double mfu;        // fractions; NaN where no peak was measured
    double mfu_causal;
    double memory_bytes; // resident, of the largest rank
    double data_s;       // the time that the slowest rank waited for microbatches
    double data_ready;   // the fraction of all ranks' microbatches that were ready when asked for
    bool skipped;        // the update was not applied: loss scaling met an overflow
    int repeats;         // strict mode: how often the step was repeated
    bool has_params_hash;
    uint64_t params_hash;
    // Top-k compression: the ratio of this step, and how many elements all ranks sent of how many.
    double topk_ratio; // 0: no top-k compression, and these fields are not written
    int64_t topk_sent, topk_elements;
    cy_comm_metrics comm[CY_COMM_METRICS_MAX]; // [comm_count]
    int comm_count;
} cy_step_metrics;

// Appends the console's line, without a line end:
// `[rank 0] Step: 12 | Loss: 5.1234 | Global batch size: 8.19K | Tokens/s: 4.21K | Tokens/s/GPU:
// 2.10K | Tokens: 98.3K/1.00M | MFU: 61.20% | Memory usage: 1.20GB | Grad norm: 1.2345 | LR:
// 3.00e-04`. Picotron's fields in its order, then ours. Counts have three significant digits
// (observe/progress.h), GB are 2^30 bytes, an MFU without a measured peak is `-`, and `/1.00M` is
// left out where there is no limit.
CY_MUST_CHECK cy_status cy_metrics_add_console(cy_text *line, const cy_step_metrics *metrics);

// Append one JSON object, without a line end, as docs/observe.md describes it.
CY_MUST_CHECK cy_status cy_metrics_add_step(cy_text *line, const cy_step_metrics *metrics);
CY_MUST_CHECK cy_status cy_metrics_add_validation(
    cy_text *line, int64_t step, double val_loss, int64_t val_tokens);

typedef struct cy_metrics_file {
    cy_async_writer *writer; // borrowed; NULL when closed
    int target;              // the file's number there
    cy_text line;            // owned; keeps its room from step to step
} cy_metrics_file;

// Opens a file for appending through `writer`; makes it where there is none. Lines of steps after
// `last_step` are removed from it (0: all lines), and so are lines that are no whole JSON object
// with a step, such as the torn last line of a run that died. *unreadable, unless NULL, counts
// those. The shorter file replaces the old one in one rename. On failure the old file stays as it
// was.
CY_MUST_CHECK cy_status cy_metrics_file_open(cy_metrics_file *file, cy_async_writer *writer,
    const char *path, int64_t last_step, int64_t *unreadable);

// Lines that were passed to the writer may be unwritten until cy_async_writer_finish.
void cy_metrics_file_close(cy_metrics_file *file);

// Keeps a file that the run does not continue, because the run begins (`last_step` 0) or because no
// line of the file has a step: renames it to the first free name of PATH.1, PATH.2 and so on.
// *number is that number; 0 where there is no such file, or nothing in it. The caller makes sure
// that nobody else takes such names at the same time.
CY_MUST_CHECK cy_status cy_metrics_file_rotate(int *number, const char *path, int64_t last_step);

// Append one line each. They fail only for memory.
CY_MUST_CHECK cy_status cy_metrics_file_step(cy_metrics_file *file, const cy_step_metrics *metrics);
CY_MUST_CHECK cy_status cy_metrics_file_validation(
    cy_metrics_file *file, int64_t step, double val_loss, int64_t val_tokens);

// ---- reading metrics.jsonl back

typedef struct cy_series {
    double *step;  // owned, [count]
    double *value; // owned, [count]
    int64_t count;
    size_t step_capacity, value_capacity; // elements that are allocated
} cy_series;

// Series of a run, in the order of the file, which is that of the steps: one value a step, except
// for val_loss, which has one an evaluation. A value that was not finite (`null`) is NaN. Lines
// that are not whole JSON objects are skipped and counted: a run that is being written may end in
// the middle of one.
typedef struct cy_history {
    cy_series loss;
    cy_series tokens;
    cy_series step_s;
    cy_series tok_s;
    cy_series tok_s_rank;
    cy_series mfu;
    cy_series mfu_causal;
    cy_series mem_gb;
    cy_series data_s;
    cy_series data_ready;
    cy_series val_loss;
    int64_t unreadable; // lines that were skipped
} cy_history;

CY_MUST_CHECK cy_status cy_history_open(cy_history *history, const char *path);
void cy_history_close(cy_history *history);

// The spread of a series' finite values at steps after `after`; all NaN where there are none.
typedef struct cy_spread {
    double least, median, most;
} cy_spread;

CY_MUST_CHECK cy_status cy_series_spread(cy_spread *spread, const cy_series *series, double after);

#endif
