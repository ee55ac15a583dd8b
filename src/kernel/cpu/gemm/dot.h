// kernel/cpu/gemm/dot.h: products of a few rows with many, with vectors of LANES floats.
// Included by the microkernel.c of each instruction set, after its lanes.h.
//
// These are the products of decoding. Every element of b is read once from memory, which is the
// bound.

#ifndef CY_KERNEL_CPU_GEMM_DOT_H
#define CY_KERNEL_CPU_GEMM_DOT_H

#define DOT_SUMS 4   // independent sums of one row: additions wait for each other four times less
#define DOT_NEAR 512 // bytes of b that are asked for once more before they are used

// a times one row of b, while as many bytes at `ahead` are asked for, into the second cache: the
// first one's few places for lines on their way would be full. From there they are fetched shortly
// before they are used. Lines are asked for one at a time, between those that are used: several at
// once wait for each other. The element of b at k + DOT_SUMS * LANES * n is in sum k / LANES.
static inline __attribute__((always_inline)) float dot_row_of(
    const float *a, const char *b, const cy_dtype dtype, int64_t depth, const char *ahead)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    lanes sum[DOT_SUMS];
    for (int i = 0; i < DOT_SUMS; i++)
        sum[i] = lanes_set(0.0f);
    int64_t k = 0;
    for (; k + DOT_SUMS * LANES <= depth; k += DOT_SUMS * LANES) {
        for (int i = 0; i < DOT_SUMS; i++) {
            const int64_t at = (k + i * LANES) * size;
            sum[i] = lanes_fma(
                lanes_load(a + k + i * LANES), lanes_load_as(b + at, dtype, LANES), sum[i]);
            if (i * LANES * size % 64 == 0) __builtin_prefetch(ahead + at, 0, 2);
            if ((i + 1) * LANES * size % 64 == 0) __builtin_prefetch(b + at + DOT_NEAR);
            __asm__ volatile("" ::: "memory"); // or compilers ask for all lines first
        }
    }
    for (; k < depth; k += LANES) {
        const lanes left = lanes_load_as(a + k, CY_F32, depth - k);
        sum[0] = lanes_fma(left, lanes_load_as(b + k * size, dtype, depth - k), sum[0]);
    }
    return lanes_sum(lanes_add(lanes_add(sum[0], sum[1]), lanes_add(sum[2], sum[3])));
}

// Functions of their own, so that what goes on around a row takes none of its registers.
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

// Rows of a after the first find the row of b in the nearest cache. What is asked for while row j
// is used lies some rows behind it, at the end of b in what follows.
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
