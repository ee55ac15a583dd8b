// A group of threads: its records of transfers, the table of functions behind comm/group.h, opening
// and closing.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/threads/threads.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_RECORDS 64

// Records of transfers come in blocks, so that a running group allocates nothing.
struct record_block {
    struct record_block *next;
    threads_transfer records[BLOCK_RECORDS];
};

// ---- records

static void record_give(threads_group *group, threads_transfer *record)
{
    cy_memory_free(record->shadow_in);
    cy_memory_free(record->shadow_out);
    record->shadow_in = NULL;
    record->shadow_out = NULL;
    record->active = false;
    record->next = group->records;
    group->records = record;
}

static cy_status record_take(threads_group *group, threads_transfer **record)
{
    if (group->records == NULL) {
        struct record_block *made;
        CY_TRY(CY_ALLOC(&made, 1));
        made->next = group->blocks;
        group->blocks = made;
        for (int i = 0; i < BLOCK_RECORDS; i++)
            record_give(group, &made->records[i]);
    }
    threads_transfer *taken = group->records;
    group->records = taken->next;
    taken->next = NULL;
    taken->active = true;
    taken->completed = false;
    taken->status = CY_OK;
    taken->shadow_in = NULL;
    taken->shadow_out = NULL;
    *record = taken;
    return CY_OK;
}

// ---- the table

// In a checked run the buffers in flight hold NaN, so that a use before the wait shows. The
// operation goes on with copies.
static cy_status hide_buffers(threads_transfer *record, cy_operation *operation, int rank)
{
    const bool writes = operation->kind != CY_OP_SEND && operation->kind != CY_OP_BARRIER &&
        !(operation->kind == CY_OP_BROADCAST && operation->peer == rank);
    const size_t bytes = cy_view_bytes(operation->out);
    if (!writes || bytes == 0) return CY_OK;
    CY_TRY(cy_memory_alloc(&record->shadow_out, bytes, 1));
    record->real_out = operation->out;

    const char *out = operation->out.data;
    const char *in = operation->in.data;
    const size_t in_bytes = cy_view_bytes(operation->in);
    if (in == out && in_bytes == bytes) {
        memcpy(record->shadow_out, in, bytes);
        operation->in.data = record->shadow_out;
    } else if (in < out + bytes && out < in + in_bytes) {
        CY_TRY(cy_memory_alloc(&record->shadow_in, in_bytes, 1));
        memcpy(record->shadow_in, in, in_bytes);
        operation->in.data = record->shadow_in;
    }
    memset(operation->out.data, 0xff, bytes); // a NaN in every floating dtype
    operation->out.data = record->shadow_out;
    return CY_OK;
}

static cy_status threads_start(
    cy_group *base, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    (void)queue;
    threads_group *group = (threads_group *)base;
    CY_TRY(group_failure(group->shared));
    threads_transfer *record = NULL;
    CY_TRY(record_take(group, &record));
    record->base.kind = operation->kind;
    cy_operation hidden = *operation;
    cy_status status = CY_OK;
    if (group->rank->base.options.check) status = hide_buffers(record, &hidden, base->rank);
    if (status == CY_OK) {
        status = cy_operation_is_message(operation->kind)
            ? message_start(group, record, &hidden)
            : collective_start(group, record, &hidden);
    }
    if (status != CY_OK) {
        record_give(group, record);
        return status;
    }
    request->handle = record;
    return CY_OK;
}

static cy_status threads_wait(cy_group *base, cy_queue *queue, cy_transfer *transfer)
{
    threads_group *group = (threads_group *)base;
    threads_transfer *record = (threads_transfer *)transfer;
    const cy_status status = cy_operation_is_message(transfer->kind)
        ? message_wait(group, queue, record)
        : collective_wait(group, queue, record);
    if (status == CY_OK && record->shadow_out != NULL) {
        memcpy(record->real_out.data, record->shadow_out, cy_view_bytes(record->real_out));
    }
    record_give(group, record);
    return status;
}

// The member that a transfer waits for, or -1. For callers that test instead of waiting:
// algorithms.
static int awaited_member(threads_group *group, const threads_transfer *record)
{
    if (!cy_operation_is_message(record->base.kind)) {
        return record->completed ? -1 : descriptor_missing(group, record->sequence, 0);
    }
    return message_has_moved(group, record) ? -1 : record->peer;
}

static cy_status threads_check_peers(
    cy_group *base, const cy_transfer *transfer, cy_watchdog *watchdog)
{
    threads_group *group = (threads_group *)base;
    const threads_transfer *record = (const threads_transfer *)transfer;
    CY_TRY(group_failure(group->shared));
    const int member = awaited_member(group, record);
    if (member < 0) return CY_OK;
    const int missed = group->shared->ranks[member];
    const bool finished = atomic_load(&group->shared->run->pages[missed]->ended) != 0;
    if (awaited_member(group, record) != member) return CY_OK; // it has come since
    atomic_store(&group->rank->base.page->waiting_for, missed);
    return group_check_member(group, watchdog, member, finished, record);
}

static cy_status threads_test(cy_group *base, cy_transfer *transfer, bool *done)
{
    threads_group *group = (threads_group *)base;
    threads_transfer *record = (threads_transfer *)transfer;
    CY_TRY(group_failure(group->shared));
    *done = cy_operation_is_message(transfer->kind) ? message_test(group, record)
                                                    : collective_test(group, record);
    return CY_OK;
}

static void threads_abort_group(cy_group *base, const char *text)
{
    threads_group *group = (threads_group *)base;
    char whole[ABORT_TEXT_BYTES];
    snprintf(whole, sizeof(whole), "%s was aborted by rank %d (%s): %s", base->label,
        group->rank->base.rank, group->rank->run->host, text);
    group_fail(group->shared, CY_ERR_PEER, whole);
}

// ---- opening and closing

// Of the slots and the descriptor_rings, which share a mapping.
static size_t shared_bytes(int size)
{
    return SLOTS * sizeof(slot) + (size_t)size * sizeof(descriptor_ring);
}

void threads_shared_free(threads_shared *shared)
{
    for (int i = 0; shared->slots != NULL && i < SLOTS; i++) {
        for (int m = 0; shared->slots[i].entries != NULL && m < shared->size; m++) {
            cy_memory_free(shared->slots[i].entries[m].rows);
        }
        cy_memory_free(shared->slots[i].entries);
    }
    for (int m = 0; shared->descriptor_rings != NULL && m < shared->size; m++) {
        for (int i = 0; i < SLOTS; i++)
            cy_memory_free(shared->descriptor_rings[m].buffers[i]);
    }
    if (shared->slots != NULL) cy_memory_unmap(shared->slots, shared_bytes(shared->size));
    pairs_free(shared);
    cy_memory_free(shared->has_joined);
    cy_memory_free(shared->ranks);
    pthread_mutex_destroy(&shared->lock);
    cy_memory_free(shared);
}

// Withdraws a transfer that is in flight after a failure: others may not use its buffers any more.
static void abandon(threads_group *group, threads_transfer *record)
{
    if (cy_operation_is_message(record->base.kind)) {
        message_cancel(group, record);
    } else if (!record->small && !record->completed) {
        slot_cancel(group, record);
    }
}

static void threads_close(cy_group *base)
{
    threads_group *group = (threads_group *)base;
    for (struct record_block *block = group->blocks; block != NULL; block = block->next) {
        for (int i = 0; i < BLOCK_RECORDS; i++) {
            if (block->records[i].active) abandon(group, &block->records[i]);
        }
    }
    if (atomic_fetch_sub(&group->shared->open, 1) == 1) threads_shared_free(group->shared);
    while (group->blocks != NULL) {
        struct record_block *block = group->blocks;
        group->blocks = block->next;
        for (int i = 0; i < BLOCK_RECORDS; i++) {
            cy_memory_free(block->records[i].shadow_in);
            cy_memory_free(block->records[i].shadow_out);
        }
        cy_memory_free(block);
    }
    cy_memory_free(group);
}

static const cy_group_ops threads_group_ops = {
    .name = "threads",
    .start = threads_start,
    .wait = threads_wait,
    .test = threads_test,
    .check_peers = threads_check_peers,
    .abort = threads_abort_group,
    .close = threads_close,
};

static cy_status make_entries(threads_shared *made)
{
    for (int i = 0; i < SLOTS; i++) {
        atomic_store(&made->slots[i].turn, (uint64_t)i);
        CY_TRY(CY_ALLOC(&made->slots[i].entries, (size_t)made->size));
    }
    for (int m = 0; m < made->size; m++) {
        for (int i = 0; i < BUFFERS; i++) {
            CY_TRY(CY_ALLOC(&made->descriptor_rings[m].buffers[i], BUFFER_BYTES));
        }
    }
    return CY_OK;
}

static cy_status shared_make(
    threads_shared **shared, threads_run *run, const int *ranks, int count, const char *dimension)
{
    threads_shared *made;
    CY_TRY(CY_ALLOC(&made, 1));
    made->run = run;
    made->size = count;
    atomic_store(&made->open, count);
    pthread_mutex_init(&made->lock, NULL);
    snprintf(made->dimension, sizeof(made->dimension), "%s", dimension);
    cy_status status = CY_ALLOC(&made->ranks, (size_t)count);
    if (status != CY_OK) goto undo;
    memcpy(made->ranks, ranks, (size_t)count * sizeof(int));

    status = CY_ALLOC(&made->has_joined, (size_t)count);
    if (status != CY_OK) goto undo;

    status = pairs_make(made);
    if (status != CY_OK) goto undo;

    void *block = NULL;
    status = cy_memory_map(&block, shared_bytes(count));
    if (status != CY_OK) goto undo;
    made->slots = block;
    made->descriptor_rings = (descriptor_ring *)(void *)(made->slots + SLOTS);
    status = make_entries(made);
    if (status != CY_OK) goto undo;
    *shared = made;
    return CY_OK;

undo:
    threads_shared_free(made);
    return status;
}

static bool is_for(const threads_shared *shared, const int *ranks, int count, const char *dimension)
{
    return shared->size == count && strcmp(shared->dimension, dimension) == 0 &&
        memcmp(shared->ranks, ranks, (size_t)count * sizeof(int)) == 0;
}

// The first member to come makes what the members share; the last one takes it off the list, so
// that the same ranks can open another group.
static cy_status shared_join(threads_shared **shared, threads_run *run, const int *ranks, int count,
    const char *dimension, int place)
{
    cy_status status = CY_OK;
    pthread_mutex_lock(&run->lock);
    threads_shared **link = &run->groups;
    // `place` is one of this list: look at it only in a group that is for the same list.
    while (
        *link != NULL && !(is_for(*link, ranks, count, dimension) && !(*link)->has_joined[place])) {
        link = &(*link)->next;
    }
    if (*link == NULL) status = shared_make(link, run, ranks, count, dimension);
    if (status == CY_OK) {
        threads_shared *found = *link;
        found->has_joined[place] = true;
        found->joined++;
        if (found->joined == count) *link = found->next;
        *shared = found;
    }
    pthread_mutex_unlock(&run->lock);
    return status;
}

cy_status threads_open_group(
    cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension)
{
    threads_rank *rank = threads_rank_of(world);
    threads_group *made;
    CY_TRY(CY_ALLOC(&made, 1));
    int place = 0;
    while (ranks[place] != world->rank)
        place++;
    const cy_status status = shared_join(&made->shared, rank->run, ranks, count, dimension, place);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    cy_group_init(&made->base, &threads_group_ops, place, count, dimension);
    cy_group_set_generation(&made->base, world->generation);
    made->base.reduces_on_recv = true;
    made->base.guard = &rank->guard;
    made->rank = rank;
    *group = &made->base;
    return CY_OK;
}
