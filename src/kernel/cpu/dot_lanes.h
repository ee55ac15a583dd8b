// kernel/cpu/dot_lanes.h: a few rows against many, in terms of LANES floats at once: what decoding
// asks of a product. Every element of b is read once from memory, which is the bound. Included by
// the one file per instruction set that has included its lanes.h before.

#ifndef CY_KERNEL_CPU_DOT_LANES_H
#define CY_KERNEL_CPU_DOT_LANES_H

#define DOT_SUMS 4 // independent sums of one row: additions wait for each other four times less

// a times one row of b, while as many bytes at `ahead` are asked for. The element of b at
// k + DOT_SUMS * LANES * n is in sum k / LANES.
static inline float dot_row(
    const float *a, const char *b, cy_dtype dtype, int64_t depth, const char *ahead)
{
    const int64_t size = (int64_t)cy_dtype_size(dtype);
    lanes sum[DOT_SUMS];
    for (int i = 0; i < DOT_SUMS; i++)
        sum[i] = lanes_set(0.0f);
    int64_t k = 0;
    for (; k + DOT_SUMS * LANES <= depth; k += DOT_SUMS * LANES) {
        const char *at = b + k * size;
        for (int64_t i = 0; i < DOT_SUMS * LANES * size; i += 64)
            __builtin_prefetch(ahead + k * size + i);
        for (int i = 0; i < DOT_SUMS; i++) {
            sum[i] = lanes_fma(lanes_load(a + k + i * LANES),
                lanes_load_as(at + i * LANES * size, dtype, LANES), sum[i]);
        }
    }
    for (; k < depth; k += LANES) {
        const lanes left = lanes_load_as(a + k, CY_F32, depth - k);
        sum[0] = lanes_fma(left, lanes_load_as(b + k * size, dtype, depth - k), sum[0]);
    }
    return lanes_sum(lanes_add(lanes_add(sum[0], sum[1]), lanes_add(sum[2], sum[3])));
}

// Where rows are asked for while row j is used: in b, and at its end in what follows.
static inline const char *dot_ahead(cy_view b, int64_t j, const void *next)
{
    const int64_t row_bytes = b.stride * (int64_t)cy_dtype_size(b.dtype);
    const int64_t rows = (CY_DOT_AHEAD + row_bytes - 1) / row_bytes;
    if (j + rows < b.rows) return cy_view_at(b, j + rows, 0);
    return next == NULL ? cy_view_at(b, j, 0)
                        : (const char *)next + (j + rows - b.rows) * row_bytes;
}

// Rows of a after the first find the row of b in the nearest cache.
static void dot_rows(float *c, const float *a, int64_t rows, cy_view b, const void *next)
{
    for (int64_t j = 0; j < b.rows; j++) {
        const char *from = cy_view_at(b, j, 0), *ahead = dot_ahead(b, j, next);
        for (int64_t row = 0; row < rows; row++) {
            const float *left = a + row * b.cols;
            float *to = &c[row * b.rows + j];
            if (b.dtype == CY_F32) {
                *to = dot_row(left, from, CY_F32, b.cols, ahead);
            } else if (b.dtype == CY_BF16) {
                *to = dot_row(left, from, CY_BF16, b.cols, ahead);
            } else {
                *to = dot_row(left, from, CY_F16, b.cols, ahead);
            }
        }
    }
}

#endif
