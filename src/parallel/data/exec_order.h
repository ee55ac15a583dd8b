// parallel/data/exec_order.h: in which order units are used, learned from a dry run, so that the
// next one can be gathered ahead. A step has one order, what is run between steps (evaluation)
// another, which repeats. Every rank of a group has the same.

#ifndef CY_PARALLEL_DATA_EXEC_ORDER_H
#define CY_PARALLEL_DATA_EXEC_ORDER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

// Start from a zeroed struct; free with cy_exec_order_free.
typedef struct cy_exec_order {
    int *units; // owned, [count]
    size_t count, capacity;
    size_t at; // uses behind
    bool repeats;
} cy_exec_order;

void cy_exec_order_free(cy_exec_order *order);
CY_MUST_CHECK cy_status cy_exec_order_append(cy_exec_order *order, int unit);
void cy_exec_order_rewind(cy_exec_order *order);
void cy_exec_order_clear(cy_exec_order *order);

// A unit is used now. When that is not what was learned, nothing more is known until the rewind.
void cy_exec_order_use(cy_exec_order *order, int unit);

// The unit of the use `ahead` uses after the present one, from 0; -1 when it is not known.
int cy_exec_order_next(const cy_exec_order *order, int ahead);

#endif
