// observe/history.h: the losses of a run, read back from its metrics.jsonl.
//
// Lines that are not whole JSON objects are passed over and counted: a run that is being written
// may end in the middle of one. The arrays are owned by the history, in the order of the file,
// which is that of the steps; a value that was not finite (`null`) is NaN.

#ifndef CY_OBSERVE_HISTORY_H
#define CY_OBSERVE_HISTORY_H

#include "base/status.h"

#include <stdint.h>

typedef struct cy_series {
    double *step;  // owned, [count]
    double *value; // owned, [count]
    int64_t count;
} cy_series;

typedef struct cy_history {
    cy_series loss;     // of each step
    cy_series val_loss; // of each evaluation
    int64_t unreadable; // lines passed over
} cy_history;

CY_MUST_CHECK cy_status cy_history_open(cy_history *history, const char *path);
void cy_history_close(cy_history *history);

#endif
