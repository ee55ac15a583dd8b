// The schedules of collectives, but for the hierarchical one: ring, trees, server and exchange.

#include "comm/algorithms/schedule.h"

#include "base/memory.h"

cy_coll_chunk cy_coll_chunk_of(int64_t total, int parts, int part)
{
    const int64_t longer = total % parts; // parts that have one element more
    const int64_t before = part < longer ? part : longer;
    return (cy_coll_chunk){
        .first = total / parts * part + before,
        .count = total / parts + (part < longer ? 1 : 0),
    };
}

void cy_coll_schedule_free(cy_coll_schedule *plan)
{
    cy_memory_free(plan->rounds);
    *plan = (cy_coll_schedule){0};
}

cy_status cy_coll_schedule_add(cy_coll_schedule *plan, cy_round round)
{
    void *block = plan->rounds;
    CY_TRY(cy_memory_grow(&block, &plan->capacity, (size_t)plan->count + 1, sizeof(cy_round)));
    plan->rounds = block;
    plan->rounds[plan->count++] = round;
    return CY_OK;
}

// ---- ring
//
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009: every rank talks to its two
// neighbours only, and every link carries the same bytes in every round.

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

// ---- trees
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// 2005.

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

static cy_status add_exchange(
    cy_coll_schedule *plan, cy_round round, cy_coll_chunk sent, cy_coll_chunk received)
{
    round.send_first = sent.first;
    round.send_count = sent.count;
    round.recv_first = received.first;
    round.recv_count = received.count;
    return cy_coll_schedule_add(plan, round);
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
        CY_TRY(add_exchange(plan, with_partner(place, rank_of(o, partner)),
            halved(partner, count, level + 1), halved(me, count, level + 1)));
    }
    for (int level = levels - 1; level >= 0; level--) {
        const int partner = me ^ 1 << level;
        cy_round round = with_partner(place, rank_of(o, partner));
        round.recv_action = CY_RECV_STORE;
        CY_TRY(add_exchange(
            plan, round, halved(me, count, level + 1), halved(partner, count, level + 1)));
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

// ---- server
//
// The parameter server, the slow baseline: all bytes pass through rank 0, 2 (P - 1) n of them,
// where a ring needs 2 (P - 1) / P n on every rank.

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

// ---- exchange
//
// All to all: in round k with the rank k to the right and the one k to the left.

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
