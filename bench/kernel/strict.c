// Speed of strict mode's products beside the fast ones, at the sizes of a 135 M model: GFLOP/s,
// best of several runs, each shape with both tables in turn. "fixed" is the product into fixed
// point with blocks of 32, "fixed 128" with blocks of 128. Usage: strict [workers] [tokens]

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernel/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const char *name;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
} shape;

static double measure(
    cy_queue *queue, const shape *s, cy_dtype dtype, cy_dtype c_dtype, int64_t block_k, char *data)
{
    const cy_matmul_spec spec = {
        .transpose_a = s->transpose_a, .transpose_b = s->transpose_b, .block_k = block_k};
    const int64_t m = s->m, n = s->n, k = s->k;
    const cy_view a = cy_view_of(data, dtype, s->transpose_a ? k : m, s->transpose_a ? m : k);
    const cy_view b = cy_view_of(
        data + ((size_t)256 << 20), dtype, s->transpose_b ? n : k, s->transpose_b ? k : n);
    cy_view c = cy_view_of(data + ((size_t)512 << 20), c_dtype, m, n);
    c.exponent = c_dtype == CY_FX64 ? -20 : 0;
    int64_t best = INT64_MAX;
    const int64_t until = cy_clock_ns() + 100000000;
    for (int i = 0; i < 3 || cy_clock_ns() < until; i++) {
        const int64_t start = cy_clock_ns();
        cy_matmul(queue, c, a, b, spec);
        const int64_t ns = cy_clock_ns() - start;
        if (ns < best) best = ns;
    }
    return 2.0 * (double)m * (double)n * (double)k / (double)best;
}

int main(int argument_count, char **arguments)
{
    const int workers = argument_count > 1 ? atoi(arguments[1]) : 2;
    const int64_t t = argument_count > 2 ? atoi(arguments[2]) : 2048;
    static cy_queue fast, strict;
    cy_kernels fast_table, strict_table;
    cy_arena scratch;
    void *data, *scratch_base;
    const size_t bytes = (size_t)1 << 30;
    if (cy_thread_pool_open(&fast.pool, workers, -1, true) != CY_OK ||
        cy_memory_map(&data, bytes) != CY_OK || cy_memory_map(&scratch_base, bytes) != CY_OK ||
        cy_kernels_open(&fast, &fast_table, "auto") != CY_OK) {
        fprintf(stderr, "strict: %s\n", cy_error_text());
        return 1;
    }
    strict.pool = fast.pool;
    if (cy_kernels_open(&strict, &strict_table, "strict") != CY_OK) {
        fprintf(stderr, "strict: %s\n", cy_error_text());
        return 1;
    }
    cy_arena_init(&scratch, "scratch", scratch_base, bytes);
    fast.scratch = strict.scratch = &scratch;
    for (size_t i = 0; i < bytes / 4; i++)
        ((float *)data)[i] = (float)(i % 17) - 8.0f;

    const shape shapes[] = {
        {"forward", t, 3072, 576, false, true},
        {"dx", t, 576, 3072, false, false},
        {"dW", 3072, 576, t, true, false},
        {"head", 512, 49152, 576, false, true},
        {"head dW", 49152, 576, 512, true, false},
    };
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16};
    printf(
        "%-5s %-8s %8s %8s %8s %10s\n", "dtype", "product", "fast", "strict", "fixed", "fixed 128");
    for (int d = 0; d < 2; d++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
            const shape *s = &shapes[i];
            const cy_dtype dtype = dtypes[d];
            printf("%-5s %-8s %8.1f", cy_dtype_name(dtype), s->name,
                measure(&fast, s, dtype, dtype, 0, data));
            printf(" %8.1f", measure(&strict, s, dtype, dtype, 0, data));
            printf(" %8.1f", measure(&strict, s, dtype, CY_FX64, 32, data));
            printf(" %10.1f\n", measure(&strict, s, dtype, CY_FX64, 128, data));
        }
    }
    cy_kernels_close(&strict);
    cy_kernels_close(&fast);
    cy_thread_pool_close(fast.pool);
    return 0;
}
