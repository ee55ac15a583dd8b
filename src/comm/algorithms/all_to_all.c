// Everybody to everybody: in round k with the rank k to the right and the one k to the left.

#include "comm/algorithms/schedule.h"

static int64_t sum_before(const int64_t *counts, int end)
{
    int64_t sum = 0;
    for (int i = 0; i < end; i++)
        sum += counts[i];
    return sum;
}

cy_status cy_coll_schedule_exchange(
    cy_coll_schedule *plan, cy_coll_rank place, const int64_t *in_counts, const int64_t *out_counts)
{
    for (int k = 1; k < place.size; k++) {
        const int to = (place.rank + k) % place.size;
        const int from = (place.rank - k + place.size) % place.size;
        CY_TRY(cy_coll_schedule_add(plan,
            (cy_round){
                .to = to,
                .from = from,
                .send_first = sum_before(in_counts, to),
                .send_count = in_counts[to],
                .recv_first = sum_before(out_counts, from),
                .recv_count = out_counts[from],
            }));
    }
    return CY_OK;
}
