// observe/history.h: what a run told, read back from its metrics.jsonl.
//
// Lines that are not whole JSON objects are passed over and counted: a run that is being written
// may end in the middle of one. The arrays are owned by the history, in the order of the file,
// which is that of the steps; a value that was not finite (`null`) is NaN.

#ifndef CY_OBSERVE_HISTORY_H
#define CY_OBSERVE_HISTORY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct cy_series {
    double *step;  // owned, [count]
    double *value; // owned, [count]
    int64_t count;
    size_t step_capacity, value_capacity; // elements there is memory for
} cy_series;

// One of each step, except the last, which is of each evaluation.
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
    int64_t unreadable; // lines passed over
} cy_history;

CY_MUST_CHECK cy_status cy_history_open(cy_history *history, const char *path);
void cy_history_close(cy_history *history);

// The spread of a series' finite values at steps after `after`; all NaN where there are none.
typedef struct cy_spread {
    double least, median, most;
} cy_spread;

CY_MUST_CHECK cy_status cy_series_spread(cy_spread *spread, const cy_series *series, double after);

#endif
