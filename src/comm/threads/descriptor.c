// What members tell each other about a collective, and how long it is held.

#include "base/memory.h"
#include "base/status.h"
#include "comm/threads/threads.h"

#include <stdio.h>
#include <string.h>

// A member reads the data of all others when they are small: so many bytes in all.
#define READ_BYTES ((size_t)4 * BUFFER_BYTES)

// How many descriptors ahead a line is asked for.
#define AHEAD 3

static descriptor *descriptor_of(const threads_group *group, uint64_t sequence, int member)
{
    return &group->shared->descriptor_rings[member].descriptors[sequence % SLOTS];
}

// ---- agreement

static bool reduces(cy_operation_kind kind)
{
    return kind == CY_OP_ALL_REDUCE || kind == CY_OP_REDUCE_SCATTER;
}

// All that the members must agree on, apart from the count.
static uint64_t call_pack(const cy_operation *o)
{
    const uint64_t reduce = reduces(o->kind) ? (uint64_t)o->reduce : 0;
    const uint64_t root = o->kind == CY_OP_BROADCAST ? (uint64_t)o->peer : 0;
    return (uint64_t)o->kind | reduce << 4 | (uint64_t)o->in.dtype << 8 |
        (uint64_t)(uint16_t)o->in.exponent << 16 | root << 32;
}

static void call_describe(
    const threads_shared *shared, const descriptor *said, int member, char *text, size_t n)
{
    const cy_operation_kind kind = (cy_operation_kind)(said->call & 15);
    const char *host = shared->run->host;
    const int rank = shared->ranks[member];
    const char *name = cy_operation_name(kind);
    const long long count = said->count;
    const char *dtype = cy_dtype_name((cy_dtype)(said->call >> 8 & 255));
    if (kind == CY_OP_BARRIER) {
        snprintf(text, n, "rank %d (%s) calls %s", rank, host, name);
    } else if (kind == CY_OP_ALL_TO_ALLV) {
        snprintf(
            text, n, "rank %d (%s) calls %s of rows of %lld %s", rank, host, name, count, dtype);
    } else if (kind == CY_OP_BROADCAST) {
        snprintf(text, n, "rank %d (%s) calls %s of %lld %s from %d", rank, host, name, count,
            dtype, (int)(said->call >> 32));
    } else if (reduces(kind)) {
        snprintf(text, n, "rank %d (%s) calls %s of %lld %s, %s", rank, host, name, count, dtype,
            cy_reduce_op_name((cy_reduce_op)(said->call >> 4 & 15)));
    } else {
        snprintf(text, n, "rank %d (%s) calls %s of %lld %s", rank, host, name, count, dtype);
    }
}

static bool is_here(const descriptor *said, uint64_t sequence)
{
    return atomic_load_explicit(&said->sequence, memory_order_acquire) == sequence + 1;
}

static bool agree(const descriptor *a, const descriptor *b)
{
    return a->call == b->call && a->count == b->count;
}

static cy_status report_difference(threads_group *group, uint64_t sequence, int first, int second)
{
    const threads_shared *shared = group->shared;
    char one[256];
    char other[256];
    call_describe(shared, descriptor_of(group, sequence, first), first, one, sizeof(one));
    call_describe(shared, descriptor_of(group, sequence, second), second, other, sizeof(other));
    const cy_status status = CY_FAIL(CY_ERR_PEER, "collective %llu of %s: %s, but %s",
        (unsigned long long)sequence, shared->dimension, one, other);
    group_fail(group->shared, status, cy_error_text());
    return status;
}

// All are compared with the first one that is there, so that all members say the same.
cy_status descriptor_check(threads_group *group, uint64_t sequence)
{
    int first = 0;
    while (!is_here(descriptor_of(group, sequence, first), sequence))
        first++; // this member's own is there
    for (int m = first + 1; m < group->base.size; m++) {
        const descriptor *theirs = descriptor_of(group, sequence, m);
        if (!is_here(theirs, sequence)) continue;
        if (agree(theirs, descriptor_of(group, sequence, first))) continue;
        return report_difference(group, sequence, first, m);
    }
    return CY_OK;
}

// ---- reading

int descriptor_missing(const threads_group *group, uint64_t sequence, int member)
{
    for (int m = member; m < group->base.size; m++) {
        if (!is_here(descriptor_of(group, sequence, m), sequence)) return m;
    }
    return -1;
}

const char *descriptor_data(const threads_group *group, uint64_t sequence, int member)
{
    const descriptor *theirs = descriptor_of(group, sequence, member);
    return theirs->buffer != NULL ? theirs->buffer : theirs->data;
}

void descriptor_complete(threads_group *group, uint64_t sequence)
{
    descriptor_ring *me = &group->shared->descriptor_rings[group->base.rank];
    const uint64_t before = atomic_load_explicit(&me->completed, memory_order_relaxed);
    uint64_t now = before;
    group->done[sequence % SLOTS] = true;
    while (group->done[now % SLOTS]) {
        group->done[now % SLOTS] = false;
        now++;
    }
    if (now == before) return;
    // The lines of the next descriptors have been read by the others; ask for one before it is
    // needed.
    __builtin_prefetch(&me->descriptors[(group->sequence + AHEAD) % SLOTS], 1);
    // Sequentially consistent, as the looks of those who are late: one of the two is seen.
    atomic_store(&me->completed, now);
    if (atomic_load(&group->shared->late) > 0) group_notify(group->shared);
}

// ---- writing

// Fewest collectives that a member has completed.
static uint64_t look_behind(const threads_group *group)
{
    uint64_t least = UINT64_MAX;
    for (int m = 0; m < group->base.size; m++) {
        const uint64_t completed = atomic_load(&group->shared->descriptor_rings[m].completed);
        if (completed < least) least = completed;
    }
    return least;
}

typedef struct late_context {
    threads_group *group;
    uint64_t wanted; // number of completed collectives
} late_context;

static bool has_completed(void *context)
{
    const late_context *c = context;
    c->group->behind = look_behind(c->group);
    return c->group->behind >= c->wanted;
}

static int first_incomplete(void *context)
{
    const late_context *c = context;
    for (int m = 0; m < c->group->base.size; m++) {
        if (atomic_load(&c->group->shared->descriptor_rings[m].completed) < c->wanted) return m;
    }
    return -1;
}

static cy_status await_ring(threads_group *group, const threads_transfer *record)
{
    late_context context = {group, record->sequence + 1 - SLOTS};
    if (group->behind >= context.wanted || has_completed(&context)) return CY_OK;
    atomic_fetch_add(&group->shared->late, 1);
    const cy_status status = group_await(group, has_completed, first_incomplete, &context, record);
    atomic_fetch_sub(&group->shared->late, 1);
    return status;
}

// A buffer that nobody reads any more, the first one because it is in the cache.
static int find_buffer(const threads_group *group, char *const *buffers)
{
    int at = 0;
    while (at < SLOTS && buffers[at] != NULL && group->until[at] > group->behind)
        at++;
    return at;
}

static cy_status acquire_buffer(threads_group *group, uint64_t sequence, const char **buffer)
{
    char **buffers = group->shared->descriptor_rings[group->base.rank].buffers;
    int at = find_buffer(group, buffers);
    if (at >= BUFFERS || buffers[at] == NULL) {
        group->behind = look_behind(group);
        at = find_buffer(group, buffers);
    }
    CY_ASSERT(at < SLOTS); // nobody reads what is a ring behind
    if (buffers[at] == NULL) {
        void *block = NULL;
        CY_TRY(cy_memory_alloc(&block, 1, BUFFER_BYTES));
        buffers[at] = block;
    }
    group->until[at] = sequence + 1;
    *buffer = buffers[at];
    return CY_OK;
}

static bool is_small(const cy_operation *o, int size)
{
    if (o->kind == CY_OP_ALL_TO_ALLV) return false; // parts differ, members must not
    const size_t bytes = cy_view_bytes(o->in);
    return bytes <= BUFFER_BYTES && bytes * (size_t)size <= READ_BYTES;
}

// Bytes that others read in this member's descriptor.
static size_t descriptor_bytes(const threads_group *group, const threads_transfer *record)
{
    const cy_operation *o = &record->operation;
    if (!record->small || o->kind == CY_OP_BARRIER) return 0;
    if (o->kind == CY_OP_BROADCAST && o->peer != group->base.rank) return 0;
    return cy_view_bytes(o->in);
}

cy_status descriptor_begin(
    threads_group *group, threads_transfer *record, const cy_operation *operation)
{
    const uint64_t sequence = group->sequence;
    record->sequence = sequence;
    record->operation = *operation;
    record->small = is_small(operation, group->base.size);
    threads_transfer *old = group->in_flight[sequence % SLOTS];
    if (old != NULL) {
        old->status = collective_complete(group, NULL, old);
        old->completed = true;
        group->in_flight[sequence % SLOTS] = NULL;
    }
    if (sequence >= SLOTS) CY_TRY(await_ring(group, record));
    descriptor *mine = descriptor_of(group, sequence, group->base.rank);
    mine->buffer = NULL;
    if (descriptor_bytes(group, record) <= DESCRIPTOR_BYTES) return CY_OK;
    return acquire_buffer(group, sequence, &mine->buffer);
}

// Wakes who sleeps, unless it waits for somebody else first.
static void notify_readers(const threads_group *group, const descriptor *mine)
{
    const threads_shared *shared = group->shared;
    for (int m = 0; m < shared->size; m++) {
        threads_rank *rank = rank_of(shared->run, shared->ranks[m]);
        if (atomic_load(&rank->parked) == 0) continue;
        const void *wanted = atomic_load(&rank->wanted);
        if (wanted == NULL || wanted == mine) rank_notify(rank);
    }
}

void descriptor_publish(threads_group *group, threads_transfer *record)
{
    const cy_operation *o = &record->operation;
    const uint64_t sequence = record->sequence;
    descriptor *mine = descriptor_of(group, sequence, group->base.rank);
    mine->call = call_pack(o);
    mine->count = o->kind == CY_OP_ALL_TO_ALLV ? o->in.cols : cy_view_count(o->in);
    const size_t bytes = descriptor_bytes(group, record);
    // The buffer is this member's own; the others are told that they may only read.
    char *place = mine->data;
    if (mine->buffer != NULL) memcpy(&place, &mine->buffer, sizeof(place));
    if (bytes > 0) memcpy(place, o->in.data, bytes);
    group->sequence++;
    group->in_flight[sequence % SLOTS] = record;
    cy_rank_page_set_call(group->rank->base.page, group->base.dimension, o->kind, sequence);
    atomic_store(&mine->sequence, sequence + 1);
    notify_readers(group, mine);
}
