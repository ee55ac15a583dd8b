// parallel/pipeline/timeline.h: when each action of a schedule starts and ends, simulated before
// the run, and drawn.
//
// The simulation takes the duration of each action and the cost of a message. A rank posts a send
// and goes on; messages of one pair of ranks follow each other; a compute action waits for its
// message. A measured timeline has the same form (executor.h). Pure: safe from any thread.

#ifndef CY_PARALLEL_PIPELINE_TIMELINE_H
#define CY_PARALLEL_PIPELINE_TIMELINE_H

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

// Fills end, span, busy and bubbles of a measured timeline from its items.
void cy_timeline_add_up(cy_timeline *timeline);

void cy_timeline_close(cy_timeline *timeline);

// ---- drawing: simulated and measured timelines alike
//
// The text is a table of ticks for the terminal; the picture is a self-contained SVG that can be
// read on a light and on a dark page. Both are appended to a text that the caller owns.

// One line a rank, one column a tick of `tick` seconds: what the rank does then. An action that
// goes on in the next tick is followed by '-', an idle tick is '.'.
CY_MUST_CHECK cy_status cy_timeline_draw_text(
    cy_text *text, const cy_timeline *timeline, double tick);

// unit names what the axis counts, such as "ticks"; scale is how many of them a second is.
typedef struct cy_drawing {
    const char *title; // borrowed
    const char *unit;  // borrowed
    double scale;
} cy_drawing;

CY_MUST_CHECK cy_status cy_timeline_draw_svg(
    cy_text *text, const cy_timeline *timeline, const cy_drawing *drawing);

#endif
