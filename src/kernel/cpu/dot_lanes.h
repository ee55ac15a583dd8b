// kernel/cpu/dot_lanes.h: a few rows against many, in terms of LANES floats at once: what decoding
// asks of a product. Every element of b is read once from memory, which is the bound. Included by
// the one file per instruction set that has included its lanes.h before.

#ifndef CY_KERNEL_CPU_DOT_LANES_H
#define CY_KERNEL_CPU_DOT_LANES_H

#define DOT_ROWS 4 // rows of b at once: independent sums

// Rows are asked for so far ahead, in whole groups of rows: a row of a model's weights is too short
// for the processor's prefetchers to follow, which start anew with each.
#define DOT_AHEAD 4096

static inline void dot_block(float *c, const float *a, const char *const b[DOT_ROWS],
    cy_dtype dtype, int64_t depth, int64_t ahead)
{
    const int64_t size = (int64_t)cy_dtype_size(dtype);
    lanes sum[DOT_ROWS][2];
    for (int j = 0; j < DOT_ROWS; j++)
        sum[j][0] = sum[j][1] = lanes_set(0.0f);
    int64_t k = 0;
    for (; k + 2 * LANES <= depth; k += 2 * LANES) {
        const lanes low = lanes_load(a + k), high = lanes_load(a + k + LANES);
        for (int j = 0; j < DOT_ROWS; j++) {
            const char *at = b[j] + k * size;
            __builtin_prefetch(at + ahead);
            if (size == 4) __builtin_prefetch(at + ahead + 64);
            sum[j][0] = lanes_fma(low, lanes_load_as(at, dtype, LANES), sum[j][0]);
            sum[j][1] = lanes_fma(high, lanes_load_as(at + LANES * size, dtype, LANES), sum[j][1]);
        }
    }
    for (; k < depth; k += LANES) {
        const lanes low = lanes_load_as(a + k, CY_F32, depth - k);
        for (int j = 0; j < DOT_ROWS; j++) {
            sum[j][0] = lanes_fma(low, lanes_load_as(b[j] + k * size, dtype, depth - k), sum[j][0]);
        }
    }
    for (int j = 0; j < DOT_ROWS; j++)
        c[j] = lanes_sum(lanes_add(sum[j][0], sum[j][1]));
}

// c [rows, b.rows] = a [rows, b.cols] times b transposed; a dense.
static void dot_rows(float *c, const float *a, int64_t rows, cy_view b)
{
    const int64_t group = DOT_ROWS * b.stride * (int64_t)cy_dtype_size(b.dtype);
    const int64_t ahead = (DOT_AHEAD + group - 1) / group * group;
    for (int64_t j = 0; j < b.rows; j += DOT_ROWS) {
        const char *from[DOT_ROWS];
        for (int64_t i = 0; i < DOT_ROWS; i++) {
            from[i] = cy_view_at(b, j + i < b.rows ? j + i : b.rows - 1, 0);
        }
        for (int64_t row = 0; row < rows; row++) {
            float sums[DOT_ROWS];
            if (b.dtype == CY_F32) {
                dot_block(sums, a + row * b.cols, from, CY_F32, b.cols, ahead);
            } else if (b.dtype == CY_BF16) {
                dot_block(sums, a + row * b.cols, from, CY_BF16, b.cols, ahead);
            } else {
                dot_block(sums, a + row * b.cols, from, CY_F16, b.cols, ahead);
            }
            for (int64_t i = 0; i < DOT_ROWS && j + i < b.rows; i++) {
                c[row * b.rows + j + i] = sums[i];
            }
        }
    }
}

#endif
