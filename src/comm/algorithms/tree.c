// Logarithmic algorithms (Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", 2005).

#include "comm/algorithms/plan.h"

static int ceil_log2(int size)
{
    int log = 0;
    while (1 << log < size)
        log++;
    return log;
}

// A round with one partner; the partner of lower rank has the first operand on both sides, so that
// both hold the same bits afterwards.
static cy_round with_partner(cy_place place, int partner)
{
    return (cy_round){
        .to = partner,
        .from = partner,
        .arrival = partner < place.rank ? CY_ARRIVE_BEFORE : CY_ARRIVE_AFTER,
    };
}

// The range that a rank still works on after `level` halvings.
static cy_part halved(cy_place place, int64_t count, int levels)
{
    cy_part range = {0, count};
    for (int level = 0, distance = place.size / 2; level < levels; level++, distance /= 2) {
        const bool upper = (place.rank & distance) != 0;
        const int64_t lower_count = range.count / 2;
        range.first += upper ? lower_count : 0;
        range.count = upper ? range.count - lower_count : lower_count;
    }
    return range;
}

static cy_status halving_doubling(cy_plan *plan, cy_place place, int64_t count)
{
    const int levels = ceil_log2(place.size);
    for (int level = 0; level < levels; level++) {
        const int partner = place.rank ^ (place.size / 2 >> level);
        const cy_part keep = halved(place, count, level + 1);
        const cy_part give = halved((cy_place){partner, place.size}, count, level + 1);
        cy_round round = with_partner(place, partner);
        round.send_first = give.first;
        round.send_count = give.count;
        round.recv_first = keep.first;
        round.recv_count = keep.count;
        CY_TRY(cy_plan_add(plan, round));
    }
    for (int level = levels - 1; level >= 0; level--) {
        const int partner = place.rank ^ (place.size / 2 >> level);
        const cy_part have = halved(place, count, level + 1);
        const cy_part lack = halved((cy_place){partner, place.size}, count, level + 1);
        cy_round round = with_partner(place, partner);
        round.send_first = have.first;
        round.send_count = have.count;
        round.recv_first = lack.first;
        round.recv_count = lack.count;
        round.arrival = CY_ARRIVE_STORE;
        CY_TRY(cy_plan_add(plan, round));
    }
    return CY_OK;
}

static cy_round idle(void)
{
    return (cy_round){.to = -1, .from = -1};
}

// Rank 0 collects: in round k the ranks with bit k set, and no lower one, send and are done.
static cy_status binomial_reduce(cy_plan *plan, cy_place place, int64_t count)
{
    for (int distance = 1; distance < place.size; distance *= 2) {
        cy_round round = idle();
        if ((place.rank & (distance - 1)) == 0) {
            if ((place.rank & distance) != 0) {
                round.to = place.rank - distance;
                round.send_count = count;
            } else if (place.rank + distance < place.size) {
                round.from = place.rank + distance;
                round.recv_count = count;
                round.arrival = CY_ARRIVE_AFTER;
            }
        }
        CY_TRY(cy_plan_add(plan, round));
    }
    return CY_OK;
}

cy_status cy_plan_broadcast(cy_plan *plan, cy_place place, int64_t count, int root)
{
    const int me = (place.rank - root + place.size) % place.size; // as if the root were rank 0
    for (int distance = 1 << ceil_log2(place.size) >> 1; distance > 0; distance /= 2) {
        cy_round round = idle();
        if ((me & (distance - 1)) == 0) {
            if ((me & distance) != 0) {
                round.from = (me - distance + root) % place.size;
                round.recv_count = count;
            } else if (me + distance < place.size) {
                round.to = (me + distance + root) % place.size;
                round.send_count = count;
            }
        }
        CY_TRY(cy_plan_add(plan, round));
    }
    return CY_OK;
}

cy_status cy_plan_tree(cy_plan *plan, cy_place place, int64_t count)
{
    if ((place.size & (place.size - 1)) == 0) return halving_doubling(plan, place, count);
    CY_TRY(binomial_reduce(plan, place, count));
    return cy_plan_broadcast(plan, place, count, 0);
}

cy_status cy_plan_doubling(cy_plan *plan, cy_place place, int64_t count)
{
    int core = 1; // the largest power of two of ranks; the others lean on a rank of it
    while (core * 2 <= place.size)
        core *= 2;
    const int extra = place.size - core;
    const bool leans = place.rank >= core;
    const bool carries = place.rank < extra;
    if (extra > 0) {
        cy_round round = idle();
        round.to = leans ? place.rank - core : -1;
        round.send_count = leans ? count : 0;
        round.from = carries ? place.rank + core : -1;
        round.recv_count = carries ? count : 0;
        round.arrival = CY_ARRIVE_AFTER;
        CY_TRY(cy_plan_add(plan, round));
    }
    for (int distance = 1; distance < core; distance *= 2) {
        cy_round round = idle();
        if (!leans) {
            round = with_partner(place, place.rank ^ distance);
            round.send_count = count;
            round.recv_count = count;
        }
        CY_TRY(cy_plan_add(plan, round));
    }
    if (extra == 0) return CY_OK;
    cy_round round = idle();
    round.to = carries ? place.rank + core : -1;
    round.send_count = carries ? count : 0;
    round.from = leans ? place.rank - core : -1;
    round.recv_count = leans ? count : 0;
    return cy_plan_add(plan, round);
}

cy_status cy_plan_barrier(cy_plan *plan, cy_place place)
{
    // In round k a message comes from 2^k ranks to the left, which has heard of 2^k others by then.
    for (int distance = 1; distance < place.size; distance *= 2) {
        CY_TRY(cy_plan_add(plan,
            (cy_round){
                .to = (place.rank + distance) % place.size,
                .from = (place.rank - distance + place.size) % place.size,
            }));
    }
    return CY_OK;
}
