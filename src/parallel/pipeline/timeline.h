// parallel/pipeline/simulate.h: a schedule in time, before it runs.
//
// Given how long each action takes and what a message costs, says when each starts and ends. Sends
// leave when the rank comes to them and do not hold it up; messages of one pair of ranks go one
// after another; a compute action waits for its message. The timeline that comes out is what
// draw.h draws; a measured one has the same form. Pure: safe from any thread.

#ifndef CY_PARALLEL_PIPELINE_SIMULATE_H
#define CY_PARALLEL_PIPELINE_SIMULATE_H

#include "parallel/pipeline/schedule.h"

// Seconds of one microbatch through one chunk. Transfers: latency, and the time that a message
// keeps its link busy.
typedef struct cy_durations {
    double forward;
    double backward_input;
    double backward_weight; // a whole backward takes both
    double latency;
    double message;      // bytes / bandwidth
    const double *scale; // borrowed, [segments]: how much slower each is; NULL: all the same
} cy_durations;

typedef struct cy_timed_action {
    cy_action action;
    int rank;
    bool critical; // lies on the path that sets the end: faster here is faster at all
    double start;  // seconds since the first start of all
    double end;
} cy_timed_action;

typedef struct cy_timeline {
    cy_timed_action *items; // owned, [count]: of rank 0 in order, then of rank 1, ...
    size_t count;
    int stages;
    int microbatches;
    int chunks;
    double end;          // of the last action
    double span;         // the longest that one rank takes from its first start to its last end
    double busy;         // of all ranks' compute together
    double bubble;       // the share of the span that ranks idle, on average
    double bubble_alone; // the same of `end`
} cy_timeline;

// The schedule must have passed the checker. *timeline is closed by the caller.
CY_MUST_CHECK cy_status cy_schedule_simulate(
    cy_timeline *timeline, const cy_schedule *schedule, const cy_durations *durations);

// Fills end, span, busy and bubbles from the items: for measured ones.
void cy_timeline_add_up(cy_timeline *timeline);

void cy_timeline_close(cy_timeline *timeline);

#endif
