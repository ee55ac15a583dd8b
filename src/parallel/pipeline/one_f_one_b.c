// One forward, one backward: PipeDream-Flush (Narayanan et al., arXiv:2006.09503,
// arXiv:2104.04473).
//
// A rank first runs as many forwards as there are ranks after it, then alternates, then drains: it
// never holds more than stages - rank activations, and waits no longer than GPipe does.

#include "parallel/pipeline/build.h"

cy_status cy_schedule_build_1f1b(cy_schedule *schedule)
{
    const int count = schedule->microbatches;
    for (int rank = 0; rank < schedule->stages; rank++) {
        const int after = schedule->stages - rank - 1;
        const int warmup = after < count ? after : count;
        for (int m = 0; m < warmup; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_FORWARD, m, 0));
        }
        for (int m = warmup; m < count; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_FORWARD, m, 0));
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_BACKWARD, m - warmup, 0));
        }
        for (int m = count - warmup; m < count; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_BACKWARD, m, 0));
        }
    }
    return CY_OK;
}
