#include "comm/threads.h"

#include <stdio.h>
#include <string.h>

// Up to so many bytes whoever completes a pair copies at once.
#define AT_ONCE_BYTES 16384

static bool is_send(const threads_transfer *record)
{
    return record->base.kind == CY_OP_SEND;
}

static pair *pair_of(threads_group *group, const threads_transfer *record)
{
    const int me = group->base.rank;
    const int from = is_send(record) ? me : record->peer;
    const int to = is_send(record) ? record->peer : me;
    return &group->shared->pairs[from * group->base.size + to];
}

static threads_rank *peer_of(threads_group *group, const threads_transfer *record)
{
    return &group->shared->run->ranks[group->shared->ranks[record->peer]];
}

// Takes the first record with this tag off a list, or returns NULL.
static threads_transfer *unlink_tag(threads_transfer **list, int tag)
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

static void append(threads_transfer **list, threads_transfer *record)
{
    record->next = NULL;
    while (*list != NULL)
        list = &(*list)->next;
    *list = record;
}

// Copies and tells both. The counterpart's record belongs to its owner again with the last store.
static void copy_message(threads_group *group, pair *between, threads_transfer *record)
{
    threads_transfer *partner = record->partner;
    threads_transfer *from = is_send(record) ? record : partner;
    threads_transfer *to = is_send(record) ? partner : record;
    const size_t bytes = cy_view_bytes(from->view);
    if (bytes > 0) memcpy(to->view.data, from->view.data, bytes);
    pthread_mutex_lock(&between->lock);
    atomic_store(&record->state, MESSAGE_DONE);
    atomic_store(&partner->state, MESSAGE_DONE);
    pthread_mutex_unlock(&between->lock);
    rank_notify(peer_of(group, record));
}

// True when this rank has become the one that copies.
static bool claim(pair *between, threads_transfer *record)
{
    pthread_mutex_lock(&between->lock);
    const bool mine = atomic_load(&record->state) == MESSAGE_MATCHED;
    if (mine) {
        atomic_store(&record->state, MESSAGE_COPYING);
        atomic_store(&record->partner->state, MESSAGE_COPYING);
    }
    pthread_mutex_unlock(&between->lock);
    return mine;
}

// The two ends of a message must mean the same bytes.
static cy_status check_ends(
    threads_group *group, const threads_transfer *record, const threads_transfer *partner)
{
    const threads_transfer *from = is_send(record) ? record : partner;
    const threads_transfer *to = is_send(record) ? partner : record;
    if (from->view.dtype == to->view.dtype &&
        cy_view_count(from->view) == cy_view_count(to->view)) {
        return CY_OK;
    }
    const int me = group->rank->base.rank;
    const int peer = group->shared->ranks[record->peer];
    const cy_status status = CY_FAIL(CY_ERR_PEER,
        "message of %s with tag %d: rank %d (%s) sends %lld %s, rank %d expects %lld %s",
        group->base.dimension, record->tag, is_send(record) ? me : peer, group->rank->run->host,
        (long long)cy_view_count(from->view), cy_dtype_name(from->view.dtype),
        is_send(record) ? peer : me, (long long)cy_view_count(to->view),
        cy_dtype_name(to->view.dtype));
    group_fail(group->shared, status, cy_error_text());
    return status;
}

cy_status message_start(
    threads_group *group, threads_transfer *record, const cy_operation *operation)
{
    record->peer = operation->peer;
    record->tag = operation->tag;
    record->view = is_send(record) ? operation->in : operation->out;
    record->partner = NULL;
    record->sequence = group->messages++;
    atomic_store(&record->state, MESSAGE_POSTED);
    rank_says(group->rank, group->base.dimension, operation->kind, record->sequence);

    pair *between = pair_of(group, record);
    pthread_mutex_lock(&between->lock);
    threads_transfer **wanted = is_send(record) ? &between->recvs : &between->sends;
    threads_transfer *partner = unlink_tag(wanted, record->tag);
    if (partner == NULL) {
        append(is_send(record) ? &between->sends : &between->recvs, record);
        pthread_mutex_unlock(&between->lock);
        return CY_OK;
    }
    const cy_status status = check_ends(group, record, partner);
    if (status != CY_OK) {
        atomic_store(&partner->state, MESSAGE_FAILED);
        pthread_mutex_unlock(&between->lock);
        return status;
    }
    const bool at_once = cy_view_bytes(record->view) <= AT_ONCE_BYTES;
    const int state = at_once ? MESSAGE_COPYING : MESSAGE_MATCHED;
    record->partner = partner;
    partner->partner = record;
    atomic_store(&record->state, state);
    atomic_store(&partner->state, state);
    pthread_mutex_unlock(&between->lock);
    if (at_once) {
        copy_message(group, between, record);
    } else {
        rank_notify(peer_of(group, record)); // if it sleeps in its wait, it can copy
    }
    return CY_OK;
}

static bool has_moved(void *context)
{
    const threads_transfer *record = context;
    const int state = atomic_load(&record->state);
    return state != MESSAGE_POSTED && state != MESSAGE_COPYING;
}

static int other_end(void *context)
{
    const threads_transfer *record = context;
    // Who copies is at work; it need not be watched.
    return atomic_load(&record->state) == MESSAGE_POSTED ? record->peer : -1;
}

void message_take_back(threads_group *group, threads_transfer *record)
{
    pair *between = pair_of(group, record);
    for (;;) {
        pthread_mutex_lock(&between->lock);
        const int state = atomic_load(&record->state);
        if (state == MESSAGE_POSTED) {
            unlink_record(is_send(record) ? &between->sends : &between->recvs, record);
        } else if (state == MESSAGE_MATCHED) {
            atomic_store(&record->partner->state, MESSAGE_FAILED);
        }
        pthread_mutex_unlock(&between->lock);
        if (state != MESSAGE_COPYING) return;
    }
}

cy_status message_wait(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    (void)queue;
    rank_lives(group->rank);
    pair *between = pair_of(group, record);
    while (atomic_load(&record->state) != MESSAGE_DONE) {
        cy_status status = CY_OK;
        if (!has_moved(record)) {
            status = group_await(group, has_moved, other_end, record, record);
        }
        if (status == CY_OK && atomic_load(&record->state) == MESSAGE_FAILED) {
            status = group_failure(group->shared);
        }
        if (status != CY_OK) {
            message_take_back(group, record);
            return status;
        }
        if (claim(between, record)) copy_message(group, between, record);
    }
    // The one that copied may still hold the pair's lock, but not this record.
    return CY_OK;
}

bool message_test(threads_group *group, threads_transfer *record)
{
    pair *between = pair_of(group, record);
    if (atomic_load(&record->state) == MESSAGE_MATCHED && claim(between, record)) {
        copy_message(group, between, record);
    }
    return atomic_load(&record->state) == MESSAGE_DONE;
}
