// The work of a slot: whether the members' operations agree, how it is cut into tasks, and one
// task.

#include "base/status.h"
#include "comm/reduce.h"
#include "comm/threads/threads.h"

#include <stdio.h>
#include <string.h>

// A task is large enough to forget its handing out and small enough to share the end of the work.
#define GRAIN_MIN ((size_t)16 << 10)
#define GRAIN_MAX ((size_t)256 << 10)

// ---- agreement

static cy_status check_rows(const threads_shared *shared, const slot *at, uint64_t sequence)
{
    for (int from = 0; from < shared->size; from++) {
        for (int to = 0; to < shared->size; to++) {
            const int64_t sent = at->entries[from].operation.in_rows[to];
            const int64_t awaited = at->entries[to].operation.out_rows[from];
            if (sent == awaited) continue;
            return CY_FAIL(CY_ERR_PEER,
                "all_to_allv %llu of %s: rank %d (%s) sends %lld rows to rank %d, which expects "
                "%lld",
                (unsigned long long)sequence, shared->dimension, shared->ranks[from],
                shared->run->host, (long long)sent, shared->ranks[to], (long long)awaited);
        }
    }
    return CY_OK;
}

// ---- cutting

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

cy_status slot_plan(threads_group *group, slot *at, uint64_t sequence)
{
    const threads_shared *shared = group->shared;
    const cy_operation *first = &at->entries[0].operation;
    CY_TRY(descriptor_check(group, sequence));
    if (first->kind == CY_OP_ALL_TO_ALLV) CY_TRY(check_rows(shared, at, sequence));
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

// ---- doing

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

// The same bytes of one member's data, to a place in everybody's out.
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

void slot_task(const threads_shared *shared, slot *at, int64_t task)
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
