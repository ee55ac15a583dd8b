// Groups whose collectives are made of messages: they follow a plan over the sends and receives of
// the group inside, in the calls of their rank and, where asked for, in a thread of their own.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "comm/algorithm.h"
#include "comm/algorithms/schedule.h"
#include "comm/backend.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOKS    16     // between two times that the core is offered to others
#define YIELD_NS 200000 // then sleep between looks
#define NAP_NS   20000
#define LOOK_NS  50000000 // how often a long wait looks after the others

// Messages that may be in flight at once, in each direction.
#define FRAGMENTS_IN_FLIGHT 4

// How many fragments a round of a ring is behind the round before.
#define ROUND_LAG 4

// A message of a plan: fragment number turn - round * lag of a round. In each direction messages go
// by their turn, those of one turn from the last round to the first. With a lag as long as the
// longest piece that is one round after the other.
typedef struct algorithm_place {
    int64_t turn;
    int round;
} algorithm_place;

// One direction: what the rank sends, or what it receives.
typedef struct algorithm_direction {
    cy_request requests[FRAGMENTS_IN_FLIGHT]; // of message i: number i % FRAGMENTS_IN_FLIGHT
    int64_t posted, done;                     // messages
    algorithm_place next;                     // to be posted, unless all are
    algorithm_place awaited;                  // the oldest that is not done, unless all are
    bool all_posted;
    bool over;
} algorithm_direction;

typedef struct algorithm_transfer {
    cy_transfer base;
    struct algorithm_transfer *next; // of those in flight, or of the free ones
    cy_operation operation;
    cy_transfer *message;  // what the group inside does itself
    cy_coll_schedule plan; // owned
    bool done;
    int tag;
    algorithm_direction send, recv;
    cy_dtype dtype;     // of what travels
    int64_t fragment;   // elements of a message at most
    int64_t longest;    // fragments of the longest piece
    int64_t lag;        // fragments that a round is behind the one before
    const char *source; // borrowed: what is sent
    char *target;       // borrowed: where what arrives ends
    cy_buffer work;     // owned: partial results
    cy_buffer arrived;  // owned: FRAGMENTS_IN_FLIGHT fragments that are yet to be added
    size_t place_bytes; // from one of them to the next
    _Atomic bool overflow;
} algorithm_transfer;

typedef struct algorithm_group {
    cy_group base;
    cy_group *inside; // owned
    cy_algorithm_options options;
    cy_algorithm_counters sent;
    int64_t moves; // rounds that have begun, messages that have arrived or gone
    uint64_t sequence;
    algorithm_transfer *head; // in flight, oldest first
    algorithm_transfer *tail;
    algorithm_transfer *records; // owned: free ones
    cy_status status;            // of the first failure
    char text[1024];
    // The progress thread and the rank's own take turns under this lock.
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool has_thread;
    bool closing;
} algorithm_group;

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
    int64_t *in_counts;
    CY_TRY(CY_ALLOC(&in_counts, 2 * (size_t)place.size));
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
    cy_memory_free(in_counts);
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
        CY_TRY(cy_buffer_reserve(&record->work, bytes));
        record->target = record->work.data;
        cy_reduce_widen(record->target, o->in.data, count, o->in.dtype);
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
static bool is_over(
    const algorithm_transfer *record, const algorithm_direction *way, int round, int64_t number)
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

// Whether a round adds to what it sends, which must not change before it has gone.
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
    return at.round == 0 || is_over(record, &record->recv, at.round - 1, number_of(record, at));
}

// A ring stores a result where the rank has sent from P - 1 rounds before. That message has gone
// when the result comes, but MPI wants it completed before a receive into the same place is posted.
static bool may_receive(
    const algorithm_group *group, const algorithm_transfer *record, algorithm_place at)
{
    if (!record->plan.streams) return rounds_before_are_over(record, at.round);
    const int sent = at.round - (group->base.size - 1);
    return sent < 0 || is_over(record, &record->send, sent, number_of(record, at));
}

// It lies in its line as the elements do that it is added to, which lie so on the sender, too.
static char *arrival_of(const algorithm_transfer *record, int64_t number, cy_coll_chunk chunk)
{
    const char *there = record->target + (size_t)chunk.first * cy_dtype_size(record->dtype);
    return record->arrived.data + (size_t)(number % FRAGMENTS_IN_FLIGHT) * record->place_bytes +
        cy_line_offset(there);
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

// The next message goes to its place, or to a buffer from which it is added.
static cy_status post_receive(algorithm_group *group, algorithm_transfer *record)
{
    algorithm_direction *way = &record->recv;
    const cy_round *round = round_of(record, way->next);
    const cy_coll_chunk chunk = chunk_of(record, way->next, false);
    const bool inside = folds(group, round);
    const cy_view view = inside
        ? view_of(record->target, record->dtype, chunk.first, chunk.count)
        : view_of(arrival_of(record, way->posted, chunk), record->dtype, 0, chunk.count);
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

// Counts a message that is sent.
static void algorithm_count(algorithm_group *group, const cy_operation *send)
{
    const double bytes = (double)cy_view_bytes(send->in);
    const int *nodes = group->base.nodes;
    group->sent.bytes += bytes;
    group->sent.messages++;
    if (nodes != NULL && nodes[send->peer] != nodes[group->base.rank]) {
        group->sent.bytes_between_nodes += bytes;
    }
}

static void begin_direction(const algorithm_transfer *record, algorithm_direction *way, bool sends)
{
    way->posted = way->done = 0;
    way->next = (algorithm_place){.turn = -1};
    way->all_posted = way->over = !next_place(record, &way->next, sends);
    way->awaited = way->next;
}

// Makes the plan of a collective and takes its memory; it may be over at once.
static cy_status algorithm_prepare(
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
    record->place_bytes = cy_line_stride((size_t)most * cy_dtype_size(record->dtype));
    if (most > 0)
        CY_TRY(cy_buffer_reserve(&record->arrived, (size_t)receives * record->place_bytes));
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
    const bool overflow = cy_reduce_received(there, arrival_of(record, way->done, chunk),
        chunk.count, record->dtype, record->operation.reduce, round->recv_action);
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

// Advances one transfer until it would have to wait.
static cy_status algorithm_advance(algorithm_group *group, algorithm_transfer *record)
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

// ---- progress

static bool is_message(cy_operation_kind kind)
{
    return kind == CY_OP_SEND || kind == CY_OP_RECV;
}

static cy_status fail_group(algorithm_group *group, cy_status status)
{
    if (group->status == CY_OK) {
        group->status = status;
        snprintf(group->text, sizeof(group->text), "%s", cy_error_text());
    }
    return status;
}

static cy_status failure(const algorithm_group *group)
{
    return group->status == CY_OK ? CY_OK : CY_FAIL(group->status, "%s", group->text);
}

// Goes on with everything in flight, oldest first.
static cy_status advance_list(algorithm_group *group)
{
    for (algorithm_transfer **link = &group->head; *link != NULL;) {
        algorithm_transfer *record = *link;
        const cy_status status = algorithm_advance(group, record);
        if (status != CY_OK) return fail_group(group, status);
        if (!record->done) {
            link = &record->next;
            continue;
        }
        *link = record->next;
        if (group->tail == record) {
            group->tail = group->head;
            while (group->tail != NULL && group->tail->next != NULL)
                group->tail = group->tail->next;
        }
    }
    return CY_OK;
}

// Under the lock.
static cy_status advance_all(algorithm_group *group)
{
    CY_TRY(failure(group));
    cy_guard *guard = group->base.guard;
    if (!cy_guard_enter(guard)) return fail_group(group, CY_FAIL(CY_ERR_PEER, "%s", guard->text));
    const cy_status status = advance_list(group);
    cy_guard_leave(guard);
    return status;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = NAP_NS};
    nanosleep(&pause, NULL);
}

static void *make_progress(void *argument)
{
    algorithm_group *group = argument;
    pthread_mutex_lock(&group->lock);
    while (!group->closing) {
        if (group->head == NULL || group->status != CY_OK) {
            pthread_cond_wait(&group->work, &group->lock);
            continue;
        }
        (void)advance_all(group); // a failure is kept for those who wait
        pthread_mutex_unlock(&group->lock);
        nap();
        pthread_mutex_lock(&group->lock);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

// ---- the table

static cy_status record_take(algorithm_group *group, algorithm_transfer **record)
{
    if (group->records == NULL) {
        CY_TRY(CY_ALLOC(&group->records, 1));
    }
    *record = group->records;
    group->records = (*record)->next;
    (*record)->next = NULL;
    (*record)->message = NULL;
    (*record)->done = false;
    return CY_OK;
}

static void record_give(algorithm_group *group, algorithm_transfer *record)
{
    record->next = group->records;
    group->records = record;
}

// Whether the group inside does the collective itself.
static bool is_native(const algorithm_group *group, const cy_operation *operation)
{
    if (!group->options.native_others || group->inside->messages_only) return false;
    return operation->kind != CY_OP_ALL_REDUCE ||
        cy_algorithm_choose(&group->options.table, cy_view_bytes(operation->in)) ==
        CY_ALGORITHM_NATIVE;
}

// *listed tells whether the group has the record now, also when a step of it failed.
static cy_status start_locked(algorithm_group *group, cy_queue *queue, algorithm_transfer *record,
    const cy_operation *operation, bool *listed)
{
    *listed = false;
    CY_TRY(failure(group));
    if (is_message(operation->kind) || is_native(group, operation)) {
        cy_request request = {0};
        CY_TRY(group->inside->ops->start(group->inside, queue, &request, operation));
        if (operation->kind == CY_OP_SEND) algorithm_count(group, operation);
        if (!is_message(operation->kind)) {
            group->sent.bytes_between_nodes += cy_operation_bytes_between(&group->base, operation);
        }
        record->message = request.handle;
        record->message->kind = operation->kind;
        return CY_OK;
    }
    record->tag = CY_TAG_LIMIT + (int)(group->sequence++ % CY_TAG_LIMIT);
    CY_TRY(algorithm_prepare(group, record, operation));
    if (group->tail != NULL) group->tail->next = record;
    if (group->head == NULL) group->head = record;
    group->tail = record;
    *listed = true;
    pthread_cond_signal(&group->work);
    return advance_all(group);
}

static cy_status algorithm_start(
    cy_group *base, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    algorithm_group *group = (algorithm_group *)base;
    pthread_mutex_lock(&group->lock);
    algorithm_transfer *record = NULL;
    cy_status status = record_take(group, &record);
    if (status == CY_OK) {
        record->base.kind = operation->kind;
        bool listed;
        status = start_locked(group, queue, record, operation, &listed);
        // After a failure a record of the list stays there until the close.
        if (status != CY_OK && !listed) record_give(group, record);
        if (status == CY_OK) request->handle = record;
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

static cy_status test_locked(algorithm_group *group, algorithm_transfer *record, bool *done)
{
    if (record->message == NULL) {
        if (!record->done) CY_TRY(advance_all(group));
        *done = record->done;
        return CY_OK;
    }
    CY_TRY(failure(group));
    return group->inside->ops->test(group->inside, record->message, done);
}

// *moves are those of the group so far.
static cy_status look(
    algorithm_group *group, algorithm_transfer *record, bool *done, int64_t *moves)
{
    pthread_mutex_lock(&group->lock);
    const cy_status status = test_locked(group, record, done);
    *moves = group->moves;
    pthread_mutex_unlock(&group->lock);
    return status;
}

static cy_status algorithm_test(cy_group *base, cy_transfer *transfer, bool *done)
{
    int64_t moves;
    return look((algorithm_group *)base, (algorithm_transfer *)transfer, done, &moves);
}

// The oldest message of a direction that is in flight; NULL: none is.
static const cy_transfer *oldest(const algorithm_direction *way)
{
    return way->done < way->posted ? way->requests[way->done % FRAGMENTS_IN_FLIGHT].handle : NULL;
}

static cy_status check_peers_locked(
    algorithm_group *group, const algorithm_transfer *record, cy_watchdog *watch)
{
    const cy_transfer *awaited = record->message;
    if (awaited == NULL) awaited = oldest(&record->recv);
    if (awaited == NULL) awaited = oldest(&record->send);
    if (awaited == NULL) return CY_OK;
    const cy_status status = group->inside->ops->check_peers(group->inside, awaited, watch);
    if (status == CY_OK) return CY_OK;
    cy_error_prefix("%s: ", cy_operation_name(record->base.kind));
    return fail_group(group, status);
}

static cy_status algorithm_check_peers(
    cy_group *base, const cy_transfer *transfer, cy_watchdog *watch)
{
    algorithm_group *group = (algorithm_group *)base;
    pthread_mutex_lock(&group->lock);
    const cy_status status = check_peers_locked(group, (const algorithm_transfer *)transfer, watch);
    pthread_mutex_unlock(&group->lock);
    return status;
}

// Waits for a collective of messages, or for an operation of the group inside while such
// collectives are in flight: these go on only while somebody looks.
static cy_status wait_looking(algorithm_group *group, algorithm_transfer *record)
{
    int64_t moved = cy_clock_ns(); // when a message came or went last
    int64_t looked = moved;
    int64_t moves = 0;
    cy_watchdog watch = {.rank = -1};
    bool done = false;
    cy_status status = look(group, record, &done, &moves);
    for (unsigned turn = 1; status == CY_OK && !done; turn++) {
        const int64_t now = cy_clock_ns();
        if (now - moved > YIELD_NS)
            nap();
        else if (turn % LOOKS == 0)
            sched_yield();
        if (now - looked > LOOK_NS) {
            looked = now;
            status = algorithm_check_peers(&group->base, &record->base, &watch);
        }
        const int64_t before = moves;
        if (status == CY_OK) status = look(group, record, &done, &moves);
        if (moves != before) moved = now;
    }
    return status;
}

// Under the lock. Where nothing else is in flight the group inside waits by itself, which is
// faster.
static cy_status wait_inside(algorithm_group *group, cy_queue *queue, algorithm_transfer *record)
{
    CY_TRY(failure(group));
    const cy_status status = group->inside->ops->wait(group->inside, queue, record->message);
    return status == CY_OK ? CY_OK : fail_group(group, status);
}

static cy_status algorithm_wait(cy_group *base, cy_queue *queue, cy_transfer *transfer)
{
    algorithm_group *group = (algorithm_group *)base;
    algorithm_transfer *record = (algorithm_transfer *)transfer;
    cy_status status = CY_OK;
    pthread_mutex_lock(&group->lock);
    if (record->message == NULL || group->head != NULL) {
        pthread_mutex_unlock(&group->lock);
        status = wait_looking(group, record);
        pthread_mutex_lock(&group->lock);
    }
    if (status == CY_OK && record->message != NULL) status = wait_inside(group, queue, record);
    if (queue != NULL && record->message == NULL && record->overflow) {
        cy_queue_note_overflow(queue);
    }
    base->counters.bytes_between_nodes = group->sent.bytes_between_nodes;
    if (status == CY_OK) record_give(group, record); // a failed one may still be in the list
    pthread_mutex_unlock(&group->lock);
    return status;
}

static void algorithm_abort(cy_group *base, const char *text)
{
    algorithm_group *group = (algorithm_group *)base;
    cy_group_abort(group->inside, text);
}

// After a failure the group inside must take its messages back before their memory goes.
static void cancel(algorithm_group *group, algorithm_direction *way)
{
    for (int i = 0; i < FRAGMENTS_IN_FLIGHT && group->status != CY_OK; i++) {
        cy_request *request = &way->requests[i];
        if (request->handle == NULL) continue;
        cy_group_abort(group->inside, group->text);
        (void)!group->inside->ops->wait(group->inside, NULL, request->handle);
        request->handle = NULL;
    }
}

static void free_list(algorithm_transfer *list)
{
    while (list != NULL) {
        algorithm_transfer *record = list;
        list = record->next;
        cy_coll_schedule_free(&record->plan);
        cy_buffer_free(&record->work);
        cy_buffer_free(&record->arrived);
        cy_memory_free(record);
    }
}

static void algorithm_close(cy_group *base)
{
    algorithm_group *group = (algorithm_group *)base;
    pthread_mutex_lock(&group->lock);
    group->closing = true;
    pthread_cond_signal(&group->work);
    pthread_mutex_unlock(&group->lock);
    if (group->has_thread) pthread_join(group->thread, NULL);
    for (algorithm_transfer *record = group->head; record != NULL; record = record->next) {
        cancel(group, &record->recv);
        cancel(group, &record->send);
    }
    if (!group->options.keep_inside) cy_group_close(group->inside);
    free_list(group->records);
    free_list(group->head);
    pthread_cond_destroy(&group->work);
    pthread_mutex_destroy(&group->lock);
    cy_memory_free(group);
}

static const cy_group_ops algorithm_ops = {
    .name = "algorithm",
    .start = algorithm_start,
    .wait = algorithm_wait,
    .test = algorithm_test,
    .check_peers = algorithm_check_peers,
    .abort = algorithm_abort,
    .close = algorithm_close,
};

cy_status cy_algorithm_open(cy_group **group, cy_group *inside, const cy_algorithm_options *options)
{
    CY_ASSERT(inside->size > 1 && inside->guard != NULL && options->table.count > 0);
    algorithm_group *made;
    CY_TRY(CY_ALLOC(&made, 1));
    cy_group_init(&made->base, &algorithm_ops, inside->rank, inside->size, inside->dimension);
    made->options = *options;
    made->options.nodes = NULL; // the group has its own
    made->inside = inside;
    made->base.counts_between = true;
    made->base.guard = inside->guard;
    const int *nodes = options->nodes != NULL ? options->nodes : inside->nodes;
    const cy_status status = cy_group_set_nodes(&made->base, nodes);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->work, NULL);
    if (options->progress_thread) {
        if (cy_thread_start(&made->thread, make_progress, made) != 0) {
            pthread_cond_destroy(&made->work);
            pthread_mutex_destroy(&made->lock);
            cy_memory_free(made->base.nodes);
            cy_memory_free(made);
            return CY_FAIL(CY_ERR_MEMORY, "no thread for the progress of %s", inside->dimension);
        }
        made->has_thread = true;
    }
    *group = &made->base;
    return CY_OK;
}

cy_algorithm_counters cy_algorithm_count(const cy_group *group)
{
    CY_ASSERT(group->ops == &algorithm_ops);
    return ((const algorithm_group *)group)->sent;
}
