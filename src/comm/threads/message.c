// Messages from one member to another, without the others.
//
// Few bytes are an eager message (threads_letter.c): the sender writes it and is done. Many bytes
// stay where they are until both ends have come, under the lock of the pair; then whoever waits
// copies, both where both wait (threads_copy.c).

#include "comm/threads/threads.h"

#include <stdio.h>
#include <string.h>

// Up to so many bytes whoever completes a pair copies at once.
#define AT_ONCE_BYTES 16384

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

threads_transfer *message_unlink(threads_transfer **list, int tag)
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

void message_append(threads_transfer **list, threads_transfer *record)
{
    record->next = NULL;
    while (*list != NULL)
        list = &(*list)->next;
    *list = record;
}

// ---- data

void message_take_in(const cy_operation *received, char *to, const char *from, size_t bytes)
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

// ---- starting

cy_status message_check(threads_group *group, int from, int to, int tag, cy_view sent, cy_view got)
{
    if (sent.dtype == got.dtype && cy_view_count(sent) == cy_view_count(got)) return CY_OK;
    const threads_shared *shared = group->shared;
    const cy_status status = CY_FAIL(CY_ERR_PEER,
        "message of %s with tag %d: rank %d (%s) sends %lld %s, rank %d expects %lld %s",
        group->base.dimension, tag, shared->ranks[from], shared->run->host,
        (long long)cy_view_count(sent), cy_dtype_name(sent.dtype), shared->ranks[to],
        (long long)cy_view_count(got), cy_dtype_name(got.dtype));
    group_fail(group->shared, status, cy_error_text());
    return status;
}

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

// Under the lock: meets its counterpart, or waits for it. A counterpart that was matched is told.
static cy_status meet(threads_group *group, pair *between, threads_transfer *record, bool *tell)
{
    const int from = sender_of(group, record);
    const int to = receiver_of(group, record);
    // Letters were sent before this message, and may be what this receive waits for.
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
    pthread_mutex_lock(&between->lock);
    const cy_status status = meet(group, between, record, &tell);
    pthread_mutex_unlock(&between->lock);
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
    // Who copies is at work; it need not be watched.
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
        pthread_mutex_lock(&between->lock);
        status = eager_match(group, between, record->peer, group->base.rank);
        pthread_mutex_unlock(&between->lock);
    }
    if (state == MESSAGE_MATCHED) copy_help(group, record);
    return status;
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
