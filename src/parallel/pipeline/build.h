// parallel/pipeline/build.h: the parts that make a schedule: generators, the CSV reader, transfers
// and ticks. Private to this folder.
//
// A generator appends the compute actions of each rank to an empty schedule
// (cy_schedule_init); cy_schedule_add_transfers then inserts the transfers. On a failure the caller
// closes the schedule.

#ifndef CY_PARALLEL_PIPELINE_BUILD_H
#define CY_PARALLEL_PIPELINE_BUILD_H

#include "parallel/pipeline/schedule.h"

#include <stdint.h>

// An empty schedule with `stages` lists. Everything in *schedule is overwritten.
CY_MUST_CHECK cy_status cy_schedule_init(
    cy_schedule *schedule, cy_pipeline_engine engine, int stages, int microbatches, int chunks);

CY_MUST_CHECK cy_status cy_schedule_add(cy_schedule *schedule, int rank, cy_action action);

// A compute action.
CY_MUST_CHECK cy_status cy_schedule_add_compute(
    cy_schedule *schedule, int rank, cy_action_kind kind, int microbatch, int chunk);

// The generators.
CY_MUST_CHECK cy_status cy_schedule_build_afab(cy_schedule *schedule);
CY_MUST_CHECK cy_status cy_schedule_build_1f1b(cy_schedule *schedule);
CY_MUST_CHECK cy_status cy_schedule_build_interleaved(cy_schedule *schedule);
CY_MUST_CHECK cy_status cy_schedule_build_zero_bubble(cy_schedule *schedule);

// Reads a file of cells; *transfers says whether the file has transfers of its own. The schedule
// has its stages, microbatches and chunks set by the caller.
CY_MUST_CHECK cy_status cy_schedule_read_csv(
    cy_schedule *schedule, bool *transfers, const char *path);

// Adds the sends and receives that the compute actions imply, in an order that cannot deadlock even
// where a send blocks until its receive. Fails with the checker's message where the compute actions
// themselves wait for each other.
CY_MUST_CHECK cy_status cy_schedule_add_transfers(cy_schedule *schedule);

// ---- ticks: when the compute actions of a schedule end
//
// A forward, an input gradient and a weight gradient take one tick each, a whole backward takes
// two, and messages take none: transfers in the lists are skipped.

typedef struct cy_ticks {
    int64_t *end;  // owned: of action i of rank r at [first[r] + i]; of the rank's clock where it
                   // is no compute action
    size_t *first; // owned, [stages]
    int64_t ticks; // at which the last one ends
} cy_ticks;

// Fails where ranks wait for each other in a cycle. Every action must be in range, and those of a
// rank in an order that is possible for it alone.
CY_MUST_CHECK cy_status cy_ticks_run(cy_ticks *flow, const cy_schedule *schedule);
void cy_ticks_close(cy_ticks *flow);

// Ticks of an action: 0 where it is not compute.
int64_t cy_action_ticks(cy_action_kind kind);

#endif
