// All forwards, then all backwards: GPipe (Huang et al., arXiv:1811.06965).
//
// The backwards run in the order of the forwards, so that gradients are added up in the order in
// which one rank alone would add them.

#include "parallel/pipeline/build.h"

cy_status cy_schedule_build_afab(cy_schedule *schedule)
{
    for (int rank = 0; rank < schedule->stages; rank++) {
        for (int m = 0; m < schedule->microbatches; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_FORWARD, m, 0));
        }
        for (int m = 0; m < schedule->microbatches; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_BACKWARD, m, 0));
        }
    }
    return CY_OK;
}
