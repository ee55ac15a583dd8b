// parallel/pipeline/timeline_gather.h: what a step of a pipeline took, gathered from its ranks.
//
// The timeline has the form of a simulated one, so draw.h draws it and its bubble compares.

#ifndef CY_PARALLEL_PIPELINE_TIMELINE_GATHER_H
#define CY_PARALLEL_PIPELINE_TIMELINE_GATHER_H

#include "parallel/pipeline/executor.h"

// All ranks of the executor's group call it after a step, with the times that cy_executor_run
// filled. zero_s is this rank's clock at an instant that all ranks share, such as the return of a
// barrier; ranks on one machine share the clock itself and give the same number. Stage 0 gets the
// timeline, which it closes; on the others *timeline is zeroed.
CY_MUST_CHECK cy_status cy_timeline_gather(cy_timeline *timeline, const cy_executor *executor,
    cy_queue *queue, const cy_timed_action *times, double zero_s);

#endif
