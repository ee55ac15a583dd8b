// Logarithmic algorithms (Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", 2005).

#include "comm/algorithms/schedule.h"

static int ceil_log2(int size)
{
    int log = 0;
    while (1 << log < size)
        log++;
    return log;
}

// The order in which sums of P operands are added (comm/reduce.h): the first 2 e ranks in pairs, e
// what P has more than a power of two; then pairs of what there is, pairs of these, and so on. The
// algorithms here add in this order, as the backends' own sums do.
typedef struct order {
    int core;  // the largest power of two of ranks
    int extra; // the others: rank 2 i + 1 leans on rank 2 i
} order;

static order order_of(cy_coll_rank place)
{
    order o = {.core = 1};
    while (o.core * 2 <= place.size)
        o.core *= 2;
    o.extra = place.size - o.core;
    return o;
}

static bool leans(order o, int rank)
{
    return rank < 2 * o.extra && rank % 2 == 1;
}

// Among the core's: of a rank that does not lean; and back.
static int place_of(order o, int rank)
{
    return rank < 2 * o.extra ? rank / 2 : rank - o.extra;
}

static int rank_of(order o, int place)
{
    return place < o.extra ? 2 * place : place + o.extra;
}

static cy_round idle(void)
{
    return (cy_round){.to = -1, .from = -1};
}

// Everything from the ranks that lean to those that they lean on, or back.
static cy_status lean(cy_coll_schedule *plan, cy_coll_rank place, order o, int64_t count, bool back)
{
    if (o.extra == 0) return CY_OK;
    cy_round round = idle();
    if (place.rank < 2 * o.extra) {
        const bool sends = leans(o, place.rank) != back;
        const int partner = place.rank ^ 1;
        round.to = sends ? partner : -1;
        round.send_count = sends ? count : 0;
        round.from = sends ? -1 : partner;
        round.recv_count = sends ? 0 : count;
        round.recv_action = back ? CY_RECV_STORE : CY_RECV_REDUCE_AFTER;
    }
    return cy_coll_schedule_add(plan, round);
}

// A round with one partner; the partner of lower rank has the first operand on both sides, so that
// both hold the same bits afterwards.
static cy_round with_partner(cy_coll_rank place, int partner)
{
    return (cy_round){
        .to = partner,
        .from = partner,
        .recv_action = partner < place.rank ? CY_RECV_REDUCE_BEFORE : CY_RECV_REDUCE_AFTER,
    };
}

// The range that a place still works on after so many halvings, with its neighbour first.
static cy_coll_chunk halved(int place, int64_t count, int levels)
{
    cy_coll_chunk range = {0, count};
    for (int level = 0; level < levels; level++) {
        const bool upper = (place >> level & 1) != 0;
        const int64_t lower_count = range.count / 2;
        range.first += upper ? lower_count : 0;
        range.count = upper ? range.count - lower_count : lower_count;
    }
    return range;
}

// Halves to the neighbour, quarters to the one behind it, ... and the sums the same way back. The
// farther the partner the fewer the bytes: links between nodes of neighbours carry little.
static cy_status halving_doubling(
    cy_coll_schedule *plan, cy_coll_rank place, order o, int64_t count)
{
    const int levels = ceil_log2(o.core);
    const int me = place_of(o, place.rank);
    for (int level = 0; level < levels; level++) {
        const int partner = me ^ 1 << level;
        const cy_coll_chunk keep = halved(me, count, level + 1);
        const cy_coll_chunk give = halved(partner, count, level + 1);
        cy_round round = with_partner(place, rank_of(o, partner));
        round.send_first = give.first;
        round.send_count = give.count;
        round.recv_first = keep.first;
        round.recv_count = keep.count;
        CY_TRY(cy_coll_schedule_add(plan, round));
    }
    for (int level = levels - 1; level >= 0; level--) {
        const int partner = me ^ 1 << level;
        const cy_coll_chunk have = halved(me, count, level + 1);
        const cy_coll_chunk lack = halved(partner, count, level + 1);
        cy_round round = with_partner(place, rank_of(o, partner));
        round.send_first = have.first;
        round.send_count = have.count;
        round.recv_first = lack.first;
        round.recv_count = lack.count;
        round.recv_action = CY_RECV_STORE;
        CY_TRY(cy_coll_schedule_add(plan, round));
    }
    return CY_OK;
}

cy_status cy_coll_schedule_broadcast(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count, int root)
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
        CY_TRY(cy_coll_schedule_add(plan, round));
    }
    return CY_OK;
}

cy_status cy_coll_schedule_tree(cy_coll_schedule *plan, cy_coll_rank place, int64_t count)
{
    const order o = order_of(place);
    CY_TRY(lean(plan, place, o, count, false));
    if (!leans(o, place.rank)) CY_TRY(halving_doubling(plan, place, o, count));
    return lean(plan, place, o, count, true);
}

cy_status cy_coll_schedule_doubling(cy_coll_schedule *plan, cy_coll_rank place, int64_t count)
{
    const order o = order_of(place);
    CY_TRY(lean(plan, place, o, count, false));
    for (int distance = 1; distance < o.core && !leans(o, place.rank); distance *= 2) {
        cy_round round = with_partner(place, rank_of(o, place_of(o, place.rank) ^ distance));
        round.send_count = count;
        round.recv_count = count;
        CY_TRY(cy_coll_schedule_add(plan, round));
    }
    return lean(plan, place, o, count, true);
}

cy_status cy_coll_schedule_barrier(cy_coll_schedule *plan, cy_coll_rank place)
{
    // In round k a message comes from 2^k ranks to the left, which has heard of 2^k others by then.
    for (int distance = 1; distance < place.size; distance *= 2) {
        CY_TRY(cy_coll_schedule_add(plan,
            (cy_round){
                .to = (place.rank + distance) % place.size,
                .from = (place.rank - distance + place.size) % place.size,
            }));
    }
    return CY_OK;
}
