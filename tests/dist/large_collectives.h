// tests/dist/large_collectives.h: collectives of many megabytes, in every dtype and with every
// reduction, against a serial reference.
//
// Operands repeat after PERIOD elements, a prime, so that a result is compared block by block, at
// the rate of memory. They are small integers: sums are exact in every dtype, so results must be
// equal.

#ifndef CY_TESTS_DIST_LARGE_COLLECTIVES_H
#define CY_TESTS_DIST_LARGE_COLLECTIVES_H

#include "dist/group_suite.h"

#define PERIOD 1009

typedef struct large_job {
    int64_t bytes; // of a tensor; the number of elements is rounded down
    int64_t more;  // elements beyond it
} large_job;

// Fills with the operand of `rank`, which `shift` elements stand in front of.
static inline void large_fill(
    void *data, cy_dtype dtype, int64_t count, int rank, cy_reduce_op op, int64_t shift)
{
    char block[PERIOD * 8];
    const size_t size = cy_dtype_size(dtype);
    for (int64_t i = 0; i < PERIOD; i++)
        suite_set(block, dtype, i, suite_operand(rank, (i + shift) % PERIOD, op));
    for (int64_t at = 0; at < count; at += PERIOD) {
        const int64_t here = count - at < PERIOD ? count - at : PERIOD;
        memcpy((char *)data + (size_t)at * size, block, (size_t)here * size);
    }
}

// Whether the elements are the reduction over `ranks`, the first of them element `shift`.
static inline cy_status large_expect(const void *data, cy_dtype dtype, int64_t count, int ranks,
    cy_reduce_op op, int64_t shift, const char *what)
{
    char block[PERIOD * 8];
    const size_t size = cy_dtype_size(dtype);
    for (int64_t i = 0; i < PERIOD; i++)
        suite_set(block, dtype, i, suite_expected(ranks, (i + shift) % PERIOD, op, dtype));
    for (int64_t at = 0; at < count; at += PERIOD) {
        const int64_t here = count - at < PERIOD ? count - at : PERIOD;
        SUITE_EXPECT(
            memcmp((const char *)data + (size_t)at * size, block, (size_t)here * size) == 0,
            "%s, reduction %d of %lld %s over %d ranks differs between elements %lld and %lld",
            what, (int)op, (long long)count, cy_dtype_name(dtype), ranks, (long long)at,
            (long long)(at + here));
    }
    return CY_OK;
}

// All-reduce; and reduce-scatter of as many whole parts as there are, then gathered again.
static inline cy_status large_reductions(
    cy_group *group, cy_queue *queue, cy_dtype dtype, cy_reduce_op op, int64_t count)
{
    const int rank = cy_group_rank(group), size = cy_group_size(group);
    const int64_t part = count / size;
    char *data = suite_take(queue, count, dtype);
    char *own = suite_take(queue, part, dtype);
    large_fill(data, dtype, count, rank, op, 0);
    CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(data, dtype, 1, count), op));
    CY_TRY(large_expect(data, dtype, count, size, op, 0, "all_reduce"));
    CY_TRY(suite_sentinel(data, count, dtype));
    large_fill(data, dtype, count, rank, op, 0);
    const cy_view all = cy_view_of(data, dtype, size, part), mine = cy_view_of(own, dtype, 1, part);
    CY_TRY(cy_group_reduce_scatter(group, queue, mine, all, op));
    CY_TRY(large_expect(own, dtype, part, size, op, part * rank, "reduce_scatter"));
    CY_TRY(cy_group_all_gather(group, queue, all, mine));
    CY_TRY(large_expect(data, dtype, part * size, size, op, 0, "all_gather"));
    CY_TRY(suite_sentinel(data, count, dtype));
    return suite_sentinel(own, part, dtype);
}

// Everybody's part number r to rank r: operand `rank` of what stands at part r.
static inline cy_status large_exchange(
    cy_group *group, cy_queue *queue, cy_dtype dtype, int64_t count)
{
    const int rank = cy_group_rank(group), size = cy_group_size(group);
    const int64_t part = count / size;
    const size_t bytes = (size_t)part * cy_dtype_size(dtype);
    char *data = suite_take(queue, part * size, dtype);
    char *got = suite_take(queue, part * size, dtype);
    for (int to = 0; to < size; to++)
        large_fill(data + bytes * (size_t)to, dtype, part, 0, CY_MAX, 3 * rank + to);
    cy_request request = {0};
    CY_TRY(cy_group_start_all_to_all(group, queue, &request, cy_view_of(got, dtype, size, part),
        cy_view_of(data, dtype, size, part)));
    CY_TRY(cy_group_wait(group, queue, &request));
    for (int from = 0; from < size; from++) {
        CY_TRY(large_expect(
            got + bytes * (size_t)from, dtype, part, 1, CY_MAX, 3 * from + rank, "all_to_all"));
    }
    return suite_sentinel(got, part * size, dtype);
}

// Broadcast from the last rank, and a message round the ring.
static inline cy_status large_moves(cy_group *group, cy_queue *queue, cy_dtype dtype, int64_t count)
{
    const int rank = cy_group_rank(group), size = cy_group_size(group);
    char *data = suite_take(queue, count, dtype);
    char *got = suite_take(queue, count, dtype);
    const cy_view out = cy_view_of(data, dtype, 1, count), in = cy_view_of(got, dtype, 1, count);
    // An operand of one rank is the reduction over one.
    large_fill(data, dtype, count, rank == size - 1 ? 0 : 3, CY_MAX, 0);
    CY_TRY(cy_group_broadcast(group, queue, out, size - 1));
    CY_TRY(large_expect(data, dtype, count, 1, CY_MAX, 0, "broadcast"));
    if (size == 1) return CY_OK;
    cy_request send = {0}, recv = {0};
    large_fill(data, dtype, count, 0, CY_MAX, rank);
    CY_TRY(cy_group_start_recv(group, queue, &recv, in, (rank + size - 1) % size, 1));
    CY_TRY(cy_group_start_send(group, queue, &send, out, (rank + 1) % size, 1));
    CY_TRY(cy_group_wait(group, queue, &recv));
    CY_TRY(cy_group_wait(group, queue, &send));
    CY_TRY(large_expect(got, dtype, count, 1, CY_MAX, (rank + size - 1) % size, "send"));
    return suite_sentinel(got, count, dtype);
}

static inline cy_status large_rank(cy_world *world, void *context)
{
    const large_job *job = context;
    cy_group *group = NULL;
    cy_thread_pool *pool = NULL;
    void *memory = NULL;
    cy_arena scratch;
    const size_t bytes = 2 * ((size_t)job->bytes + 8 * (size_t)job->more + 4096);
    CY_TRY(cy_memory_map(&memory, bytes));
    cy_arena_init(&scratch, "large", memory, bytes);
    CY_TRY(cy_thread_pool_open(&pool, 1, -1, false));
    cy_queue with = {.pool = pool, .heartbeat = cy_world_heartbeat(world), .scratch = &scratch};
    cy_queue *queue = &with;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    for (size_t d = 0; d < sizeof(suite_dtypes) / sizeof(suite_dtypes[0]); d++) {
        const cy_dtype dtype = suite_dtypes[d];
        const int64_t count = job->bytes / (int64_t)cy_dtype_size(dtype) + job->more;
        for (int op = CY_SUM; op <= CY_PROD; op++) {
            if (dtype == CY_FX64 && op == CY_PROD) continue; // fixed point is not multiplied
            SUITE_RUN(large_reductions(group, queue, dtype, (cy_reduce_op)op, count));
        }
        SUITE_RUN(large_exchange(group, queue, dtype, count));
        SUITE_RUN(large_moves(group, queue, dtype, count));
    }
    // After a failure the memory stays: other ranks may be at work in it.
    cy_group_close(group);
    cy_thread_pool_close(pool);
    cy_memory_unmap(memory, bytes);
    return CY_OK;
}

static inline void large_collectives(int ranks, large_job job)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = ranks;
    CY_CHECK_OK(cy_world_run_threads(&options, large_rank, &job));
}

#endif
