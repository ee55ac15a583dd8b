// parallel/pipeline/ticks.h: when the compute actions of a schedule end, in unit ticks.
//
// Private to this folder. A forward, an input gradient and a weight gradient take one tick each, a
// whole backward takes two, and messages take none: transfers in the lists are passed over. The
// flow owns its table.

#ifndef CY_PARALLEL_PIPELINE_TICKS_H
#define CY_PARALLEL_PIPELINE_TICKS_H

#include "parallel/pipeline/schedule.h"

#include <stdint.h>

typedef struct cy_ticks {
    int64_t *end;  // owned: of action i of rank r at [first[r] + i]; of the rank's clock where it
                   // is no compute action
    size_t *first; // owned, [stages]
    int64_t ticks; // at which the last one ends
} cy_ticks;

// Fails where ranks wait for each other in a circle. Every action must be in range, and those of a
// rank in an order that is possible for it alone.
CY_MUST_CHECK cy_status cy_ticks_run(cy_ticks *flow, const cy_schedule *schedule);
void cy_ticks_close(cy_ticks *flow);

// Ticks of an action: 0 where it is not compute.
int64_t cy_action_ticks(cy_action_kind kind);

#endif
