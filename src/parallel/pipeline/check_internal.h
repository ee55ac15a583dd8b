// parallel/pipeline/check_internal.h: the parts of the checker. Private to it.

#ifndef CY_PARALLEL_PIPELINE_CHECK_INTERNAL_H
#define CY_PARALLEL_PIPELINE_CHECK_INTERNAL_H

#include "parallel/pipeline/check.h"

// check_order.c: what can be said of each rank's list alone; with_transfers says whether those are
// part of it.
CY_MUST_CHECK cy_status cy_check_order(const cy_schedule *schedule, bool with_transfers);

// check_transfers.c: sends against receives, and blocking transports. After cy_check_order.
CY_MUST_CHECK cy_status cy_check_transfers(const cy_schedule *schedule);

#endif
