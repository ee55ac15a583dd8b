// Collectives of few bytes, which are read from descriptors, and the choice between these and
// slots.

#include "comm/reduce.h"
#include "comm/threads/threads.h"

#include <string.h>

typedef struct reading {
    threads_group *group;
    const threads_transfer *record;
    int next; // member whose descriptor has not been seen yet
    int end;  // behind the last one to read
} reading;

// Broadcasts are read by all but the root, from the root; everything else by all, from all.
static reading reading_of(threads_group *group, const threads_transfer *record)
{
    reading r = {group, record, 0, group->base.size};
    const cy_operation *o = &record->operation;
    if (o->kind != CY_OP_BROADCAST) return r;
    r.next = o->peer;
    r.end = o->peer == group->base.rank ? o->peer : o->peer + 1;
    return r;
}

static bool are_here(void *context)
{
    reading *r = context;
    const uint64_t sequence = r->record->sequence;
    threads_rank *rank = r->group->rank;
    for (;;) {
        const int missing = descriptor_missing(r->group, sequence, r->next);
        if (missing < 0 || missing >= r->end) return true;
        r->next = missing;
        if (atomic_load_explicit(&rank->parked, memory_order_relaxed) == 0) return false;
        // About to sleep: whom this rank wants to be woken by, then one more look, in case it has
        // just come. Others read that line at every call, so it is left alone before.
        const void *wanted =
            &r->group->shared->descriptor_rings[missing].descriptors[sequence % SLOTS];
        if (atomic_load_explicit(&rank->wanted, memory_order_relaxed) == wanted) return false;
        atomic_store(&rank->wanted, wanted);
    }
}

static int first_missing(void *context)
{
    const reading *r = context;
    const int missing = descriptor_missing(r->group, r->record->sequence, r->next);
    return missing < r->end ? missing : -1;
}

static void reduce(threads_group *group, cy_queue *queue, const threads_transfer *record)
{
    const cy_operation *o = &record->operation;
    const void *ins[CY_WORLD_THREADS];
    const bool part = o->kind == CY_OP_REDUCE_SCATTER;
    const size_t skip = part ? cy_view_bytes(o->out) * (size_t)group->base.rank : 0;
    for (int m = 0; m < group->base.size; m++)
        ins[m] = descriptor_data(group, record->sequence, m) + skip;
    void *out = o->out.data;
    const int64_t count = cy_view_count(o->out);
    const bool overflow =
        cy_reduce_many(&out, 1, ins, group->base.size, count, o->in.dtype, o->reduce);
    if (overflow && queue != NULL) atomic_store(&queue->fixed_overflow, true);
}

// Every member's data, or this member's part of them, in order of rank.
static void collect(threads_group *group, const threads_transfer *record)
{
    const cy_operation *o = &record->operation;
    const size_t size = (size_t)group->base.size;
    const bool part = o->kind == CY_OP_ALL_TO_ALL;
    const size_t bytes = cy_view_bytes(o->in) / (part ? size : 1);
    const size_t skip = part ? bytes * (size_t)group->base.rank : 0;
    char *out = o->out.data;
    for (size_t m = 0; bytes > 0 && m < size; m++)
        memcpy(out + m * bytes, descriptor_data(group, record->sequence, (int)m) + skip, bytes);
}

static void read_descriptors(threads_group *group, cy_queue *queue, const threads_transfer *record)
{
    const cy_operation *o = &record->operation;
    switch (o->kind) {
    case CY_OP_ALL_REDUCE:
    case CY_OP_REDUCE_SCATTER:
        reduce(group, queue, record);
        return;
    case CY_OP_ALL_GATHER:
    case CY_OP_ALL_TO_ALL:
        collect(group, record);
        return;
    case CY_OP_BROADCAST: {
        const size_t bytes = cy_view_bytes(o->out);
        if (o->peer == group->base.rank || bytes == 0) return;
        memcpy(o->out.data, descriptor_data(group, record->sequence, o->peer), bytes);
        return;
    }
    case CY_OP_ALL_TO_ALLV:
    case CY_OP_BARRIER:
    case CY_OP_SEND:
    case CY_OP_RECV:
        return;
    }
}

static cy_status complete_small(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    reading r = reading_of(group, record);
    cy_status status = CY_OK;
    if (!are_here(&r)) status = group_await(group, are_here, first_missing, &r, record);
    if (status == CY_OK) status = descriptor_check(group, record->sequence);
    if (status != CY_OK) return status;
    read_descriptors(group, queue, record);
    return CY_OK;
}

cy_status collective_complete(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    CY_TRY(
        record->small ? complete_small(group, queue, record) : slot_complete(group, queue, record));
    descriptor_complete(group, record->sequence);
    return CY_OK;
}

cy_status collective_start(
    threads_group *group, threads_transfer *record, const cy_operation *operation)
{
    CY_TRY(descriptor_begin(group, record, operation));
    if (!record->small) CY_TRY(slot_enter(group, record));
    descriptor_publish(group, record);
    if (record->small) return CY_OK;
    const cy_status status = slot_come(group, record);
    if (status != CY_OK) group->in_flight[record->sequence % SLOTS] = NULL;
    return status;
}

cy_status collective_wait(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    if (record->completed) {
        if (record->status != CY_OK) return group_failure(group->shared);
        return CY_OK;
    }
    rank_heartbeat(group->rank);
    const cy_status status = collective_complete(group, queue, record);
    group->in_flight[record->sequence % SLOTS] = NULL;
    return status;
}

bool collective_test(threads_group *group, threads_transfer *record)
{
    if (record->completed) return true;
    if (!record->small) return slot_test(group, record);
    const reading r = reading_of(group, record);
    const int missing = descriptor_missing(group, record->sequence, r.next);
    return missing < 0 || missing >= r.end;
}
