// parallel/pipeline/flow.h: when the compute actions of a schedule end, in unit ticks.
//
// Private to this folder. A forward, an input gradient and a weight gradient take one tick each, a
// whole backward takes two, and messages take none: transfers in the lists are passed over. The
// flow owns its table.

#ifndef CY_PARALLEL_PIPELINE_FLOW_H
#define CY_PARALLEL_PIPELINE_FLOW_H

#include "parallel/pipeline/schedule.h"

#include <stdint.h>

typedef struct cy_flow {
    int64_t *end;  // owned: of action i of rank r at [first[r] + i]; of the rank's clock where it
                   // is no compute action
    size_t *first; // owned, [stages]
    int64_t ticks; // at which the last one ends
} cy_flow;

// Fails where ranks wait for each other in a circle. Every action must be in range, and those of a
// rank in an order that is possible for it alone.
CY_MUST_CHECK cy_status cy_flow_run(cy_flow *flow, const cy_schedule *schedule);
void cy_flow_close(cy_flow *flow);

// Ticks of an action: 0 where it is not compute.
int64_t cy_flow_ticks(cy_action_kind kind);

#endif
