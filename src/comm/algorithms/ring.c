// The ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009): every rank talks
// to its two neighbours only, and every link carries the same bytes in every round.

#include "comm/algorithms/schedule.h"

static int wrap(int rank, int size)
{
    return (rank % size + size) % size;
}

// One round: part `send` goes to the right, part `recv` comes from the left.
static cy_status add_round(cy_coll_schedule *plan, cy_coll_rank place, cy_coll_chunk send,
    cy_coll_chunk recv, cy_recv_action recv_action)
{
    return cy_coll_schedule_add(plan,
        (cy_round){
            .to = wrap(place.rank + 1, place.size),
            .from = wrap(place.rank - 1, place.size),
            .send_first = send.first,
            .send_count = send.count,
            .recv_first = recv.first,
            .recv_count = recv.count,
            .recv_action = recv_action,
        });
}

// After P - 1 rounds rank r holds the whole sum of part r. A part's sum begins at the rank to the
// right of its owner and travels once around: the order is fixed.
static cy_status scatter(cy_coll_schedule *plan, cy_coll_rank place, int64_t count)
{
    plan->streams = true;
    for (int round = 0; round < place.size - 1; round++) {
        const int send = wrap(place.rank - 1 - round, place.size);
        const int recv = wrap(place.rank - 2 - round, place.size);
        CY_TRY(add_round(plan, place, cy_coll_chunk_of(count, place.size, send),
            cy_coll_chunk_of(count, place.size, recv), CY_RECV_REDUCE_BEFORE));
    }
    return CY_OK;
}

static cy_status gather(cy_coll_schedule *plan, cy_coll_rank place, int64_t count)
{
    plan->streams = true;
    for (int round = 0; round < place.size - 1; round++) {
        const int send = wrap(place.rank - round, place.size);
        const int recv = wrap(place.rank - 1 - round, place.size);
        CY_TRY(add_round(plan, place, cy_coll_chunk_of(count, place.size, send),
            cy_coll_chunk_of(count, place.size, recv), CY_RECV_STORE));
    }
    return CY_OK;
}

cy_status cy_coll_schedule_ring(cy_coll_schedule *plan, cy_coll_rank place, int64_t count)
{
    CY_TRY(scatter(plan, place, count));
    return gather(plan, place, count);
}

cy_status cy_coll_schedule_ring_reduce_scatter(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t part)
{
    return scatter(plan, place, part * place.size);
}

cy_status cy_coll_schedule_ring_all_gather(cy_coll_schedule *plan, cy_coll_rank place, int64_t part)
{
    return gather(plan, place, part * place.size);
}
