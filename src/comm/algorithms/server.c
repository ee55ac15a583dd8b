// The parameter server: the slow baseline. All bytes pass through rank 0, 2 (P - 1) n of them,
// where a ring needs 2 (P - 1) / P n on every rank.

#include "comm/algorithms/schedule.h"

cy_status cy_coll_schedule_server(cy_coll_schedule *plan, cy_coll_rank place, int64_t count)
{
    if (place.rank > 0) {
        CY_TRY(cy_coll_schedule_add(plan, (cy_round){.to = 0, .from = -1, .send_count = count}));
        return cy_coll_schedule_add(plan, (cy_round){.to = -1, .from = 0, .recv_count = count});
    }
    for (int worker = 1; worker < place.size; worker++) {
        CY_TRY(cy_coll_schedule_add(plan,
            (cy_round){.to = -1,
                .from = worker,
                .recv_count = count,
                .recv_action = CY_RECV_REDUCE_AFTER}));
    }
    for (int worker = 1; worker < place.size; worker++) {
        CY_TRY(
            cy_coll_schedule_add(plan, (cy_round){.to = worker, .from = -1, .send_count = count}));
    }
    return CY_OK;
}
