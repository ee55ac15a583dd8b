// kernel/cpu/gemm/dot.h: products of a few rows with many.
// Included by the microkernel.c of each instruction set, which compiles it for that set.
//
// These are the products of decoding. Memory bandwidth limits them: every element of b is read
// once.

#ifndef CY_KERNEL_CPU_GEMM_DOT_H
#define CY_KERNEL_CPU_GEMM_DOT_H

#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/cpu/vector/vector.h"

#define DOT_SUMS 4   // independent sums of one row, which hide the latency of additions
#define DOT_NEAR 512 // bytes of b from which the second prefetch, into L1, is ahead of their use

// a times one row of b. Prefetches as many bytes at `ahead` into L2, because the few line fill
// buffers of L1 would be full, and bytes of this row from L2 into L1 shortly before their use. The
// prefetches of lines alternate with loads, because several at once wait for each other. The
// element of b at k + DOT_SUMS * LANES * n is in sum k / LANES.
FORCE_INLINE float dot_row_of(
    const float *a, const char *b, const cy_dtype dtype, int64_t depth, const char *ahead)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    vec sum[DOT_SUMS];
    for (int i = 0; i < DOT_SUMS; i++)
        sum[i] = vec_all(0.0f);
    int64_t k = 0;
    for (; k + DOT_SUMS * LANES <= depth; k += DOT_SUMS * LANES) {
        for (int i = 0; i < DOT_SUMS; i++) {
            const int64_t at = (k + i * LANES) * size;
            sum[i] = vec_fma(vec_load(a + k + i * LANES), load_as(b + at, dtype, LANES), sum[i]);
            if (i * LANES * size % 64 == 0) __builtin_prefetch(ahead + at, 0, 2);
            if ((i + 1) * LANES * size % 64 == 0) __builtin_prefetch(b + at + DOT_NEAR);
            __asm__ volatile("" ::: "memory"); // or compilers move all prefetches to the front
        }
    }
    for (; k < depth; k += LANES) {
        const vec left = load_as(a + k, CY_F32, depth - k);
        sum[0] = vec_fma(left, load_as(b + k * size, dtype, depth - k), sum[0]);
    }
    return vec_sum_pairs(vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3])));
}

// Separate functions, so that the code around a row takes none of its registers.
typedef float (*dot_row)(const float *a, const char *b, int64_t depth, const char *ahead);

static float dot_row_f32(const float *a, const char *b, int64_t depth, const char *ahead)
{
    return dot_row_of(a, b, CY_F32, depth, ahead);
}

static float dot_row_bf16(const float *a, const char *b, int64_t depth, const char *ahead)
{
    return dot_row_of(a, b, CY_BF16, depth, ahead);
}

static float dot_row_f16(const float *a, const char *b, int64_t depth, const char *ahead)
{
    return dot_row_of(a, b, CY_F16, depth, ahead);
}

// Rows of a after the first find the row of b in L1. While row j is used, a later row is
// prefetched, and at the end of b the memory at `next`.
static void dot_rows(float *c, const float *a, int64_t rows, cy_view b, const void *next)
{
    const dot_row one = b.dtype == CY_F32 ? dot_row_f32
        : b.dtype == CY_BF16              ? dot_row_bf16
                                          : dot_row_f16;
    const int64_t row_bytes = b.stride * (int64_t)cy_dtype_size(b.dtype);
    const int64_t far = (CY_DOT_AHEAD + row_bytes - 1) / row_bytes;
    const char *from = b.data;
    for (int64_t j = 0; j < b.rows; j++, from += row_bytes) {
        const char *ahead = from + far * row_bytes;
        if (j + far >= b.rows) {
            ahead = next == NULL ? from : (const char *)next + (j + far - b.rows) * row_bytes;
        }
        for (int64_t row = 0; row < rows; row++)
            c[row * b.rows + j] = one(a + row * b.cols, from, b.cols, ahead);
    }
}

#endif
