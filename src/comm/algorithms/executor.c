#include "comm/algorithms/executor.h"

#include "base/assert.h"
#include "base/memory.h"
#include "comm/reduce.h"

#include <string.h>

static cy_status take(char **bytes, size_t *capacity, size_t wanted)
{
    void *block = *bytes;
    if (wanted == 0) wanted = 1;
    if (block != NULL && *capacity >= wanted) return CY_OK;
    CY_TRY(cy_memory_grow(&block, capacity, wanted, 1));
    *bytes = block;
    return CY_OK;
}

// ---- plans

static cy_status plan_all_reduce(
    algorithm_group *group, algorithm_transfer *record, cy_coll_rank place)
{
    const cy_operation *o = &record->operation;
    const int64_t count = cy_view_count(o->in);
    switch (cy_algorithm_choose(&group->options.table, cy_view_bytes(o->in))) {
    case CY_ALGORITHM_NATIVE: // a group of messages has none
    case CY_ALGORITHM_RING:
        return cy_coll_schedule_ring(&record->plan, place, count);
    case CY_ALGORITHM_TREE:
        return cy_coll_schedule_tree(&record->plan, place, count);
    case CY_ALGORITHM_DOUBLING:
        return cy_coll_schedule_doubling(&record->plan, place, count);
    case CY_ALGORITHM_HIERARCHICAL:
        if (group->base.nodes == NULL) return cy_coll_schedule_ring(&record->plan, place, count);
        return cy_coll_schedule_hierarchical(&record->plan, place, count, group->base.nodes);
    case CY_ALGORITHM_SERVER:
        return cy_coll_schedule_server(&record->plan, place, count);
    }
    return CY_OK;
}

// Copies the own block and plans the rest; counts in elements.
static cy_status plan_all_to_all(algorithm_transfer *record, cy_coll_rank place)
{
    const cy_operation *o = &record->operation;
    const bool uneven = o->kind == CY_OP_ALL_TO_ALLV;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 2 * (size_t)place.size, sizeof(int64_t)));
    int64_t *in_counts = block;
    int64_t *out_counts = in_counts + place.size;
    int64_t in_own = 0;
    int64_t out_own = 0;
    for (int m = 0; m < place.size; m++) {
        const int64_t equal = cy_view_count(o->in) / place.size;
        in_counts[m] = uneven ? o->in_rows[m] * o->in.cols : equal;
        out_counts[m] = uneven ? o->out_rows[m] * o->in.cols : equal;
        if (m < place.rank) in_own += in_counts[m];
        if (m < place.rank) out_own += out_counts[m];
    }
    const size_t width = cy_dtype_size(o->in.dtype);
    const size_t own_bytes = (size_t)in_counts[place.rank] * width;
    if (own_bytes > 0) {
        memcpy((char *)o->out.data + (size_t)out_own * width,
            (const char *)o->in.data + (size_t)in_own * width, own_bytes);
    }
    const cy_status status = cy_coll_schedule_exchange(&record->plan, place, in_counts, out_counts);
    cy_memory_free(block);
    return status;
}

// Partial results have a place of their own where the data must not change before the end, or are
// of a wider dtype.
static cy_status prepare_reduction(algorithm_transfer *record)
{
    const cy_operation *o = &record->operation;
    record->dtype = cy_reduce_partial_dtype(o->in.dtype);
    const bool in_place = o->kind == CY_OP_ALL_REDUCE && record->dtype == o->in.dtype;
    const int64_t count = cy_view_count(o->in);
    const size_t bytes = (size_t)count * cy_dtype_size(record->dtype);
    record->target = o->out.data;
    if (!in_place) {
        CY_TRY(take(&record->work, &record->work_bytes, bytes));
        cy_reduce_widen(record->work, o->in.data, count, o->in.dtype);
        record->target = record->work;
    }
    record->source = record->target;
    return CY_OK;
}

static cy_status make_plan(
    algorithm_group *group, algorithm_transfer *record, const cy_operation *operation)
{
    const cy_coll_rank place = {group->base.rank, group->base.size};
    record->operation = *operation;
    const cy_operation *o = &record->operation;
    record->plan.count = 0;
    record->plan.streams = false;
    atomic_store_explicit(&record->overflow, false, memory_order_relaxed);
    record->dtype = o->in.dtype;
    record->source = o->in.data;
    record->target = o->out.data;
    const bool reduces = o->kind == CY_OP_ALL_REDUCE || o->kind == CY_OP_REDUCE_SCATTER;
    if (reduces) CY_TRY(prepare_reduction(record));
    const size_t most = group->inside->fragment_bytes;
    record->fragment = most > 0 ? (int64_t)(most / cy_dtype_size(record->dtype)) : INT64_MAX;
    switch (o->kind) {
    case CY_OP_ALL_REDUCE:
        return plan_all_reduce(group, record, place);
    case CY_OP_REDUCE_SCATTER:
        return cy_coll_schedule_ring_reduce_scatter(&record->plan, place, cy_view_count(o->out));
    case CY_OP_ALL_GATHER: {
        char *own = (char *)o->out.data + cy_view_bytes(o->in) * (size_t)place.rank;
        if (own != o->in.data && cy_view_bytes(o->in) > 0) {
            memcpy(own, o->in.data, cy_view_bytes(o->in));
        }
        record->source = o->out.data;
        return cy_coll_schedule_ring_all_gather(&record->plan, place, cy_view_count(o->in));
    }
    case CY_OP_ALL_TO_ALL:
    case CY_OP_ALL_TO_ALLV:
        return plan_all_to_all(record, place);
    case CY_OP_BROADCAST:
        return cy_coll_schedule_broadcast(&record->plan, place, cy_view_count(o->in), o->peer);
    case CY_OP_BARRIER:
        return cy_coll_schedule_barrier(&record->plan, place);
    case CY_OP_SEND:
    case CY_OP_RECV:
        break;
    }
    return CY_OK;
}

// ---- messages

static cy_view view_of(char *bytes, cy_dtype dtype, int64_t first, int64_t count)
{
    // A barrier has no buffer: nothing may be added to a null pointer, not even 0.
    char *place = first == 0 ? bytes : bytes + (size_t)first * cy_dtype_size(dtype);
    return cy_view_of(place, dtype, 1, count);
}

// The elements of a round that leave the rank, or come to it.
static cy_coll_chunk piece_of(const cy_round *round, bool sends)
{
    return sends ? (cy_coll_chunk){round->send_first, round->send_count}
                 : (cy_coll_chunk){round->recv_first, round->recv_count};
}

// Messages of a round in one direction; an empty one is a message, too.
static int64_t fragments(const algorithm_transfer *record, const cy_round *round, bool sends)
{
    if ((sends ? round->to : round->from) < 0) return 0;
    const int64_t count = piece_of(round, sends).count;
    if (count <= record->fragment) return 1;
    return count / record->fragment + (count % record->fragment > 0 ? 1 : 0);
}

static const cy_round *round_of(const algorithm_transfer *record, algorithm_place at)
{
    return &record->plan.rounds[at.round];
}

static int64_t number_of(const algorithm_transfer *record, algorithm_place at)
{
    return at.turn - at.round * record->lag;
}

// The elements of a message.
static cy_coll_chunk chunk_of(const algorithm_transfer *record, algorithm_place at, bool sends)
{
    const cy_coll_chunk piece = piece_of(round_of(record, at), sends);
    const int64_t before = number_of(record, at) * record->fragment;
    const int64_t left = piece.count - before;
    return (cy_coll_chunk){piece.first + before, left < record->fragment ? left : record->fragment};
}

// The message after this one in the order of a direction; false: there is none.
static bool next_place(const algorithm_transfer *record, algorithm_place *at, bool sends)
{
    const int last = record->plan.count - 1;
    do {
        at->round--;
        if (at->round < 0 || number_of(record, *at) >= record->longest) {
            at->turn++;
            const int64_t newest = at->turn / record->lag;
            at->round = newest < last ? (int)newest : last;
        }
        if (at->turn >= last * record->lag + record->longest) return false;
    } while (number_of(record, *at) >= fragments(record, round_of(record, *at), sends));
    return true;
}

// Whether fragment `number` of a round has gone or come, if there is such a message.
static bool is_over(const algorithm_transfer *record, const algorithm_direction *way, int round,
    int64_t number)
{
    const int64_t turn = number + round * record->lag;
    const algorithm_place next = way->awaited;
    return way->over || turn < next.turn || (turn == next.turn && round > next.round);
}

static bool rounds_before_are_over(const algorithm_transfer *record, int round)
{
    return (record->send.over || record->send.awaited.round >= round) &&
        (record->recv.over || record->recv.awaited.round >= round);
}

// What is sent must not change before it has gone.
static bool sends_what_changes(const cy_round *round)
{
    return round->to >= 0 && round->recv_action != CY_RECV_STORE &&
        round->send_first < round->recv_first + round->recv_count &&
        round->recv_first < round->send_first + round->send_count;
}

// Whether the group inside takes in what arrives in a round.
static bool folds(const algorithm_group *group, const cy_round *round)
{
    return round->recv_action == CY_RECV_STORE ||
        (group->inside->reduces_on_recv && !sends_what_changes(round));
}

// A ring sends in every round what came in the round before.
static bool may_send(const algorithm_transfer *record, algorithm_place at)
{
    if (!record->plan.streams) return rounds_before_are_over(record, at.round);
    return at.round == 0 ||
        is_over(record, &record->recv, at.round - 1, number_of(record, at));
}

// Where a result of a ring is stored is what the rank sent P - 1 rounds before.
static bool may_receive(
    const algorithm_group *group, const algorithm_transfer *record, algorithm_place at)
{
    if (!record->plan.streams) return rounds_before_are_over(record, at.round);
    const int sent = at.round - (group->base.size - 1);
    return sent < 0 || is_over(record, &record->send, sent, number_of(record, at));
}

static char *arrival_of(const algorithm_transfer *record, int64_t number)
{
    return record->arrived + (size_t)(number % FRAGMENTS_IN_FLIGHT) * record->place_bytes;
}

static cy_status post(algorithm_group *group, algorithm_direction *way, const cy_operation *message)
{
    cy_request *request = &way->requests[way->posted % FRAGMENTS_IN_FLIGHT];
    CY_TRY(group->inside->ops->start(group->inside, NULL, request, message));
    ((cy_transfer *)request->handle)->kind = message->kind;
    way->posted++;
    group->moves++;
    return CY_OK;
}

// What arrives next goes to its place, or waits where it is to be added.
static cy_status post_receive(algorithm_group *group, algorithm_transfer *record)
{
    algorithm_direction *way = &record->recv;
    const cy_round *round = round_of(record, way->next);
    const cy_coll_chunk chunk = chunk_of(record, way->next, false);
    const bool inside = folds(group, round);
    const cy_view view = inside
        ? view_of(record->target, record->dtype, chunk.first, chunk.count)
        : view_of(arrival_of(record, way->posted), record->dtype, 0, chunk.count);
    const cy_operation recv = {
        .kind = CY_OP_RECV,
        .reduce = record->operation.reduce,
        .out = view,
        .in = view,
        .peer = round->from,
        .tag = record->tag,
        .recv_action = inside ? round->recv_action : CY_RECV_STORE,
        .overflow = &record->overflow,
    };
    return post(group, way, &recv);
}

static cy_operation send_of(
    const algorithm_transfer *record, const cy_round *round, cy_coll_chunk chunk)
{
    // Sends only read, but a view has one kind of pointer.
    char *source = cy_memory_writable(record->source);
    const cy_view view = view_of(source, record->dtype, chunk.first, chunk.count);
    return (cy_operation){
        .kind = CY_OP_SEND, .in = view, .out = view, .peer = round->to, .tag = record->tag};
}

static cy_status post_send(algorithm_group *group, algorithm_transfer *record)
{
    algorithm_direction *way = &record->send;
    const cy_operation send =
        send_of(record, round_of(record, way->next), chunk_of(record, way->next, true));
    return post(group, way, &send);
}

void algorithm_count(algorithm_group *group, const cy_operation *send)
{
    const double bytes = (double)cy_view_bytes(send->in);
    const int *nodes = group->base.nodes;
    group->sent.bytes += bytes;
    group->sent.messages++;
    if (nodes != NULL && nodes[send->peer] != nodes[group->base.rank]) {
        group->sent.bytes_between_nodes += bytes;
    }
}

static void begin_direction(
    const algorithm_transfer *record, algorithm_direction *way, bool sends)
{
    way->posted = way->done = 0;
    way->next = (algorithm_place){.turn = -1};
    way->all_posted = way->over = !next_place(record, &way->next, sends);
    way->awaited = way->next;
}

cy_status algorithm_prepare(
    algorithm_group *group, algorithm_transfer *record, const cy_operation *operation)
{
    CY_TRY(make_plan(group, record, operation));
    int64_t receives = 0, most = 0;
    record->longest = 1;
    for (int r = 0; r < record->plan.count; r++) {
        const cy_round *round = &record->plan.rounds[r];
        const int64_t sends = fragments(record, round, true);
        const int64_t recvs = fragments(record, round, false);
        if (sends > record->longest) record->longest = sends;
        if (recvs > record->longest) record->longest = recvs;
        // Fragments are taken in where they were sent from: the ranges have to be the same.
        CY_ASSERT(!sends_what_changes(round) ||
            (round->send_first == round->recv_first && round->send_count == round->recv_count));
        receives += recvs;
        if (recvs > 0 && !folds(group, round) && round->recv_count > most) most = round->recv_count;
        // What a plan sends in a round counts as one message, in however many fragments it goes.
        if (sends > 0) {
            const cy_operation whole = send_of(record, round, piece_of(round, true));
            algorithm_count(group, &whole);
        }
    }
    group->sent.rounds += record->plan.count;
    record->lag = record->plan.streams ? ROUND_LAG : record->longest;
    if (most > record->fragment) most = record->fragment;
    if (receives > FRAGMENTS_IN_FLIGHT) receives = FRAGMENTS_IN_FLIGHT;
    record->place_bytes = (size_t)most * cy_dtype_size(record->dtype);
    CY_TRY(take(&record->arrived, &record->arrived_bytes, (size_t)receives * record->place_bytes));
    begin_direction(record, &record->send, true);
    begin_direction(record, &record->recv, false);
    return CY_OK;
}

// Whether the oldest message of a direction is over; it is given back then.
static cy_status finish_oldest(algorithm_group *group, algorithm_direction *way, bool *over)
{
    cy_request *request = &way->requests[way->done % FRAGMENTS_IN_FLIGHT];
    CY_TRY(group->inside->ops->test(group->inside, request->handle, over));
    if (!*over) return CY_OK;
    cy_transfer *transfer = request->handle;
    request->handle = NULL;
    group->moves++;
    return group->inside->ops->wait(group->inside, NULL, transfer);
}

static void step(const algorithm_transfer *record, algorithm_direction *way, bool sends)
{
    way->done++;
    way->over = !next_place(record, &way->awaited, sends);
}

// A fragment that the group inside has not taken in itself.
static void take_in(algorithm_transfer *record, const cy_round *round)
{
    const algorithm_direction *way = &record->recv;
    const cy_coll_chunk chunk = chunk_of(record, way->awaited, false);
    char *there = record->target + (size_t)chunk.first * cy_dtype_size(record->dtype);
    const bool overflow = cy_reduce_received(there, arrival_of(record, way->done), chunk.count,
        record->dtype, record->operation.reduce, round->recv_action);
    if (overflow) atomic_store_explicit(&record->overflow, true, memory_order_relaxed);
}

static cy_status post_receives(algorithm_group *group, algorithm_transfer *record)
{
    algorithm_direction *way = &record->recv;
    while (!way->all_posted && way->posted < way->done + FRAGMENTS_IN_FLIGHT &&
        may_receive(group, record, way->next)) {
        CY_TRY(post_receive(group, record));
        way->all_posted = !next_place(record, &way->next, false);
    }
    return CY_OK;
}

// Takes in one message, so that what it allows to be sent goes while it is in the cache.
static cy_status receive_one(algorithm_group *group, algorithm_transfer *record)
{
    algorithm_direction *way = &record->recv;
    CY_TRY(post_receives(group, record));
    if (way->done == way->posted) return CY_OK;
    const cy_round *round = round_of(record, way->awaited);
    const bool adds = !folds(group, round);
    if (adds && sends_what_changes(round) &&
        !is_over(record, &record->send, way->awaited.round, number_of(record, way->awaited)))
        return CY_OK;
    bool here = false;
    CY_TRY(finish_oldest(group, way, &here));
    if (!here) return CY_OK;
    if (adds) take_in(record, round);
    step(record, way, false);
    return CY_OK;
}

static cy_status send_all(algorithm_group *group, algorithm_transfer *record)
{
    algorithm_direction *way = &record->send;
    for (;;) {
        while (!way->all_posted && way->posted < way->done + FRAGMENTS_IN_FLIGHT &&
            may_send(record, way->next)) {
            CY_TRY(post_send(group, record));
            way->all_posted = !next_place(record, &way->next, true);
        }
        if (way->done == way->posted) return CY_OK;
        bool gone = false;
        CY_TRY(finish_oldest(group, way, &gone));
        if (!gone) return CY_OK;
        step(record, way, true);
    }
}

// The last round is over: partial results become results.
static void conclude(algorithm_group *group, algorithm_transfer *record)
{
    const cy_operation *o = &record->operation;
    const int divisor = o->reduce == CY_AVG ? group->base.size : 1;
    const size_t width = cy_dtype_size(record->dtype);
    if (o->kind == CY_OP_ALL_REDUCE) {
        cy_reduce_narrow(o->out.data, record->target, cy_view_count(o->out), o->out.dtype, divisor);
    } else if (o->kind == CY_OP_REDUCE_SCATTER) {
        const int64_t part = cy_view_count(o->out);
        const char *own = record->target + (size_t)(part * group->base.rank) * width;
        cy_reduce_narrow(o->out.data, own, part, o->out.dtype, divisor);
    }
    record->done = true;
}

cy_status algorithm_advance(algorithm_group *group, algorithm_transfer *record)
{
    while (!record->done) {
        const int64_t moves = group->moves;
        // Receives first: what is sent to a rank that expects it is not copied twice.
        if (!record->recv.over) CY_TRY(receive_one(group, record));
        if (!record->send.over) CY_TRY(send_all(group, record));
        if (record->recv.over && record->send.over)
            conclude(group, record);
        else if (group->moves == moves)
            return CY_OK;
    }
    return CY_OK;
}
