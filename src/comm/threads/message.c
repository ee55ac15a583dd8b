// Messages from one member of a group of threads to another.
//
// A message of few bytes is an eager message in the mailbox of its pair:
//
//   sender     writes an eager message, then its number; goes on. One line from core to core.
//   receiver   sees the number, takes the eager messages out in order, under the lock of the pair
//
// The lock's line stays with the receiver: the sender takes it only when the mailbox is full, or
// for a message that is no eager message, and then takes the eager messages out itself, so that
// messages of one tag keep their order.
//
// Many bytes stay where they are until both ends have come, under the lock of the pair. Then they
// are copied, or added to what is there, in chunks. An end that waits takes chunks until none is
// left: both ends share the copy where both wait, and one does all of it where the other computes.

#define _GNU_SOURCE
#include "base/memory.h"
#include "comm/threads/threads.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

// Up to so many bytes the second end to come copies at once.
#define AT_ONCE_BYTES 16384

#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)256 << 10)

// An eager message that was taken out before its receive was posted.
typedef struct unexpected_message {
    threads_transfer record;
    struct unexpected_message *next;
    char data[EAGER_BYTES];
} unexpected_message;

static bool is_send(const threads_transfer *record)
{
    return record->base.kind == CY_OP_SEND;
}

static int sender_of(const threads_group *group, const threads_transfer *record)
{
    return is_send(record) ? group->base.rank : record->peer;
}

static int receiver_of(const threads_group *group, const threads_transfer *record)
{
    return is_send(record) ? record->peer : group->base.rank;
}

static pair *pair_of(threads_group *group, const threads_transfer *record)
{
    const int from = sender_of(group, record);
    return &group->shared->pairs[from * group->base.size + receiver_of(group, record)];
}

static threads_rank *peer_of(threads_group *group, const threads_transfer *record)
{
    return rank_of(group->shared->run, group->shared->ranks[record->peer]);
}

// ---- lists

// The first record with this tag, taken off a list; NULL when there is none.
static threads_transfer *message_unlink(threads_transfer **list, int tag)
{
    while (*list != NULL && (*list)->tag != tag)
        list = &(*list)->next;
    threads_transfer *found = *list;
    if (found != NULL) *list = found->next;
    return found;
}

static void unlink_record(threads_transfer **list, const threads_transfer *record)
{
    while (*list != NULL && *list != record)
        list = &(*list)->next;
    if (*list != NULL) *list = record->next;
}

static void message_append(threads_transfer **list, threads_transfer *record)
{
    record->next = NULL;
    while (*list != NULL)
        list = &(*list)->next;
    *list = record;
}

// ---- data

// Takes bytes of a message in at their place, as the receive says.
static void message_take_in(const cy_operation *received, char *to, const char *from, size_t bytes)
{
    if (bytes == 0) return;
    if (received->recv_action == CY_RECV_STORE) {
        memcpy(to, from, bytes);
        return;
    }
    const cy_dtype dtype = received->out.dtype;
    const int64_t count = (int64_t)(bytes / cy_dtype_size(dtype));
    const bool overflow =
        cy_reduce_received(to, from, count, dtype, received->reduce, received->recv_action);
    if (overflow && received->overflow != NULL) {
        atomic_store_explicit(received->overflow, true, memory_order_relaxed);
    }
}

// Fails, and the group with it, when the ends of a message from member `from` to member `to` do not
// mean the same bytes.
static cy_status message_check(
    threads_group *group, int from, int to, int tag, cy_view sent, cy_view got)
{
    if (sent.dtype == got.dtype && cy_view_count(sent) == cy_view_count(got)) return CY_OK;
    const threads_shared *shared = group->shared;
    const cy_status status = CY_FAIL(CY_ERR_PEER,
        "message of %s with tag %d: rank %d (%s) sends %lld %s, rank %d expects %lld %s",
        group->base.label, tag, shared->ranks[from], shared->run->host,
        (long long)cy_view_count(sent), cy_dtype_name(sent.dtype), shared->ranks[to],
        (long long)cy_view_count(got), cy_dtype_name(got.dtype));
    group_fail(group->shared, status, cy_error_text());
    return status;
}

// ---- memory of pairs

// Zeroed memory that begins at a cache line; *block is to be freed.
static cy_status take_lines(void **lines, void **block, size_t bytes)
{
    CY_TRY(cy_memory_alloc(block, bytes + 63, 1));
    const size_t past = (uintptr_t)*block % 64;
    *lines = (char *)*block + (64 - past) % 64;
    return CY_OK;
}

cy_status pairs_make(threads_shared *shared)
{
    const size_t count = (size_t)shared->size * (size_t)shared->size;
    void *lines = NULL;
    CY_TRY(take_lines(&lines, &shared->pairs_block, count * sizeof(pair)));
    shared->pairs = lines;
    for (size_t i = 0; i < count; i++)
        pthread_mutex_init(&shared->pairs[i].lock, NULL);
    return CY_OK;
}

// Under the lock: the record of an unexpected eager message is free again.
static void eager_release(pair *between, threads_transfer *record)
{
    unexpected_message *known =
        (unexpected_message *)(void *)record; // the record is its first member
    known->next = between->unexpected;
    between->unexpected = known;
}

void pairs_free(threads_shared *shared)
{
    const int count = shared->pairs == NULL ? 0 : shared->size * shared->size;
    for (int i = 0; i < count; i++) {
        pair *at = &shared->pairs[i];
        // Only unexpected eager messages are left, which were never received.
        while (at->sends != NULL) {
            threads_transfer *left = at->sends;
            at->sends = left->next;
            if (left->unexpected) eager_release(at, left);
        }
        while (at->unexpected != NULL) {
            unexpected_message *free_one = at->unexpected;
            at->unexpected = free_one->next;
            cy_memory_free(free_one);
        }
        while (at->copies != NULL) {
            message_copy *free_one = at->copies;
            at->copies = free_one->next;
            cy_memory_free(free_one);
        }
        cy_memory_free(at->box_block);
        pthread_mutex_destroy(&at->lock);
    }
    cy_memory_free(shared->pairs_block);
}

// ---- eager messages: reading

static eager_message *next_eager(const pair *between)
{
    mailbox *box = atomic_load_explicit(&between->box, memory_order_acquire);
    if (box == NULL) return NULL;
    const uint64_t taken = atomic_load_explicit(&between->taken, memory_order_relaxed);
    eager_message *next = &box->eager_messages[taken % EAGER_MESSAGES];
    return atomic_load(&next->number) == taken + 1 ? next : NULL;
}

// Whether the mailbox has an eager message.
static bool eager_pending(const pair *between)
{
    return next_eager(between) != NULL;
}

static cy_status keep(pair *between, const eager_message *found)
{
    if (between->unexpected == NULL) {
        CY_TRY(CY_ALLOC(&between->unexpected, 1));
    }
    unexpected_message *made = between->unexpected;
    between->unexpected = made->next;
    made->record.base.kind = CY_OP_SEND;
    made->record.tag = found->tag;
    made->record.unexpected = true;
    made->record.view = cy_view_of(made->data, found->dtype, 1, found->count);
    memcpy(made->data, found->data, cy_view_bytes(made->record.view));
    message_append(&between->sends, &made->record);
    return CY_OK;
}

// Under the lock: takes all eager messages out, in order. Each completes the receive with its tag,
// or is kept among the sends. `to` is the receiving member.
static cy_status eager_match(threads_group *group, pair *between, int from, int to)
{
    for (eager_message *found; (found = next_eager(between)) != NULL;) {
        threads_transfer *receiver = message_unlink(&between->recvs, found->tag);
        if (receiver == NULL) {
            CY_TRY(keep(between, found));
        } else {
            const cy_view sent = cy_view_of(found->data, found->dtype, 1, found->count);
            const cy_status status =
                message_check(group, from, to, found->tag, sent, receiver->view);
            const size_t bytes = cy_view_bytes(sent);
            if (status == CY_OK) {
                message_take_in(&receiver->operation, receiver->view.data, found->data, bytes);
            }
            atomic_store(&receiver->state, status == CY_OK ? MESSAGE_DONE : MESSAGE_FAILED);
            CY_TRY(status);
        }
        const uint64_t taken = atomic_load_explicit(&between->taken, memory_order_relaxed);
        atomic_store_explicit(&between->taken, taken + 1, memory_order_release);
    }
    return CY_OK;
}

// ---- eager messages: writing

static cy_status box_make(pair *between, mailbox **box)
{
    void *lines = NULL;
    CY_TRY(take_lines(&lines, &between->box_block, sizeof(mailbox)));
    *box = lines;
    atomic_store(&between->box, *box);
    return CY_OK;
}

// All eager messages are unread: the sender takes them out for the receiver.
static cy_status make_room(threads_group *group, pair *between, int to)
{
    if (!cy_guard_enter(&group->rank->guard)) return group_failure(group->shared);
    pthread_mutex_lock(&between->lock);
    const cy_status status = eager_match(group, between, group->base.rank, to);
    pthread_mutex_unlock(&between->lock);
    cy_guard_leave(&group->rank->guard);
    return status;
}

// Writes a message of at most EAGER_BYTES into the mailbox of its pair: it is done then.
static cy_status eager_send(threads_group *group, pair *between, threads_transfer *record)
{
    mailbox *box = atomic_load_explicit(&between->box, memory_order_relaxed);
    if (box == NULL) CY_TRY(box_make(between, &box));
    if (box->written - box->seen >= EAGER_MESSAGES) {
        box->seen = atomic_load_explicit(&between->taken, memory_order_acquire);
        if (box->written - box->seen >= EAGER_MESSAGES) {
            CY_TRY(make_room(group, between, record->peer));
            box->seen = atomic_load_explicit(&between->taken, memory_order_acquire);
        }
    }
    eager_message *mine = &box->eager_messages[box->written % EAGER_MESSAGES];
    mine->count = cy_view_count(record->view);
    mine->tag = record->tag;
    mine->dtype = record->view.dtype;
    const size_t bytes = cy_view_bytes(record->view);
    if (bytes > 0) memcpy(mine->data, record->view.data, bytes);
    box->written++;
    // Sequentially consistent, as the load of `parked` that follows.
    atomic_store(&mine->number, box->written);
    atomic_store_explicit(&record->state, MESSAGE_DONE, memory_order_relaxed);
    return CY_OK;
}

// ---- copies by both ends

// Under the lock: the two ends are matched and begin to copy.
static cy_status copy_begin(pair *between, threads_transfer *sender, threads_transfer *receiver)
{
    if (between->copies == NULL) {
        CY_TRY(CY_ALLOC(&between->copies, 1));
    }
    message_copy *made = between->copies;
    between->copies = made->next;
    made->from = sender->view.data;
    made->to = receiver->view.data;
    made->received = receiver->operation;
    made->bytes = cy_view_bytes(sender->view);
    const size_t eighth = made->bytes / 8 / 64 * 64;
    made->grain = eighth < CHUNK_MIN ? CHUNK_MIN : eighth > CHUNK_MAX ? CHUNK_MAX : eighth;
    made->chunks = (int64_t)((made->bytes + made->grain - 1) / made->grain);
    made->ends = 2;
    atomic_store_explicit(&made->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&made->finished, 0, memory_order_relaxed);
    sender->partner = receiver;
    receiver->partner = sender;
    sender->copy = made;
    receiver->copy = made;
    atomic_store(&sender->state, MESSAGE_MATCHED);
    atomic_store(&receiver->state, MESSAGE_MATCHED);
    return CY_OK;
}

static bool copy_is_over(const threads_transfer *record)
{
    return atomic_load(&record->copy->finished) == record->copy->chunks;
}

// Whether there is a chunk to take, or none is under way any more.
static bool copy_has_moved(const threads_transfer *record)
{
    return copy_is_over(record) || atomic_load(&record->copy->taken) < record->copy->chunks;
}

// Copies chunks until none is left to take. Fails where the run has.
static cy_status copy_help(threads_group *group, const threads_transfer *record)
{
    message_copy *copy = record->copy;
    bool last = false;
    if (!cy_guard_enter(&group->rank->guard)) return group_failure(group->shared);
    // Announced before a chunk is taken: an end that gives up waits until none is inside.
    atomic_fetch_add(&copy->inside, 1);
    for (int64_t i; (i = atomic_fetch_add(&copy->taken, 1)) < copy->chunks;) {
        const size_t at = (size_t)i * copy->grain;
        const size_t rest = copy->bytes - at;
        message_take_in(&copy->received, copy->to + at, copy->from + at,
            rest < copy->grain ? rest : copy->grain);
        last = atomic_fetch_add(&copy->finished, 1) + 1 == copy->chunks;
    }
    atomic_fetch_sub(&copy->inside, 1);
    cy_guard_leave(&group->rank->guard);
    const threads_shared *shared = group->shared;
    if (last) rank_notify(rank_of(shared->run, shared->ranks[record->peer]));
    return CY_OK;
}

// Under the lock.
static void leave(pair *between, threads_transfer *record)
{
    message_copy *copy = record->copy;
    record->copy = NULL;
    record->partner = NULL;
    copy->ends--;
    if (copy->ends > 0) return;
    copy->next = between->copies;
    between->copies = copy;
}

// This end is done with the copy.
static void copy_leave(pair *between, threads_transfer *record)
{
    pthread_mutex_lock(&between->lock);
    leave(between, record);
    atomic_store(&record->state, MESSAGE_DONE);
    pthread_mutex_unlock(&between->lock);
}

// After a failure: this end gives the copy up for both.
static void copy_cancel(pair *between, threads_transfer *record)
{
    message_copy *copy = record->copy;
    pthread_mutex_lock(&between->lock);
    // An end that has left has its data and does not fail.
    if (copy->ends == 2) atomic_store(&record->partner->state, MESSAGE_FAILED);
    atomic_store(&copy->taken, copy->chunks);
    pthread_mutex_unlock(&between->lock);
    while (atomic_load(&copy->inside) > 0)
        sched_yield();
    pthread_mutex_lock(&between->lock);
    leave(between, record);
    pthread_mutex_unlock(&between->lock);
}

// ---- starting

// Under the lock: both ends are here.
static cy_status match(pair *between, threads_transfer *sender, threads_transfer *receiver)
{
    const size_t bytes = cy_view_bytes(sender->view);
    if (bytes > AT_ONCE_BYTES) return copy_begin(between, sender, receiver);
    message_take_in(&receiver->operation, receiver->view.data, sender->view.data, bytes);
    const bool unexpected = sender->unexpected; // with its last store a record is its owner's again
    atomic_store(&receiver->state, MESSAGE_DONE);
    atomic_store(&sender->state, MESSAGE_DONE);
    if (unexpected) eager_release(between, sender);
    return CY_OK;
}

// Under the lock: matches its counterpart, or is listed for it. *tell: the counterpart is to be
// notified.
static cy_status meet(threads_group *group, pair *between, threads_transfer *record, bool *tell)
{
    const int from = sender_of(group, record);
    const int to = receiver_of(group, record);
    // Eager messages were sent before this one, and one may match this receive.
    CY_TRY(eager_match(group, between, from, to));
    const bool sends = is_send(record);
    threads_transfer *partner =
        message_unlink(sends ? &between->recvs : &between->sends, record->tag);
    if (partner == NULL) {
        message_append(sends ? &between->sends : &between->recvs, record);
        return CY_OK;
    }
    threads_transfer *sender = sends ? record : partner;
    threads_transfer *receiver = sends ? partner : record;
    *tell = !partner->unexpected;
    cy_status status = message_check(group, from, to, record->tag, sender->view, receiver->view);
    if (status == CY_OK) status = match(between, sender, receiver);
    if (status == CY_OK) return CY_OK;
    if (partner->unexpected) {
        eager_release(between, partner);
    } else {
        atomic_store(&partner->state, MESSAGE_FAILED);
    }
    return status;
}

cy_status message_start(
    threads_group *group, threads_transfer *record, const cy_operation *operation)
{
    record->peer = operation->peer;
    record->tag = operation->tag;
    record->operation = *operation;
    record->view = is_send(record) ? operation->in : operation->out;
    record->partner = NULL;
    record->copy = NULL;
    record->unexpected = false;
    record->sequence = group->messages++;
    atomic_store_explicit(&record->state, MESSAGE_POSTED, memory_order_relaxed);
    cy_rank_page_set_call(
        group->rank->base.page, group->base.dimension, operation->kind, record->sequence);

    pair *between = pair_of(group, record);
    if (is_send(record) && cy_view_bytes(record->view) <= EAGER_BYTES) {
        CY_TRY(eager_send(group, between, record));
        rank_notify(peer_of(group, record));
        return CY_OK;
    }
    bool tell = false;
    if (!cy_guard_enter(&group->rank->guard)) return group_failure(group->shared);
    pthread_mutex_lock(&between->lock);
    const cy_status status = meet(group, between, record, &tell);
    pthread_mutex_unlock(&between->lock);
    cy_guard_leave(&group->rank->guard);
    if (tell) rank_notify(peer_of(group, record)); // if it sleeps in its wait, it can copy
    return status;
}

// ---- waiting

typedef struct message_context {
    const threads_transfer *record;
    const pair *between;
} message_context;

static bool has_moved(void *context)
{
    const message_context *c = context;
    const int state = atomic_load(&c->record->state);
    if (state == MESSAGE_MATCHED) return copy_has_moved(c->record);
    return state != MESSAGE_POSTED || (!is_send(c->record) && eager_pending(c->between));
}

static int other_end(void *context)
{
    const message_context *c = context;
    // An end that copies is at work; it need not be watched.
    return atomic_load(&c->record->state) == MESSAGE_POSTED ? c->record->peer : -1;
}

void message_cancel(threads_group *group, threads_transfer *record)
{
    pair *between = pair_of(group, record);
    pthread_mutex_lock(&between->lock);
    const int state = atomic_load(&record->state);
    if (state == MESSAGE_POSTED) {
        unlink_record(is_send(record) ? &between->sends : &between->recvs, record);
    }
    pthread_mutex_unlock(&between->lock);
    if (record->copy != NULL) copy_cancel(between, record);
}

// Takes eager messages out or copies, as far as it goes without waiting.
static cy_status go_on(threads_group *group, pair *between, threads_transfer *record)
{
    cy_status status = CY_OK;
    const int state = atomic_load(&record->state);
    if (state == MESSAGE_POSTED && !is_send(record) && eager_pending(between)) {
        if (!cy_guard_enter(&group->rank->guard)) return group_failure(group->shared);
        pthread_mutex_lock(&between->lock);
        status = eager_match(group, between, record->peer, group->base.rank);
        pthread_mutex_unlock(&between->lock);
        cy_guard_leave(&group->rank->guard);
    }
    return state == MESSAGE_MATCHED ? copy_help(group, record) : status;
}

cy_status message_wait(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    (void)queue;
    rank_heartbeat(group->rank);
    pair *between = pair_of(group, record);
    message_context context = {record, between};
    while (atomic_load(&record->state) != MESSAGE_DONE) {
        cy_status status = CY_OK;
        if (!has_moved(&context)) {
            status = group_await(group, has_moved, other_end, &context, record);
        }
        if (status == CY_OK && atomic_load(&record->state) == MESSAGE_FAILED) {
            status = group_failure(group->shared);
        }
        if (status == CY_OK) status = go_on(group, between, record);
        if (status != CY_OK) {
            message_cancel(group, record);
            return status;
        }
        if (atomic_load(&record->state) == MESSAGE_MATCHED && copy_is_over(record)) {
            copy_leave(between, record);
            return CY_OK;
        }
    }
    return CY_OK;
}

bool message_has_moved(threads_group *group, const threads_transfer *record)
{
    message_context context = {record, pair_of(group, record)};
    return has_moved(&context);
}

bool message_test(threads_group *group, threads_transfer *record)
{
    // A failure is held for the wait.
    (void)!go_on(group, pair_of(group, record), record);
    const int state = atomic_load(&record->state);
    return state == MESSAGE_DONE || (state == MESSAGE_MATCHED && copy_is_over(record));
}
