// parallel/pipeline/build.h: how the generators of schedules put one together.
//
// Private to this folder. A generator appends the compute actions of each rank to an empty schedule
// (cy_schedule_init); cy_schedule_add_transfers then puts the transfers between them. On a failure
// the caller closes the schedule.

#ifndef CY_PARALLEL_PIPELINE_BUILD_H
#define CY_PARALLEL_PIPELINE_BUILD_H

#include "parallel/pipeline/schedule.h"

// An empty schedule with `stages` lists. Everything in *schedule is overwritten.
CY_MUST_CHECK cy_status cy_schedule_init(
    cy_schedule *schedule, cy_pipeline_engine engine, int stages, int microbatches, int chunks);

CY_MUST_CHECK cy_status cy_schedule_add(cy_schedule *schedule, int rank, cy_action action);

// A compute action.
CY_MUST_CHECK cy_status cy_schedule_add_compute(
    cy_schedule *schedule, int rank, cy_action_kind kind, int microbatch, int chunk);

// The generators: one a file.
CY_MUST_CHECK cy_status cy_schedule_build_afab(cy_schedule *schedule);
CY_MUST_CHECK cy_status cy_schedule_build_1f1b(cy_schedule *schedule);
CY_MUST_CHECK cy_status cy_schedule_build_interleaved(cy_schedule *schedule);
CY_MUST_CHECK cy_status cy_schedule_build_zero_bubble(cy_schedule *schedule);

// Reads a file of cells; *transfers says whether the file has transfers of its own. The schedule
// has its stages, microbatches and chunks set by the caller.
CY_MUST_CHECK cy_status cy_schedule_read_csv(
    cy_schedule *schedule, bool *transfers, const char *path);

// Adds the sends and receives that the compute actions imply, in an order that cannot deadlock even
// where a send returns only when its receive has come. Fails with the checker's words where the
// compute actions themselves wait for each other.
CY_MUST_CHECK cy_status cy_schedule_add_transfers(cy_schedule *schedule);

#endif
