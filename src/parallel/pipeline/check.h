// parallel/pipeline/check.h: proves a schedule before it runs, and says what it costs.
//
// Proved: every forward and backward of every microbatch and chunk once, and in an order that is
// possible; every transfer that is needed there once, to the right rank, after what makes it and
// before what needs it; sends and receives of a boundary in the same order; no circle of ranks that
// wait for each other, and none either where a send returns only when its receive has come.
//
// A failure is CY_ERR_REQUEST and names the rank and the action. Pure: safe from any thread.

#ifndef CY_PARALLEL_PIPELINE_CHECK_H
#define CY_PARALLEL_PIPELINE_CHECK_H

#include "parallel/pipeline/schedule.h"

#include <stdint.h>

// Ticks: one for a chunk's forward, its input gradient and its weight gradient each, two for a
// whole backward, none for a message.
typedef struct cy_rank_cost {
    int peak_stash;     // chunks' stashes between forward and input gradient, at most
    int peak_kept;      // the part of them that stays until the weight gradient, at most
    int sends;          // messages
    int64_t first_tick; // its first action starts
    int64_t last_tick;  // its last action ends
    int64_t busy_ticks;
} cy_rank_cost;

typedef struct cy_schedule_cost {
    int64_t ticks; // from the first start to the last end, over all ranks
    int64_t span;  // the longest that one rank takes from its first start to its last end
    // The share of idle time. `bubble` is of the span: a rank begins its next step when it is done
    // with this one, so what others still do then costs nothing. `bubble_alone` is of the ticks: a
    // step after which all ranks wait for each other. They differ for ZB-V only.
    double bubble;
    double bubble_alone;
    int peak_stash; // of all ranks, at most
    int peak_kept;
    int64_t messages;
    cy_rank_cost *ranks; // owned, [stages]
} cy_schedule_cost;

// More than that is a failure; 0 is no limit.
typedef struct cy_schedule_limits {
    int peak_stash;
    int peak_kept;
} cy_schedule_limits;

// cost may be NULL, and limits too. *cost is written only on success and closed by the caller.
CY_MUST_CHECK cy_status cy_schedule_check(
    cy_schedule_cost *cost, const cy_schedule *schedule, const cy_schedule_limits *limits);
void cy_schedule_cost_close(cy_schedule_cost *cost);

// The part of it that looks at compute actions alone: once each, in range, in a possible order.
CY_MUST_CHECK cy_status cy_schedule_check_compute(const cy_schedule *schedule);

#endif
