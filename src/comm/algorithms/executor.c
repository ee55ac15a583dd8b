#include "comm/algorithms/executor.h"

#include "base/memory.h"
#include "base/status.h"
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

cy_status algorithm_prepare(
    algorithm_group *group, algorithm_transfer *record, const cy_operation *operation)
{
    const cy_coll_rank place = {group->base.rank, group->base.size};
    record->operation = *operation;
    const cy_operation *o = &record->operation;
    record->plan.count = 0;
    record->round = 0;
    record->posted = false;
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

// ---- rounds

static cy_view piece(char *bytes, cy_dtype dtype, int64_t first, int64_t count)
{
    // A barrier has no buffer: nothing may be added to a null pointer, not even 0.
    char *place = first == 0 ? bytes : bytes + (size_t)first * cy_dtype_size(dtype);
    return cy_view_of(place, dtype, 1, count);
}

// Segment number `number` of a piece that begins at element `first`.
static cy_coll_chunk fragment_of(
    const algorithm_transfer *record, int64_t first, int64_t count, int64_t number)
{
    const int64_t at = number * record->fragment;
    const int64_t left = count - at;
    return (cy_coll_chunk){first + at, left < record->fragment ? left : record->fragment};
}

// Messages of a piece; an empty one is a message, too.
static int64_t fragments(const algorithm_transfer *record, int peer, int64_t count)
{
    if (peer < 0) return 0;
    if (count <= record->fragment) return 1;
    return count / record->fragment + (count % record->fragment > 0 ? 1 : 0);
}

// What is sent must not change before it has gone.
static bool sends_what_changes(const cy_round *round)
{
    return round->to >= 0 && round->recv_action != CY_RECV_STORE &&
        round->send_first < round->recv_first + round->recv_count &&
        round->recv_first < round->send_first + round->send_count;
}

static char *place_of(const algorithm_transfer *record, int64_t number)
{
    const size_t bytes = (size_t)record->fragment * cy_dtype_size(record->dtype);
    return record->arrived + (size_t)(number % FRAGMENTS_IN_FLIGHT) * bytes;
}

// Where the next fragment that arrives goes to, and what becomes of it there.
static cy_status post_receive(
    algorithm_group *group, algorithm_transfer *record, const cy_round *round)
{
    algorithm_direction *way = &record->recv;
    const cy_coll_chunk part =
        fragment_of(record, round->recv_first, round->recv_count, way->posted);
    const cy_view view = record->folds
        ? piece(record->target, record->dtype, part.first, part.count)
        : piece(place_of(record, way->posted), record->dtype, 0, part.count);
    const cy_operation recv = {
        .kind = CY_OP_RECV,
        .reduce = record->operation.reduce,
        .out = view,
        .in = view,
        .peer = round->from,
        .tag = record->tag,
        .recv_action = record->folds ? round->recv_action : CY_RECV_STORE,
        .overflow = &record->overflow,
    };
    cy_request *request = &way->requests[way->posted % FRAGMENTS_IN_FLIGHT];
    CY_TRY(group->inside->ops->start(group->inside, NULL, request, &recv));
    ((cy_transfer *)request->handle)->kind = CY_OP_RECV;
    way->posted++;
    return CY_OK;
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

static cy_operation send_of(
    const algorithm_transfer *record, const cy_round *round, cy_coll_chunk part)
{
    // Sends only read, but a view has one kind of pointer.
    char *source;
    memcpy(&source, &record->source, sizeof(source));
    const cy_view view = piece(source, record->dtype, part.first, part.count);
    return (cy_operation){
        .kind = CY_OP_SEND, .in = view, .out = view, .peer = round->to, .tag = record->tag};
}

static cy_status post_send(
    algorithm_group *group, algorithm_transfer *record, const cy_round *round)
{
    algorithm_direction *way = &record->send;
    const cy_operation send = send_of(
        record, round, fragment_of(record, round->send_first, round->send_count, way->posted));
    cy_request *request = &way->requests[way->posted % FRAGMENTS_IN_FLIGHT];
    CY_TRY(group->inside->ops->start(group->inside, NULL, request, &send));
    ((cy_transfer *)request->handle)->kind = CY_OP_SEND;
    way->posted++;
    return CY_OK;
}

// A round begins. What a plan sends counts as one message, in however many fragments it goes.
static cy_status begin_round(
    algorithm_group *group, algorithm_transfer *record, const cy_round *round)
{
    record->send.posted = record->send.done = 0;
    record->recv.posted = record->recv.done = 0;
    const bool whole = round->recv_action == CY_RECV_STORE;
    record->folds = whole || (group->inside->reduces_on_recv && !sends_what_changes(round));
    // Segments are taken in where they were sent from: the ranges have to be the same.
    CY_ASSERT(!sends_what_changes(round) ||
        (round->send_first == round->recv_first && round->send_count == round->recv_count));
    if (round->from >= 0 && !record->folds) {
        const int64_t most =
            round->recv_count < record->fragment ? round->recv_count : record->fragment;
        const int64_t places = fragments(record, round->from, round->recv_count);
        CY_TRY(take(&record->arrived, &record->arrived_bytes,
            (size_t)(most * (places < FRAGMENTS_IN_FLIGHT ? places : FRAGMENTS_IN_FLIGHT)) *
                cy_dtype_size(record->dtype)));
    }
    if (round->to >= 0) {
        const cy_coll_chunk all = {round->send_first, round->send_count};
        const cy_operation send = send_of(record, round, all);
        algorithm_count(group, &send);
    }
    group->sent.rounds++;
    group->moves++;
    record->posted = true;
    return CY_OK;
}

// Whether the oldest message of a direction is over.
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

// A fragment that the group inside has not taken in itself.
static void take_in(algorithm_transfer *record, const cy_round *round, int64_t number)
{
    if (record->folds) return;
    const cy_coll_chunk part = fragment_of(record, round->recv_first, round->recv_count, number);
    char *there = record->target + (size_t)part.first * cy_dtype_size(record->dtype);
    const bool overflow = cy_reduce_received(there, place_of(record, number), part.count,
        record->dtype, record->operation.reduce, round->recv_action);
    if (overflow) atomic_store_explicit(&record->overflow, true, memory_order_relaxed);
}

static cy_status go_on_receiving(
    algorithm_group *group, algorithm_transfer *record, const cy_round *round, bool *over)
{
    algorithm_direction *way = &record->recv;
    const int64_t count = fragments(record, round->from, round->recv_count);
    const bool after_send = !record->folds && sends_what_changes(round);
    for (;;) {
        while (way->posted < count && way->posted < way->done + FRAGMENTS_IN_FLIGHT)
            CY_TRY(post_receive(group, record, round));
        *over = way->done == count;
        if (*over || (after_send && record->send.done <= way->done)) return CY_OK;
        bool here = false;
        CY_TRY(finish_oldest(group, way, &here));
        if (!here) return CY_OK;
        take_in(record, round, way->done);
        way->done++;
    }
}

static cy_status go_on_sending(
    algorithm_group *group, algorithm_transfer *record, const cy_round *round, bool *over)
{
    algorithm_direction *way = &record->send;
    const int64_t count = fragments(record, round->to, round->send_count);
    for (;;) {
        while (way->posted < count && way->posted < way->done + FRAGMENTS_IN_FLIGHT)
            CY_TRY(post_send(group, record, round));
        *over = way->done == count;
        if (*over) return CY_OK;
        bool gone = false;
        CY_TRY(finish_oldest(group, way, &gone));
        if (!gone) return CY_OK;
        way->done++;
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
        if (record->round == record->plan.count) {
            conclude(group, record);
            break;
        }
        const cy_round *round = &record->plan.rounds[record->round];
        if (!record->posted) CY_TRY(begin_round(group, record, round));
        // Receives first: what is sent to a rank that expects it is not copied twice.
        bool received = false;
        bool sent = false;
        CY_TRY(go_on_receiving(group, record, round, &received));
        CY_TRY(go_on_sending(group, record, round, &sent));
        if (!received && sent) CY_TRY(go_on_receiving(group, record, round, &received));
        if (!received || !sent) return CY_OK;
        record->posted = false;
        record->round++;
    }
    return CY_OK;
}
