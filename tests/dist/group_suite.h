// tests/dist/group_suite.h: what every backend of groups must do, run by each rank of a world.
//
// The operands are small integers, so that sums are exact in every dtype and the results must be
// equal to a serial reference, not close to it.

#ifndef CY_TESTS_DIST_GROUP_SUITE_H
#define CY_TESTS_DIST_GROUP_SUITE_H

#include "support/support.h"
#include "support/worlds.h"

#include "base/memory.h"
#include "base/numbers.h"

#include <stdio.h>
#include <string.h>

// cmocka's assertions jump, and a rank may be a thread: a rank that finds a difference returns a
// failure instead, which the run reports.
#define SUITE_EXPECT(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) return CY_FAIL(CY_ERR_CORRUPT, __VA_ARGS__);                             \
    } while (0)

static inline void suite_set(void *data, cy_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case CY_F32:
        ((float *)data)[i] = (float)value;
        break;
    case CY_F64:
        ((double *)data)[i] = value;
        break;
    case CY_BF16:
        ((cy_bf16 *)data)[i] = cy_bf16_from_f32((float)value);
        break;
    case CY_F16:
        ((cy_f16 *)data)[i] = cy_f16_from_f32((float)value);
        break;
    case CY_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case CY_I64:
    case CY_FX64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case CY_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    }
}

static inline double suite_get(const void *data, cy_dtype dtype, int64_t i)
{
    switch (dtype) {
    case CY_F32:
        return (double)((const float *)data)[i];
    case CY_F64:
        return ((const double *)data)[i];
    case CY_BF16:
        return (double)cy_bf16_to_f32(((const cy_bf16 *)data)[i]);
    case CY_F16:
        return (double)cy_f16_to_f32(((const cy_f16 *)data)[i]);
    case CY_I32:
        return ((const int32_t *)data)[i];
    case CY_I64:
    case CY_FX64:
        return (double)((const int64_t *)data)[i];
    case CY_U8:
        return ((const uint8_t *)data)[i];
    }
    return 0.0;
}

// What rank `rank` brings at element i: -3 to 4, or 1 and 2 for products.
static inline double suite_operand(int rank, int64_t i, cy_reduce_op op)
{
    const uint64_t mixed = ((uint64_t)i * 2654435761u + (uint64_t)rank * 40503u) >> 7;
    return op == CY_PROD ? (double)(1 + mixed % 2) : (double)(mixed % 8) - 3.0;
}

// The reduction over `ranks` at element i, as the dtype rounds it.
static inline double suite_expected(int ranks, int64_t i, cy_reduce_op op, cy_dtype dtype)
{
    double result = suite_operand(0, i, op);
    for (int r = 1; r < ranks; r++) {
        const double x = suite_operand(r, i, op);
        if (op == CY_SUM || op == CY_AVG) result += x;
        if (op == CY_PROD) result *= x;
        if (op == CY_MIN && x < result) result = x;
        if (op == CY_MAX && x > result) result = x;
    }
    if (op != CY_AVG) return result;
    const bool whole = dtype == CY_I32 || dtype == CY_I64 || dtype == CY_FX64;
    const int64_t quotient = (int64_t)result / ranks;
    if (whole) return (double)quotient;
    if (dtype == CY_F64) return result / ranks;
    double rounded = 0.0;
    suite_set(&rounded, dtype, 0, (double)((float)result / (float)ranks));
    return suite_get(&rounded, dtype, 0);
}

// From the queue's scratch memory, which suite_group takes back.
static inline void *suite_take(cy_queue *queue, int64_t count, cy_dtype dtype)
{
    const size_t bytes = (size_t)count * cy_dtype_size(dtype) + 16;
    void *data = cy_arena_alloc(queue->scratch, bytes);
    memset(data, 0x5a, bytes); // also the sentinel behind the last element
    return data;
}

// What one test of the suite takes at most.
static inline size_t suite_bytes(int ranks, int64_t large)
{
    const size_t tensor = ((size_t)large + 4099 * (size_t)ranks) * 8;
    const size_t messages = (size_t)20000 * 2 * 48 * sizeof(int32_t);
    return 2 * tensor + messages + ((size_t)1 << 20);
}

static inline cy_status suite_sentinel(const char *data, int64_t count, cy_dtype dtype)
{
    const char *end = data + (size_t)count * cy_dtype_size(dtype);
    for (int i = 0; i < 16; i++)
        SUITE_EXPECT(end[i] == 0x5a, "written behind the end");
    return CY_OK;
}

static inline cy_status suite_all_reduce(
    cy_group *group, cy_queue *queue, cy_dtype dtype, cy_reduce_op op, int64_t count)
{
    char *data = suite_take(queue, count, dtype);
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    for (int64_t i = 0; i < count; i++)
        suite_set(data, dtype, i, suite_operand(rank, i, op));
    CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(data, dtype, 1, count), op));
    for (int64_t i = 0; i < count; i++) {
        const double wanted = suite_expected(size, i, op, dtype);
        SUITE_EXPECT(suite_get(data, dtype, i) == wanted,
            "all_reduce op %d of %lld %s: element %lld is %g, not %g", (int)op, (long long)count,
            cy_dtype_name(dtype), (long long)i, suite_get(data, dtype, i), wanted);
    }
    return suite_sentinel(data, count, dtype);
}

// Reduce-scatter into a place of its own and into its own part, then gather the parts again.
static inline cy_status suite_scatter_gather(
    cy_group *group, cy_queue *queue, cy_dtype dtype, cy_reduce_op op, int64_t part)
{
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    const int64_t count = part * size;
    char *whole = suite_take(queue, count, dtype);
    char *own = suite_take(queue, part, dtype);
    for (int64_t i = 0; i < count; i++)
        suite_set(whole, dtype, i, suite_operand(rank, i, op));
    const cy_view all = cy_view_of(whole, dtype, size, part);
    const cy_view mine = cy_view_of(own, dtype, 1, part);
    CY_TRY(cy_group_reduce_scatter(group, queue, mine, all, op));
    CY_TRY(cy_group_reduce_scatter(group, queue, cy_view_rows(all, rank, 1), all, op));
    for (int64_t i = 0; i < part; i++) {
        const double wanted = suite_expected(size, part * rank + i, op, dtype);
        SUITE_EXPECT(suite_get(own, dtype, i) == wanted, "reduce_scatter op %d of %s: element %lld",
            (int)op, cy_dtype_name(dtype), (long long)i);
        SUITE_EXPECT(suite_get(whole, dtype, part * rank + i) == wanted,
            "reduce_scatter op %d of %s in place: element %lld", (int)op, cy_dtype_name(dtype),
            (long long)i);
    }
    CY_TRY(cy_group_all_gather(group, queue, all, mine));
    CY_TRY(cy_group_all_gather(group, queue, all, cy_view_rows(all, rank, 1)));
    for (int64_t i = 0; i < count; i++) {
        SUITE_EXPECT(suite_get(whole, dtype, i) == suite_expected(size, i, op, dtype),
            "all_gather of %s: element %lld", cy_dtype_name(dtype), (long long)i);
    }
    CY_TRY(suite_sentinel(whole, count, dtype));
    return suite_sentinel(own, part, dtype);
}

// A message to the right and one from the left.
static inline cy_status suite_neighbours(
    cy_group *group, cy_queue *queue, cy_dtype dtype, int64_t count)
{
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    if (size == 1) return CY_OK;
    const int left = (rank + size - 1) % size;
    char *out = suite_take(queue, count, dtype);
    char *in = suite_take(queue, count, dtype);
    for (int64_t i = 0; i < count; i++)
        suite_set(out, dtype, i, (double)((i + (int64_t)rank * 7) % 100));
    cy_request send = {0}, recv = {0};
    CY_TRY(cy_group_start_send(
        group, queue, &send, cy_view_of(out, dtype, 1, count), (rank + 1) % size, 5));
    CY_TRY(cy_group_start_recv(group, queue, &recv, cy_view_of(in, dtype, 1, count), left, 5));
    CY_TRY(cy_group_wait(group, queue, &recv));
    CY_TRY(cy_group_wait(group, queue, &send));
    for (int64_t i = 0; i < count; i++) {
        SUITE_EXPECT(suite_get(in, dtype, i) == (double)((i + (int64_t)left * 7) % 100),
            "message of %lld %s: element %lld", (long long)count, cy_dtype_name(dtype),
            (long long)i);
    }
    return suite_sentinel(in, count, dtype);
}

static inline cy_status suite_moves(cy_group *group, cy_queue *queue, cy_dtype dtype, int64_t part)
{
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    char *in = suite_take(queue, part * size, dtype);
    char *out = suite_take(queue, part * size, dtype);
    for (int64_t i = 0; i < part * size; i++)
        suite_set(in, dtype, i, (double)((i + (int64_t)rank * 7) % 100));
    cy_request request = {0};
    CY_TRY(cy_group_start_all_to_all(group, queue, &request, cy_view_of(out, dtype, size, part),
        cy_view_of(in, dtype, size, part)));
    CY_TRY(cy_group_wait(group, queue, &request));
    for (int from = 0; from < size; from++) {
        for (int64_t i = 0; i < part; i++) {
            SUITE_EXPECT(suite_get(out, dtype, part * from + i) ==
                    (double)((part * rank + i + (int64_t)from * 7) % 100),
                "all_to_all of %s: element %lld from %d", cy_dtype_name(dtype), (long long)i, from);
        }
    }
    for (int root = 0; root < size; root++) {
        for (int64_t i = 0; i < part; i++)
            suite_set(out, dtype, i, rank == root ? 9.0 : 1.0);
        CY_TRY(cy_group_broadcast(group, queue, cy_view_of(out, dtype, 1, part), root));
        for (int64_t i = 0; i < part; i++) {
            SUITE_EXPECT(suite_get(out, dtype, i) == 9.0, "broadcast from %d", root);
        }
    }
    return suite_sentinel(out, part * size, dtype);
}

// Rank r sends (r + to) % 3 rows to `to`: some blocks are empty.
static inline cy_status suite_uneven(cy_group *group, cy_queue *queue, int64_t cols)
{
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    int64_t rows[64];
    int64_t total = 0;
    for (int to = 0; to < size; to++)
        total += rows[to] = (rank + to) % 3;
    float *in = suite_take(queue, total * cols, CY_F32);
    float *out = suite_take(queue, total * cols, CY_F32);
    int64_t at = 0;
    for (int to = 0; to < size; to++) {
        for (int64_t i = 0; i < rows[to] * cols; i++)
            in[at++] = (float)(100 * rank + to) + (float)i / 4096;
    }
    const cy_view out_view = cy_view_of(out, CY_F32, total, cols);
    cy_request request = {0};
    CY_TRY(cy_group_start_all_to_allv(
        group, queue, &request, out_view, rows, cy_view_of(in, CY_F32, total, cols), rows));
    CY_TRY(cy_group_wait(group, queue, &request));
    at = 0;
    for (int from = 0; from < size; from++) {
        for (int64_t i = 0; i < rows[from] * cols; i++) {
            SUITE_EXPECT(out[at] == (float)(100 * from + rank) + (float)i / 4096,
                "all_to_allv: element %lld from %d", (long long)i, from);
            at++;
        }
    }
    return suite_sentinel((const char *)out, total * cols, CY_F32);
}

// Everybody sends to everybody, several tags at once, waits in another order.
static inline cy_status suite_messages(cy_group *group, cy_queue *queue, int64_t count)
{
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    enum { TAGS = 3, LIMIT = 16 * TAGS };
    cy_request sends[LIMIT] = {0};
    cy_request recvs[LIMIT] = {0};
    int32_t *data = suite_take(queue, count * 2 * LIMIT, CY_I32);
    for (int peer = 0; peer < size; peer++) {
        for (int tag = 0; tag < TAGS && peer != rank; tag++) {
            const int slot = peer * TAGS + tag;
            int32_t *out = data + count * 2 * slot;
            for (int64_t i = 0; i < count; i++)
                out[i] = (int32_t)(rank * 100 + peer * 10 + tag + i);
            CY_TRY(cy_group_start_send(
                group, queue, &sends[slot], cy_view_of(out, CY_I32, 1, count), peer, tag));
        }
    }
    for (int peer = size - 1; peer >= 0; peer--) {
        for (int tag = TAGS - 1; tag >= 0 && peer != rank; tag--) {
            const int slot = peer * TAGS + tag;
            CY_TRY(cy_group_start_recv(group, queue, &recvs[slot],
                cy_view_of(data + count * (2 * slot + 1), CY_I32, 1, count), peer, tag));
        }
    }
    for (int peer = 0; peer < size; peer++) {
        for (int tag = TAGS - 1; tag >= 0 && peer != rank; tag--) {
            const int slot = peer * TAGS + tag;
            bool done = false;
            while (!done)
                CY_TRY(cy_group_test(group, &recvs[slot], &done));
            CY_TRY(cy_group_wait(group, queue, &recvs[slot]));
            CY_TRY(cy_group_wait(group, queue, &sends[slot]));
            const int32_t *in = data + count * (2 * slot + 1);
            for (int64_t i = 0; i < count; i++) {
                SUITE_EXPECT(in[i] == (int32_t)(peer * 100 + rank * 10 + tag + i),
                    "message from %d, tag %d, element %lld", peer, tag, (long long)i);
            }
        }
    }
    return suite_sentinel((const char *)data, count * 2 * LIMIT, CY_I32);
}

// Many in flight on one group, more than any ring of theirs holds, waited for from the last.
static inline cy_status suite_in_flight(cy_group *group, cy_queue *queue, int count)
{
    cy_request *requests = cy_arena_alloc(queue->scratch, (size_t)count * sizeof(*requests));
    memset(requests, 0, (size_t)count * sizeof(*requests));
    int64_t *data = suite_take(queue, count, CY_I64);
    const int size = cy_group_size(group);
    for (int i = 0; i < count; i++) {
        data[i] = (int64_t)i * (cy_group_rank(group) + 1);
        CY_TRY(cy_group_start_all_reduce(
            group, queue, &requests[i], cy_view_of(&data[i], CY_I64, 1, 1), CY_SUM));
    }
    for (int i = count - 1; i >= 0; i--) {
        CY_TRY(cy_group_wait(group, queue, &requests[i]));
        SUITE_EXPECT(data[i] == (int64_t)i * size * (size + 1) / 2, "transfer %d in flight", i);
    }
    return suite_sentinel((const char *)data, count, CY_I64);
}

// Floats that do not add exactly: all ranks must hold the same bits, in every repeat.
static inline cy_status suite_same_bits(
    cy_group *group, cy_queue *queue, cy_dtype dtype, cy_reduce_op op)
{
    enum { COUNT = 1003, REPEATS = 3 };
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    char first[COUNT * 8];
    char *data = suite_take(queue, COUNT, dtype);
    const size_t bytes = COUNT * cy_dtype_size(dtype);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int i = 0; i < COUNT; i++) {
            suite_set(data, dtype, i, 1.0 / (double)(i * 16 + rank * rank * 7 + 1));
        }
        CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(data, dtype, 1, COUNT), op));
        if (repeat == 0) memcpy(first, data, bytes);
        SUITE_EXPECT(memcmp(first, data, bytes) == 0, "repeat %d of %s, reduction %d differs",
            repeat, cy_dtype_name(dtype), (int)op);
    }
    char *all = suite_take(queue, (int64_t)bytes * size, CY_U8);
    CY_TRY(cy_group_all_gather(group, queue, cy_view_of(all, CY_U8, size, (int64_t)bytes),
        cy_view_of(data, CY_U8, 1, (int64_t)bytes)));
    for (int r = 0; r < size; r++) {
        SUITE_EXPECT(memcmp(all + bytes * (size_t)r, data, bytes) == 0,
            "%s, reduction %d: rank %d holds other bits", cy_dtype_name(dtype), (int)op, r);
    }
    return suite_sentinel(all, (int64_t)bytes * size, CY_U8);
}

// An average is the sum divided by the ranks, once, and rounded to the dtype, once: operands that
// do not add exactly, as partial sums hold them.
static inline cy_status suite_average(cy_group *group, cy_queue *queue, cy_dtype dtype)
{
    enum { COUNT = 1003 };
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    const cy_dtype partial = dtype == CY_F64 ? CY_F64 : CY_F32;
    char *average = suite_take(queue, COUNT, dtype);
    char *sum = suite_take(queue, COUNT, partial);
    for (int i = 0; i < COUNT; i++) {
        suite_set(average, dtype, i, 1.0 / (double)(i * 16 + rank * rank * 7 + 1));
        suite_set(sum, partial, i, suite_get(average, dtype, i));
    }
    CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(average, dtype, 1, COUNT), CY_AVG));
    CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(sum, partial, 1, COUNT), CY_SUM));
    for (int i = 0; i < COUNT; i++) {
        double wanted = suite_get(sum, partial, i) / size;
        if (partial == CY_F32) wanted = (double)((float)suite_get(sum, partial, i) / (float)size);
        char rounded[8];
        suite_set(rounded, dtype, 0, wanted);
        SUITE_EXPECT(suite_get(average, dtype, i) == suite_get(rounded, dtype, 0),
            "average of %s: element %d is %.17g, not %.17g", cy_dtype_name(dtype), i,
            suite_get(average, dtype, i), suite_get(rounded, dtype, 0));
    }
    return suite_sentinel(average, COUNT, dtype);
}

static const cy_dtype suite_dtypes[] = {CY_F32, CY_F64, CY_BF16, CY_F16, CY_I32, CY_I64, CY_FX64};

// A test gets all of the scratch memory.
#define SUITE_RUN(call)                                                                            \
    do {                                                                                           \
        CY_TRY(call);                                                                              \
        cy_arena_rewind(queue->scratch, 0);                                                        \
    } while (0)

// Every reduction of one dtype.
static inline cy_status suite_reductions(
    cy_group *group, cy_queue *queue, cy_dtype dtype, int64_t large)
{
    const int size = cy_group_size(group);
    const int64_t counts[] = {0, 1, size - 1, size, size + 1, 4099, large};
    for (int op = CY_SUM; op <= CY_PROD; op++) {
        if (dtype == CY_FX64 && op == CY_PROD) continue;
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            SUITE_RUN(suite_all_reduce(group, queue, dtype, (cy_reduce_op)op, counts[c]));
            SUITE_RUN(suite_scatter_gather(
                group, queue, dtype, (cy_reduce_op)op, c == 6 ? large / size : counts[c]));
        }
    }
    return CY_OK;
}

// The whole suite on one group; sizes up to `large` elements.
static inline cy_status suite_group(cy_group *group, cy_queue *queue, int64_t large)
{
    const int size = cy_group_size(group);
    for (size_t d = 0; d < sizeof(suite_dtypes) / sizeof(suite_dtypes[0]); d++) {
        const cy_dtype dtype = suite_dtypes[d];
        CY_TRY(suite_reductions(group, queue, dtype, large));
        const int64_t counts[] = {0, 1, size - 1, size, size + 1, 4099, large};
        for (int c = 0; c < 7; c++) {
            SUITE_RUN(suite_moves(group, queue, dtype, c == 6 ? large / size : counts[c]));
            SUITE_RUN(suite_neighbours(group, queue, dtype, counts[c]));
        }
        for (int op = CY_SUM; op <= CY_PROD && dtype < CY_I32; op++)
            SUITE_RUN(suite_same_bits(group, queue, dtype, (cy_reduce_op)op));
        if (dtype < CY_I32) SUITE_RUN(suite_average(group, queue, dtype));
    }
    SUITE_RUN(suite_moves(group, queue, CY_U8, 1001));
    SUITE_RUN(suite_uneven(group, queue, 5));
    SUITE_RUN(suite_uneven(group, queue, 5000));
    SUITE_RUN(suite_messages(group, queue, 0));
    SUITE_RUN(suite_messages(group, queue, 7));
    SUITE_RUN(suite_messages(group, queue, 20000));
    SUITE_RUN(suite_in_flight(group, queue, 300));
    return cy_group_barrier(group);
}

// The suite on the whole world, and on the world in reverse order.
static inline cy_status suite_orders(cy_world *world, cy_queue *queue, int64_t large)
{
    const int size = cy_world_size(world);
    int ranks[64];
    for (int reverse = 0; reverse < 2; reverse++) {
        for (int i = 0; i < size; i++)
            ranks[i] = reverse ? size - 1 - i : i;
        cy_group *group = NULL;
        CY_TRY(cy_world_open_group(world, &group, ranks, size, "dp"));
        const cy_status status = suite_group(group, queue, large);
        cy_group_close(group);
        if (status != CY_OK) return status;
    }
    return CY_OK;
}

// A rank function.
static inline cy_status suite_world(cy_world *world, int64_t large)
{
    cy_thread_pool *pool = NULL;
    void *memory = NULL;
    cy_arena scratch;
    const size_t bytes = suite_bytes(cy_world_size(world), large);
    CY_TRY(cy_memory_map(&memory, bytes));
    cy_arena_init(&scratch, "suite", memory, bytes);
    CY_TRY(cy_thread_pool_open(&pool, 1, -1, false));
    cy_queue queue = {.pool = pool, .heartbeat = cy_world_heartbeat(world), .scratch = &scratch};
    // After a failure the memory stays: other ranks may be at work in it.
    const cy_status status = suite_orders(world, &queue, large);
    if (status == CY_OK) cy_memory_unmap(memory, bytes);
    cy_thread_pool_close(pool);
    return status;
}

static inline cy_status suite_rank(cy_world *world, void *large)
{
    return suite_world(world, *(const int64_t *)large);
}

// The suite on worlds of several sizes, every other one with the checks of a debug build.
static inline void suite_threads(int64_t large)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = sizes[i];
        options.check = i % 2 == 1;
        CY_CHECK_OK(cy_world_run_threads(&options, suite_rank, &large));
    }
}

#endif
