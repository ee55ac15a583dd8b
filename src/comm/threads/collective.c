// Collectives of threads. Members publish what they call in descriptors. Few bytes are read from
// the descriptors; the work on many bytes is cut into tasks, which members take while they wait.

#define _GNU_SOURCE
#include "base/memory.h"
#include "base/status.h"
#include "comm/reduce.h"
#include "comm/threads/threads.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

// The most bytes that a member reads from descriptors in one collective.
#define READ_BYTES ((size_t)4 * BUFFER_BYTES)

// How many descriptors ahead a line is prefetched.
#define AHEAD 3

// Up to so many bytes the last member to start does all the work at once: a handshake costs more.
#define ALONE_BYTES 32768

// Bytes of a task: enough that taking it costs little, few enough that members end at the same
// time.
#define GRAIN_MIN ((size_t)16 << 10)
#define GRAIN_MAX ((size_t)256 << 10)

static descriptor *descriptor_of(const threads_group *group, uint64_t sequence, int member)
{
    return &group->shared->descriptor_rings[member].descriptors[sequence % SLOTS];
}

// ---- descriptors: agreement

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
        (unsigned long long)sequence, group->base.label, one, other);
    group_fail(group->shared, status, cy_error_text());
    return status;
}

// Fails, and the group with it, when the descriptors that are there differ from this member's. All
// are compared with the first one that is there, so that all members report the same.
static cy_status descriptor_check(threads_group *group, uint64_t sequence)
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

// ---- descriptors: reading

int descriptor_missing(const threads_group *group, uint64_t sequence, int member)
{
    for (int m = member; m < group->base.size; m++) {
        if (!is_here(descriptor_of(group, sequence, m), sequence)) return m;
    }
    return -1;
}

// The data of a member in its descriptor.
static const char *descriptor_data(const threads_group *group, uint64_t sequence, int member)
{
    const descriptor *theirs = descriptor_of(group, sequence, member);
    return theirs->buffer != NULL ? theirs->buffer : theirs->data;
}

// This member needs nothing more from the others' descriptors.
static void descriptor_complete(threads_group *group, uint64_t sequence)
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
    // Sequentially consistent, as the loads of members that wait for this: one sees the other.
    atomic_store(&me->completed, now);
    if (atomic_load(&group->shared->late) > 0) group_notify(group->shared);
}

// ---- descriptors: writing

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

// A buffer that no member reads any more, the first one because it is in the cache.
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
        CY_TRY(CY_ALLOC(&buffers[at], BUFFER_BYTES));
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

// Wakes the members that sleep, except those that wait for another member first.
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

// Shows the members what this one calls, with the data of a small collective.
static void descriptor_publish(threads_group *group, threads_transfer *record)
{
    const cy_operation *o = &record->operation;
    const uint64_t sequence = record->sequence;
    descriptor *mine = descriptor_of(group, sequence, group->base.rank);
    mine->call = call_pack(o);
    mine->count = o->kind == CY_OP_ALL_TO_ALLV ? o->in.cols : cy_view_count(o->in);
    const size_t bytes = descriptor_bytes(group, record);
    // The buffer is this member's own; for the others it is const.
    char *place = mine->data;
    if (mine->buffer != NULL) memcpy(&place, &mine->buffer, sizeof(place));
    if (bytes > 0) memcpy(place, o->in.data, bytes);
    group->sequence++;
    group->in_flight[sequence % SLOTS] = record;
    cy_rank_page_set_call(group->rank->base.page, group->base.dimension, o->kind, sequence);
    atomic_store(&mine->sequence, sequence + 1);
    notify_readers(group, mine);
}

// ---- slots: agreement on uneven rows

static cy_status check_rows(const threads_group *group, const slot *at, uint64_t sequence)
{
    const threads_shared *shared = group->shared;
    for (int from = 0; from < shared->size; from++) {
        for (int to = 0; to < shared->size; to++) {
            const int64_t sent = at->entries[from].operation.in_rows[to];
            const int64_t awaited = at->entries[to].operation.out_rows[from];
            if (sent == awaited) continue;
            return CY_FAIL(CY_ERR_PEER,
                "all_to_allv %llu of %s: rank %d (%s) sends %lld rows to rank %d, which expects "
                "%lld",
                (unsigned long long)sequence, group->base.label, shared->ranks[from],
                shared->run->host, (long long)sent, shared->ranks[to], (long long)awaited);
        }
    }
    return CY_OK;
}

// ---- slots: how the work is cut into tasks

// Bytes of the chunks that an operation is cut into before the grain cuts them further.
static size_t chunk_bytes(const cy_operation *operation, int size)
{
    const size_t in = cy_view_bytes(operation->in);
    switch (operation->kind) {
    case CY_OP_ALL_REDUCE:
    case CY_OP_BROADCAST:
    case CY_OP_ALL_GATHER:
        return in;
    case CY_OP_REDUCE_SCATTER:
    case CY_OP_ALL_TO_ALL:
        return in / (size_t)size;
    case CY_OP_ALL_TO_ALLV:
    case CY_OP_BARRIER:
    case CY_OP_SEND:
    case CY_OP_RECV:
        return 0;
    }
    return 0;
}

// How many chunks there are: whole data, a part of each member, or a block of each pair.
static int64_t chunk_count(const cy_operation *operation, int size)
{
    switch (operation->kind) {
    case CY_OP_ALL_REDUCE:
    case CY_OP_BROADCAST:
        return 1;
    case CY_OP_ALL_GATHER:
    case CY_OP_REDUCE_SCATTER:
        return size;
    case CY_OP_ALL_TO_ALL:
    case CY_OP_ALL_TO_ALLV:
        return (int64_t)size * size;
    case CY_OP_BARRIER:
    case CY_OP_SEND:
    case CY_OP_RECV:
        return 0;
    }
    return 0;
}

static int64_t tasks_of_chunk(size_t bytes, size_t grain)
{
    return (int64_t)((bytes + grain - 1) / grain);
}

// Fills in tasks and grain of a slot whose members are all here; fails when they do not agree.
static cy_status slot_plan(threads_group *group, slot *at, uint64_t sequence)
{
    const threads_shared *shared = group->shared;
    const cy_operation *first = &at->entries[0].operation;
    CY_TRY(descriptor_check(group, sequence));
    if (first->kind == CY_OP_ALL_TO_ALLV) CY_TRY(check_rows(group, at, sequence));
    const int64_t chunks = chunk_count(first, shared->size);
    if (first->kind == CY_OP_ALL_TO_ALLV) {
        at->tasks = chunks; // blocks are uneven: one task each
        at->grain = GRAIN_MIN;
        return CY_OK;
    }
    const size_t bytes = chunk_bytes(first, shared->size);
    size_t grain = bytes / (4 * (size_t)shared->size);
    grain = grain < GRAIN_MIN ? GRAIN_MIN : grain > GRAIN_MAX ? GRAIN_MAX : grain;
    at->grain = grain / 64 * 64;
    at->tasks = chunks * tasks_of_chunk(bytes, at->grain);
    if (at->tasks > 0 && at->tasks == chunks && bytes < at->grain) at->grain = bytes;
    return CY_OK;
}

// ---- slots: one task

static char *out_of(const slot *at, int member)
{
    return at->entries[member].operation.out.data;
}

static const char *in_of(const slot *at, int member)
{
    return at->entries[member].operation.in.data;
}

// Bytes [offset, offset + bytes) of part `part` of every member's `in` into one or all outs.
static void reduce_chunk(
    const threads_shared *shared, slot *at, int part, size_t offset, size_t bytes)
{
    const cy_operation *o = &at->entries[0].operation;
    void *outs[CY_WORLD_THREADS];
    const void *ins[CY_WORLD_THREADS];
    const bool all = o->kind == CY_OP_ALL_REDUCE;
    const size_t skip = all ? 0 : (size_t)part * chunk_bytes(o, shared->size);
    for (int m = 0; m < shared->size; m++)
        ins[m] = in_of(at, m) + skip + offset;
    for (int m = 0; all && m < shared->size; m++)
        outs[m] = out_of(at, m) + offset;
    if (!all) outs[0] = out_of(at, part) + offset;
    const int64_t count = (int64_t)(bytes / cy_dtype_size(o->in.dtype));
    const bool overflow = cy_reduce_many(
        outs, all ? shared->size : 1, ins, shared->size, count, o->in.dtype, o->reduce);
    if (overflow) atomic_store_explicit(&at->overflow, true, memory_order_relaxed);
}

// Copies the same bytes of one member's data to a place in every member's out.
static void spread(const threads_shared *shared, const slot *at, int from, size_t skip,
    size_t offset, size_t bytes)
{
    const char *source = in_of(at, from) + offset;
    for (int m = 0; m < shared->size; m++) {
        char *target = out_of(at, m) + skip + offset;
        if (target != source) memcpy(target, source, bytes);
    }
}

static void exchange_uneven(const slot *at, int from, int to)
{
    const cy_operation *sender = &at->entries[from].operation;
    const cy_operation *receiver = &at->entries[to].operation;
    int64_t in_first = 0;
    int64_t out_first = 0;
    for (int m = 0; m < to; m++)
        in_first += sender->in_rows[m];
    for (int m = 0; m < from; m++)
        out_first += receiver->out_rows[m];
    const size_t row = (size_t)sender->in.cols * cy_dtype_size(sender->in.dtype);
    const size_t bytes = (size_t)sender->in_rows[to] * row;
    if (bytes == 0) return;
    memcpy(
        out_of(at, to) + (size_t)out_first * row, in_of(at, from) + (size_t)in_first * row, bytes);
}

static void slot_task(const threads_shared *shared, slot *at, int64_t task)
{
    const cy_operation *o = &at->entries[0].operation;
    const int size = shared->size;
    const size_t part_bytes = chunk_bytes(o, size);
    const int64_t per_piece =
        o->kind == CY_OP_ALL_TO_ALLV ? 1 : tasks_of_chunk(part_bytes, at->grain);
    const int chunk = (int)(task / per_piece);
    const size_t offset = (size_t)(task % per_piece) * at->grain;
    const size_t rest = part_bytes - offset;
    const size_t bytes = rest < at->grain ? rest : at->grain;
    switch (o->kind) {
    case CY_OP_ALL_REDUCE:
    case CY_OP_REDUCE_SCATTER:
        reduce_chunk(shared, at, chunk, offset, bytes);
        return;
    case CY_OP_ALL_GATHER:
        spread(shared, at, chunk, (size_t)chunk * part_bytes, offset, bytes);
        return;
    case CY_OP_BROADCAST:
        spread(shared, at, o->peer, 0, offset, bytes);
        return;
    case CY_OP_ALL_TO_ALL: {
        const int from = chunk / size;
        const int to = chunk % size;
        memcpy(out_of(at, to) + (size_t)from * part_bytes + offset,
            in_of(at, from) + (size_t)to * part_bytes + offset, bytes);
        return;
    }
    case CY_OP_ALL_TO_ALLV:
        exchange_uneven(at, chunk / size, chunk % size);
        return;
    case CY_OP_BARRIER:
    case CY_OP_SEND:
    case CY_OP_RECV:
        return;
    }
}

// ---- slots

typedef struct slot_context {
    threads_group *group;
    slot *at;
    const threads_transfer *record;
} slot_context;

static slot_context context_of(threads_group *group, const threads_transfer *record)
{
    return (slot_context){group, &group->shared->slots[record->turn % SLOTS], record};
}

// ---- slots: conditions to wait for

static bool is_free(const slot_context *c)
{
    return atomic_load(&c->at->turn) == c->record->turn;
}

static bool is_complete(void *context)
{
    const slot_context *c = context;
    return atomic_load(&c->at->state) != SLOT_OPEN;
}

static bool is_over(void *context)
{
    const slot_context *c = context;
    return atomic_load(&c->at->state) >= SLOT_DONE;
}

// Called a few times a second while a member is missing. A member that calls something small enters
// no slot, but its descriptor shows the difference; the group fails then.
static int first_absent(void *context)
{
    const slot_context *c = context;
    const int missing = descriptor_missing(c->group, c->record->sequence, 0);
    if (missing < 0 && descriptor_check(c->group, c->record->sequence) != CY_OK) return -1;
    return missing;
}

static int nobody(void *context)
{
    (void)context;
    return -1; // a member inside a task will come out of it
}

// ---- slots: work

static void finish_task(threads_shared *shared, slot *at)
{
    if (atomic_fetch_add_explicit(&at->finished, 1, memory_order_acq_rel) + 1 != at->tasks) return;
    int ready = SLOT_READY;
    if (atomic_compare_exchange_strong(&at->state, &ready, SLOT_DONE)) group_notify(shared);
}

// Takes one task; false when there is none left.
static bool help_once(const threads_group *group, slot *at)
{
    threads_shared *shared = group->shared;
    bool worked = false;
    if (!cy_guard_enter(&group->rank->guard)) return false;
    // Announced before the look at the state: a member that gives up waits until none is inside.
    atomic_fetch_add(&at->running, 1);
    if (atomic_load(&at->state) == SLOT_READY) {
        const int64_t task = atomic_fetch_add_explicit(&at->next, 1, memory_order_relaxed);
        if (task < at->tasks) {
            slot_task(shared, at, task);
            finish_task(shared, at);
            worked = true;
        }
    }
    atomic_fetch_sub(&at->running, 1);
    cy_guard_leave(&group->rank->guard);
    return worked;
}

static void help(void *context, int64_t task, int worker)
{
    (void)task;
    (void)worker;
    const slot_context *c = context;
    while (help_once(c->group, c->at)) {
    }
}

// The last member has come.
static cy_status open_tasks(threads_group *group, slot *at, uint64_t sequence)
{
    threads_shared *shared = group->shared;
    const cy_status status = slot_plan(group, at, sequence);
    if (status != CY_OK) {
        group_fail(shared, status, cy_error_text());
        atomic_store(&at->state, SLOT_FAILED);
        group_notify(shared);
        return status;
    }
    int open = SLOT_OPEN;
    const int next = at->tasks == 0 ? SLOT_DONE : SLOT_READY;
    if (!atomic_compare_exchange_strong(&at->state, &open, next)) return group_failure(shared);
    if (at->tasks > 0 && (size_t)at->tasks * at->grain <= ALONE_BYTES) {
        while (help_once(group, at)) {
        }
    } else {
        group_notify(shared);
    }
    return CY_OK;
}

// ---- slots: a member comes and goes

static cy_status fill_entry(slot_entry *entry, const cy_operation *operation, int size)
{
    entry->operation = *operation;
    if (operation->kind != CY_OP_ALL_TO_ALLV) return CY_OK;
    if (entry->rows == NULL) {
        CY_TRY(CY_ALLOC(&entry->rows, 2 * (size_t)size));
    }
    memcpy(entry->rows, operation->out_rows, (size_t)size * sizeof(int64_t));
    memcpy(entry->rows + size, operation->in_rows, (size_t)size * sizeof(int64_t));
    entry->operation.out_rows = entry->rows;
    entry->operation.in_rows = entry->rows + size;
    return CY_OK;
}

static cy_status slot_enter(threads_group *group, threads_transfer *record)
{
    record->turn = group->turn;
    slot_context context = context_of(group, record);
    CY_ASSERT(is_free(&context)); // all members have completed, and left, what was here before
    CY_TRY(
        fill_entry(&context.at->entries[group->base.rank], &record->operation, group->base.size));
    group->turn++;
    return CY_OK;
}

static cy_status slot_come(threads_group *group, threads_transfer *record)
{
    slot *at = context_of(group, record).at;
    if (atomic_fetch_add(&at->here, 1) + 1 < group->base.size) return CY_OK;
    return open_tasks(group, at, record->sequence);
}

void slot_cancel(threads_group *group, const threads_transfer *record)
{
    slot *at = context_of(group, record).at;
    int state = SLOT_OPEN;
    if (!atomic_compare_exchange_strong(&at->state, &state, SLOT_FAILED)) {
        state = SLOT_READY;
        (void)atomic_compare_exchange_strong(&at->state, &state, SLOT_FAILED);
    }
    while (atomic_load(&at->running) > 0)
        sched_yield();
}

static void leave(threads_group *group, slot *at, uint64_t turn)
{
    if (atomic_fetch_add(&at->left, 1) + 1 < group->base.size) return;
    atomic_store_explicit(&at->here, 0, memory_order_relaxed);
    atomic_store_explicit(&at->left, 0, memory_order_relaxed);
    atomic_store_explicit(&at->next, 0, memory_order_relaxed);
    atomic_store_explicit(&at->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&at->overflow, false, memory_order_relaxed);
    atomic_store_explicit(&at->state, SLOT_OPEN, memory_order_relaxed);
    atomic_store(&at->turn, turn + SLOTS);
}

static cy_status slot_complete(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    slot_context context = context_of(group, record);
    slot *at = context.at;
    cy_status status = CY_OK;
    if (!is_complete(&context)) {
        status = group_await(group, is_complete, first_absent, &context, record);
    }
    if (status == CY_OK && atomic_load(&at->state) == SLOT_READY) {
        const int workers = queue != NULL ? cy_queue_workers(queue) : 1;
        if (workers > 1 && at->tasks / 2 >= workers) {
            cy_queue_run(queue, help, &context, workers);
        } else {
            help(&context, 0, 0);
        }
        if (!is_over(&context)) status = group_await(group, is_over, nobody, &context, record);
    }
    if (status == CY_OK && atomic_load(&at->state) == SLOT_FAILED) {
        status = group_failure(group->shared);
    }
    if (status != CY_OK) {
        slot_cancel(group, record);
        return status;
    }
    if (queue != NULL && atomic_load_explicit(&at->overflow, memory_order_relaxed)) {
        cy_queue_note_overflow(queue);
    }
    leave(group, at, record->turn);
    return CY_OK;
}

static bool slot_test(threads_group *group, threads_transfer *record)
{
    slot_context context = context_of(group, record);
    if (atomic_load(&context.at->state) == SLOT_READY) help_once(group, context.at);
    return is_over(&context);
}

// ---- small collectives

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
        // About to sleep: publishes which descriptor it waits for, then looks once more, in case
        // that has just come. Others read this line at every call, so it is not written before.
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
    if (overflow && queue != NULL) cy_queue_note_overflow(queue);
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

// Completes a collective: in its wait, or when a later one needs its descriptor.
static cy_status collective_complete(
    threads_group *group, cy_queue *queue, threads_transfer *record)
{
    CY_TRY(
        record->small ? complete_small(group, queue, record) : slot_complete(group, queue, record));
    descriptor_complete(group, record->sequence);
    return CY_OK;
}

// Completes the collective a ring before this one, and waits until no member reads its descriptor
// any more. The record then has its operation, its sequence and whether it is small.
static cy_status descriptor_begin(
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
