// tests/dist/fragments.h: plans whose pieces go in fragments, against a serial reference, on groups
// that receive what is yet to be added into a place of its own.

#ifndef CY_TESTS_DIST_SEGMENTS_H
#define CY_TESTS_DIST_SEGMENTS_H

#include "dist/large_collectives.h"

#include "comm/algorithm.h"
#include "comm/backend.h"

// A plan's bytes and rounds are those of its pieces, in however many fragments they go.
static inline cy_status segments_ring_counts(
    const cy_group *group, cy_algorithm_counters before, int64_t bytes)
{
    const int others = cy_group_size(group) - 1;
    const cy_algorithm_counters after = cy_algorithm_count(group);
    SUITE_EXPECT(after.rounds - before.rounds == 2 * others, "%lld rounds",
        (long long)(after.rounds - before.rounds));
    SUITE_EXPECT(after.messages - before.messages == 2 * others, "%lld messages",
        (long long)(after.messages - before.messages));
    SUITE_EXPECT(after.bytes - before.bytes == 2.0 * others * (double)bytes, "%g bytes sent",
        after.bytes - before.bytes);
    return CY_OK;
}

// Pieces of an element less than a fragment, of a fragment, of one more, and of five and a half.
static inline cy_status segments_check(
    cy_group *group, cy_queue *queue, cy_algorithm algorithm, cy_dtype dtype, int64_t fragment)
{
    const int64_t size = cy_group_size(group);
    const int64_t counts[] = {size * fragment - size, size * fragment, size * fragment + size,
        size * (5 * fragment + 77)};
    const int64_t width = (int64_t)cy_dtype_size(cy_reduce_partial_dtype(dtype));
    for (int c = 0; c < 4; c++) {
        SUITE_RUN(large_reductions(group, queue, dtype, CY_SUM, counts[c] + (c == 3)));
        SUITE_RUN(large_reductions(group, queue, dtype, CY_MIN, counts[c]));
        if (algorithm != CY_ALGORITHM_RING) continue;
        const cy_algorithm_counters before = cy_algorithm_count(group);
        char *data = suite_take(queue, counts[c], dtype);
        memset(data, 0, (size_t)counts[c] * cy_dtype_size(dtype));
        CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(data, dtype, 1, counts[c]), CY_SUM));
        cy_arena_rewind(queue->scratch, 0);
        CY_TRY(segments_ring_counts(group, before, counts[c] / size * width));
    }
    SUITE_RUN(suite_moves(group, queue, dtype, 5 * fragment + 77));
    SUITE_RUN(suite_uneven(group, queue, 2 * fragment + 5));
    return CY_OK;
}

// On all ranks, with every algorithm. Segments of `fragment_bytes`, as if the backend could not add
// what arrives; 0: as the backend has them.
static inline cy_status segments_world(cy_world *world, size_t fragment_bytes)
{
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16};
    const int size = cy_world_size(world);
    cy_group *inside = NULL;
    cy_thread_pool *pool = NULL;
    void *memory = NULL;
    cy_arena scratch;
    CY_TRY(cy_test_open_all(world, &inside, "dp"));
    if (fragment_bytes > 0) {
        inside->fragment_bytes = fragment_bytes;
        inside->reduces_on_recv = false;
    }
    const size_t fragment = inside->fragment_bytes;
    SUITE_EXPECT(fragment >= 4096, "fragments of %zu bytes", fragment);
    const size_t bytes = (size_t)size * 40 * fragment + ((size_t)1 << 20);
    CY_TRY(cy_memory_map(&memory, bytes));
    cy_arena_init(&scratch, "fragments", memory, bytes);
    CY_TRY(cy_thread_pool_open(&pool, 1, -1, false));
    cy_queue queue = {.pool = pool, .heartbeat = cy_world_heartbeat(world), .scratch = &scratch};
    int nodes[64];
    for (int i = 0; i < size; i++)
        nodes[i] = 2 * i >= size;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++) {
        const cy_algorithm_options options = {
            .table = cy_algorithm_always((cy_algorithm)a), .nodes = nodes, .keep_inside = true};
        cy_group *group = NULL;
        CY_TRY(cy_algorithm_open(&group, inside, &options));
        for (int d = 0; d < 2; d++) {
            const size_t width = cy_dtype_size(cy_reduce_partial_dtype(dtypes[d]));
            CY_TRY(segments_check(
                group, &queue, (cy_algorithm)a, dtypes[d], (int64_t)(fragment / width)));
        }
        cy_group_close(group);
    }
    cy_group_close(inside);
    cy_thread_pool_close(pool);
    cy_memory_unmap(memory, bytes);
    return CY_OK;
}

#endif
