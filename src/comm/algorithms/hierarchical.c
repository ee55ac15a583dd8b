// Two levels, for links inside a node that are faster than those between nodes: each node sends
// 2 (K - 1) / K n elements in all, however many ranks it has.
//
// Nodes need not be alike and their ranks need not be neighbours. As many ranks of each node carry
// data between nodes as the smallest node has; the others hand theirs to a carrier of their node
// first and get the result from it.

#include "base/memory.h"
#include "base/status.h"
#include "comm/algorithms/schedule.h"

// The ranks that one rank deals with.
typedef struct neighbours {
    int *mine;   // [mine_count]: members of its node, ascending
    int *across; // [node_count]: of each node the one with the same place in it; carriers only
    int mine_count;
    int node_count;
    int carriers; // of each node
    int place;    // of the rank in its node
    int node;     // its own
} neighbours;

// seen [2 size], zeros: how many ranks of each node there are up to some rank.
static void count_nodes(neighbours *at, int *seen, const int *nodes, cy_coll_rank place)
{
    at->node = nodes[place.rank];
    for (int r = 0; r < place.size; r++) {
        CY_ASSERT(0 <= nodes[r] && nodes[r] <= at->node_count); // by their first ranks
        if (nodes[r] == at->node_count) at->node_count++;
        if (r == place.rank) at->place = seen[nodes[r]];
        if (nodes[r] == at->node) at->mine[at->mine_count++] = r;
        seen[nodes[r]]++;
    }
    at->carriers = at->mine_count;
    for (int k = 0; k < at->node_count; k++)
        at->carriers = seen[k] < at->carriers ? seen[k] : at->carriers;
    seen += place.size;
    for (int r = 0; r < place.size; r++) {
        if (seen[nodes[r]]++ == at->place) at->across[nodes[r]] = r;
    }
}

// Appends rounds made for a smaller ring, whose rank i is ranks[i] and element 0 is `offset`.
static cy_status append(
    cy_coll_schedule *plan, const cy_round *rounds, int count, const int *ranks, int64_t offset)
{
    for (int i = 0; i < count; i++) {
        cy_round round = rounds[i];
        round.to = round.to < 0 ? -1 : ranks[round.to];
        round.from = round.from < 0 ? -1 : ranks[round.from];
        round.send_first += offset;
        round.recv_first += offset;
        CY_TRY(cy_coll_schedule_add(plan, round));
    }
    return CY_OK;
}

// Between a carrier and those of its node that lean on it: everything to it, or back.
static cy_status lean(cy_coll_schedule *plan, const neighbours *at, int64_t count, bool back)
{
    for (int i = at->carriers; i < at->mine_count; i++) {
        const int carrier = i % at->carriers;
        if (at->place != i && at->place != carrier) continue;
        const bool sends = (at->place == i) != back;
        const int other = at->mine[at->place == i ? carrier : i];
        CY_TRY(cy_coll_schedule_add(plan,
            (cy_round){
                .to = sends ? other : -1,
                .from = sends ? -1 : other,
                .send_count = sends ? count : 0,
                .recv_count = sends ? 0 : count,
                .recv_action = back ? CY_RECV_STORE : CY_RECV_REDUCE_AFTER,
            }));
    }
    return CY_OK;
}

// Parts are added inside the node, then among the carriers of the same part, then gathered inside.
static cy_status carry(cy_coll_schedule *plan, const neighbours *at, int64_t count)
{
    const cy_coll_rank inside = {at->place, at->carriers};
    const cy_coll_rank across = {at->node, at->node_count};
    const cy_coll_chunk own = cy_coll_chunk_of(count, at->carriers, at->place);
    const int half = at->carriers - 1; // the rounds of a ring that add; as many gather
    cy_coll_schedule ring = {0};
    cy_coll_schedule between = {0};
    cy_status status = cy_coll_schedule_ring(&ring, inside, count);
    if (status == CY_OK) status = cy_coll_schedule_ring(&between, across, own.count);
    if (status == CY_OK && half > 0) status = append(plan, ring.rounds, half, at->mine, 0);
    if (status == CY_OK && between.count > 0) {
        status = append(plan, between.rounds, between.count, at->across, own.first);
    }
    if (status == CY_OK && half > 0) status = append(plan, ring.rounds + half, half, at->mine, 0);
    cy_coll_schedule_free(&ring);
    cy_coll_schedule_free(&between);
    return status;
}

cy_status cy_coll_schedule_hierarchical(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count, const int *nodes)
{
    CY_ASSERT(place.size > 0 && 0 <= place.rank && place.rank < place.size);
    int *numbers;
    CY_TRY(CY_ALLOC(&numbers, 4 * (size_t)place.size));
    neighbours at = {.mine = numbers, .across = numbers + place.size};
    count_nodes(&at, numbers + 2 * (size_t)place.size, nodes, place);
    cy_status status = lean(plan, &at, count, false);
    if (status == CY_OK && at.place < at.carriers) status = carry(plan, &at, count);
    if (status == CY_OK) status = lean(plan, &at, count, true);
    cy_memory_free(numbers);
    return status;
}
