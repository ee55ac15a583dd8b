// kernel/call.h: the one indirect call that every operator ends in. Included by kernel/*.c only.

#ifndef CY_KERNEL_CALL_H
#define CY_KERNEL_CALL_H

#include "kernel/cost.h"

static inline void cy_call_finish(cy_queue *queue, const char *name, int64_t start_ns, cy_cost cost)
{
    if (queue->dry) {
        queue->planned = cy_cost_sum(queue->planned, cost);
        return;
    }
    cy_trace_add(queue->trace, name, CY_SPAN_COMPUTE, start_ns, cost, 0);
}

// Calls the operator of the table. `cost` is evaluated only where somebody counts.
#define CY_CALL(queue, operator, cost, ...)                                                        \
    do {                                                                                           \
        const int64_t call_start_ns = cy_trace_start((queue)->trace);                              \
        (queue)->kernels->operator((queue), __VA_ARGS__);                                          \
        if ((queue)->dry || (queue)->trace != NULL) {                                              \
            cy_call_finish((queue), #operator, call_start_ns, (cost));                             \
        }                                                                                          \
    } while (0)

#endif
