// Two levels, for links inside a node that are faster than those between nodes: each node sends
// 2 (K - 1) / K n elements in all, however many ranks it has.

#include "base/assert.h"
#include "comm/algorithms/plan.h"

// Appends a plan made for a smaller ring: its rank i is `first + i * stride`, its element 0 is
// `offset`.
static cy_status append(cy_plan *plan, const cy_plan *inner, int first, int stride, int64_t offset)
{
    for (int i = 0; i < inner->count; i++) {
        cy_round round = inner->rounds[i];
        round.to = round.to < 0 ? -1 : first + round.to * stride;
        round.from = round.from < 0 ? -1 : first + round.from * stride;
        round.send_first += offset;
        round.recv_first += offset;
        CY_TRY(cy_plan_add(plan, round));
    }
    return CY_OK;
}

cy_status cy_plan_hierarchical(cy_plan *plan, cy_place place, int64_t count, int node_ranks)
{
    CY_ASSERT(node_ranks > 0 && place.size % node_ranks == 0);
    const int nodes = place.size / node_ranks;
    const int node = place.rank / node_ranks;
    const int local = place.rank % node_ranks;
    const cy_place inside = {local, node_ranks};
    const cy_place across = {node, nodes};
    const cy_part own = cy_part_of(count, node_ranks, local);

    cy_plan ring = {0}; // the first node_ranks - 1 rounds of it add, the others gather
    cy_plan between = {0};
    cy_status status = cy_plan_ring(&ring, inside, count);
    if (status == CY_OK) status = cy_plan_ring(&between, across, own.count);
    const int half = node_ranks - 1;
    cy_plan part = ring;
    part.count = half;
    if (status == CY_OK) status = append(plan, &part, node * node_ranks, 1, 0);
    if (status == CY_OK) status = append(plan, &between, local, node_ranks, own.first);
    part.rounds = half > 0 ? ring.rounds + half : ring.rounds;
    if (status == CY_OK) status = append(plan, &part, node * node_ranks, 1, 0);
    cy_plan_free(&ring);
    cy_plan_free(&between);
    return status;
}
