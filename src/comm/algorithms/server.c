// The parameter server: the slow baseline. All bytes pass through rank 0, 2 (P - 1) n of them,
// where a ring needs 2 (P - 1) / P n on every rank.

#include "comm/algorithms/plan.h"

cy_status cy_plan_server(cy_plan *plan, cy_place place, int64_t count)
{
    if (place.rank > 0) {
        CY_TRY(cy_plan_add(plan, (cy_round){.to = 0, .from = -1, .send_count = count}));
        return cy_plan_add(plan, (cy_round){.to = -1, .from = 0, .recv_count = count});
    }
    for (int worker = 1; worker < place.size; worker++) {
        CY_TRY(cy_plan_add(plan,
            (cy_round){.to = -1, .from = worker, .recv_count = count, .arrival = CY_ARRIVE_AFTER}));
    }
    for (int worker = 1; worker < place.size; worker++) {
        CY_TRY(cy_plan_add(plan, (cy_round){.to = worker, .from = -1, .send_count = count}));
    }
    return CY_OK;
}
