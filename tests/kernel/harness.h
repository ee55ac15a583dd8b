// tests/kernel/harness.h: what the tests of operators share.
//
// A bench has memory, a pool and a queue, and makes matrices whose gaps and surroundings are filled
// with a pattern: bench_check fails when an operator wrote outside its views, or did not give its
// scratch back. Everything is freed by bench_close.

#ifndef CY_TESTS_KERNEL_HARNESS_H
#define CY_TESTS_KERNEL_HARNESS_H

#include "support/support.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/random.h"
#include "kernel/cpu/cpu.h"
#include "kernel/kernel.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_BYTES  ((size_t)192 << 20)
#define BENCH_VIEWS  256
#define BENCH_GUARD  ((size_t)128) // bytes of pattern on both sides of a matrix
#define BENCH_MARKER 0xa5

typedef struct bench {
    cy_queue queue;
    cy_arena memory, scratch;
    cy_arena nowhere;                 // of a dry queue: a touch is a fault
    void *memory_base, *scratch_base; // owned
    struct {
        unsigned char *start; // of the guarded range
        size_t bytes;         // of the guarded range
        cy_view view;
    } made[BENCH_VIEWS];
    int made_count;
    uint64_t seed;
    _Atomic uint32_t overflow; // the queue's flag
} bench;

static inline void bench_open(bench *at, const cy_kernels *kernels, int workers)
{
    memset(at, 0, sizeof(*at));
    CY_CHECK_OK(cy_memory_map(&at->memory_base, BENCH_BYTES));
    CY_CHECK_OK(cy_memory_map(&at->scratch_base, BENCH_BYTES));
    cy_arena_init(&at->memory, "test", at->memory_base, BENCH_BYTES);
    cy_arena_init(&at->scratch, "scratch", at->scratch_base, BENCH_BYTES);
    at->queue.kernels = kernels;
    at->queue.scratch = &at->scratch;
    at->queue.fixed_overflow = &at->overflow;
    CY_CHECK_OK(cy_thread_pool_open(&at->queue.pool, workers, -1, false));
}

static inline void bench_close(bench *at)
{
    cy_thread_pool_close(at->queue.pool);
    cy_arena_rewind(&at->memory, 0);
    cy_arena_rewind(&at->scratch, 0);
    // An address that was poisoned may be handed out again.
    (void)cy_arena_alloc(&at->memory, BENCH_BYTES);
    (void)cy_arena_alloc(&at->scratch, BENCH_BYTES);
    cy_memory_unmap(at->memory_base, BENCH_BYTES);
    cy_memory_unmap(at->scratch_base, BENCH_BYTES);
}

// Forgets all matrices.
static inline void bench_clear(bench *at)
{
    cy_arena_rewind(&at->memory, 0);
    at->made_count = 0;
}

// From here on the queue only counts, and its matrices have no memory; and back.
static inline void bench_dry(bench *at, bool dry)
{
    cy_arena_measure(&at->nowhere, "nowhere");
    at->queue.dry = dry;
    at->queue.planned = (cy_cost){0};
    at->queue.scratch = dry ? &at->nowhere : &at->scratch;
}

// A matrix with `gap` elements between its rows, filled with the pattern.
static inline cy_view bench_make(bench *at, cy_dtype dtype, int64_t rows, int64_t cols, int64_t gap)
{
    if (at->queue.dry) {
        cy_view view = cy_view_alloc(&at->nowhere, dtype, rows, cols + gap);
        view.cols = cols;
        return view;
    }
    assert_true(at->made_count < BENCH_VIEWS);
    const size_t inner = (size_t)(rows * (cols + gap)) * cy_dtype_size(dtype);
    unsigned char *start = cy_arena_alloc(&at->memory, inner + 2 * BENCH_GUARD);
    memset(start, BENCH_MARKER, inner + 2 * BENCH_GUARD);
    cy_view view = cy_view_of(start + BENCH_GUARD, dtype, rows, cols);
    view.stride = cols + gap;
    at->made[at->made_count].start = start;
    at->made[at->made_count].bytes = inner + 2 * BENCH_GUARD;
    at->made[at->made_count++].view = view;
    return view;
}

// Fails when a gap or a guard of any matrix changed, or scratch is still taken.
static inline void bench_check(const bench *at)
{
    assert_int_equal(at->scratch.used, 0);
    for (int i = 0; i < at->made_count; i++) {
        const cy_view view = at->made[i].view;
        const size_t size = cy_dtype_size(view.dtype);
        const size_t row_bytes = (size_t)view.cols * size, pitch = (size_t)view.stride * size;
        for (size_t b = 0; b < at->made[i].bytes; b++) {
            const bool before = b < BENCH_GUARD;
            const size_t inside = before ? 0 : b - BENCH_GUARD;
            const bool after = inside >= (size_t)view.rows * pitch;
            if (!before && !after && inside % pitch < row_bytes) {
                b += row_bytes - inside % pitch - 1; // a row of the matrix itself
                continue;
            }
            if (at->made[i].start[b] != BENCH_MARKER) {
                print_error("matrix %d of %lld x %lld %s: byte %lld of its range overwritten\n", i,
                    (long long)view.rows, (long long)view.cols, cy_dtype_name(view.dtype),
                    (long long)b - BENCH_GUARD);
                fail();
            }
        }
    }
}

// Normal numbers times `scale`; another draw at each call.
static inline void bench_fill(bench *at, cy_view view, double scale)
{
    const uint64_t key = cy_random_key_at(7, at->seed++);
    cy_ref_random_fill(&at->queue, view, key, 0, view.cols, scale);
}

static inline cy_view bench_random(
    bench *at, cy_dtype dtype, int64_t rows, int64_t cols, int64_t gap, double scale)
{
    const cy_view view = bench_make(at, dtype, rows, cols, gap);
    bench_fill(at, view, scale);
    return view;
}

// A second matrix of the same shape, dtype and content, with its own guards.
static inline cy_view bench_twin(bench *at, cy_view of)
{
    cy_view twin = bench_make(at, of.dtype, of.rows, of.cols, of.stride - of.cols);
    twin.exponent = of.exponent;
    const size_t row = (size_t)of.cols * cy_dtype_size(of.dtype);
    for (int64_t i = 0; i < of.rows; i++) {
        memcpy(cy_view_at(twin, i, 0), cy_view_at(of, i, 0), row);
    }
    return twin;
}

// Ranks of tokens, targets or positions in [low, high).
static inline int32_t *bench_integers(bench *at, int64_t count, int32_t low, int32_t high)
{
    int32_t *numbers = bench_make(at, CY_I32, 1, count, 0).data;
    if (at->queue.dry) return numbers;
    const uint64_t key = cy_random_key_at(9, at->seed++);
    for (int64_t i = 0; i < count; i++) {
        const double unit = cy_random_uniform(key, (uint64_t)i);
        numbers[i] = low + (int32_t)(unit * (double)(high - low));
    }
    return numbers;
}

// Frequencies for cy_rope_table, like all else in the memory of the bench.
static inline double *bench_frequencies(bench *at, int64_t count, double ratio)
{
    double *frequencies = bench_make(at, CY_F64, 1, count, 0).data;
    for (int64_t i = 0; i < count && !at->queue.dry; i++)
        frequencies[i] = pow(ratio, (double)i);
    return frequencies;
}

static inline int32_t *bench_ascending(bench *at, int64_t count, int32_t first)
{
    int32_t *numbers = bench_make(at, CY_I32, 1, count, 0).data;
    for (int64_t i = 0; i < count; i++)
        numbers[i] = first + (int32_t)i;
    return numbers;
}

// Half a unit in the last place of numbers near 1: the error of one rounding.
static inline double rounding_of(cy_dtype dtype)
{
    switch (dtype) {
    case CY_BF16:
        return 0x1p-8;
    case CY_F16:
        return 0x1p-11;
    case CY_F32:
        return 0x1p-24;
    case CY_F64:
        return 0x1p-53;
    case CY_I32:
    case CY_I64:
    case CY_U8:
    case CY_FX64:
        break;
    }
    return 0.0;
}

// Fails unless |got - want| <= relative * |want| + absolute everywhere; NaN equals NaN only.
static inline void expect_close(
    const char *what, cy_view got, cy_view want, double relative, double absolute)
{
    assert_int_equal(got.rows, want.rows);
    assert_int_equal(got.cols, want.cols);
    for (int64_t i = 0; i < want.rows; i++) {
        for (int64_t j = 0; j < want.cols; j++) {
            const double g = cy_ref_load(got, i, j), w = cy_ref_load(want, i, j);
            if (isnan(g) && isnan(w)) continue;
            if (g == w || fabs(g - w) <= relative * fabs(w) + absolute) continue;
            print_error("%s [%lld, %lld] of %lld x %lld: %.9g, wanted %.9g (off by %.3g)\n", what,
                (long long)i, (long long)j, (long long)want.rows, (long long)want.cols, g, w,
                g - w);
            fail();
        }
    }
}

static inline void expect_same_bits(const char *what, cy_view got, cy_view want)
{
    const size_t row = (size_t)want.cols * cy_dtype_size(want.dtype);
    for (int64_t i = 0; i < want.rows; i++) {
        if (memcmp(cy_view_at(got, i, 0), cy_view_at(want, i, 0), row) != 0) {
            print_error("%s: row %lld has other bits\n", what, (long long)i);
            fail();
        }
    }
}

// A matrix with these numbers, row after row.
static inline cy_view bench_numbers(
    bench *at, cy_dtype dtype, int64_t rows, int64_t cols, const double *values)
{
    const cy_view view = bench_make(at, dtype, rows, cols, 0);
    for (int64_t i = 0; i < rows * cols; i++) {
        cy_ref_store(&at->queue, view, i / cols, i % cols, values[i]);
    }
    return view;
}

// Fails unless these are all elements, row after row, and none is off by more than tolerance,
// absolute below one and relative above.
#define BENCH_EXPECT(got, tolerance, ...)                                                          \
    bench_expect((got), (const double[]){__VA_ARGS__},                                             \
        (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), (tolerance))

static inline void bench_expect(cy_view got, const double *want, int64_t count, double tolerance)
{
    assert_int_equal(cy_view_count(got), count);
    for (int64_t i = 0; i < count; i++) {
        const double value = cy_ref_load(got, i / got.cols, i % got.cols);
        if (fabs(value - want[i]) <= tolerance * fmax(1.0, fabs(want[i]))) continue;
        print_error("element %lld: %.17g, wanted %.17g\n", (long long)i, value, want[i]);
        fail();
    }
}

#endif
