// kernel/cpu/attention_lanes.h: the rows of attention in terms of LANES floats at once. Included by
// the one file per instruction set that has included its lanes.h before.

#ifndef CY_KERNEL_CPU_ATTENTION_LANES_H
#define CY_KERNEL_CPU_ATTENTION_LANES_H

#include "kernel/cpu/attention_rows.h"

// 2^x for x <= 0: x = n + f with |f| <= 1/2, and 2^f by Taylor's polynomial of degree six, whose
// remainder is at most 1.3e-7 of the result. Below 2^-149 it is 0.
static inline lanes lanes_exp2(lanes x)
{
    const lanes clamped = lanes_max(lanes_set(-160.0f), x); // a NaN passes
    const lanes n = lanes_round(clamped);
    const lanes f = lanes_sub(clamped, n);
    lanes y = lanes_set(1.5403530e-4f);
    y = lanes_fma(y, f, lanes_set(1.3333558e-3f));
    y = lanes_fma(y, f, lanes_set(9.6181291e-3f));
    y = lanes_fma(y, f, lanes_set(5.5504109e-2f));
    y = lanes_fma(y, f, lanes_set(2.4022651e-1f));
    y = lanes_fma(y, f, lanes_set(6.9314718e-1f));
    y = lanes_fma(y, f, lanes_set(1.0f));
    return lanes_scale(y, n);
}

static inline void store_weights(void *row, cy_dtype dtype, int64_t at, lanes x)
{
    if (dtype == CY_F32) {
        lanes_store((float *)row + at, x);
    } else {
        lanes_store_bf16((uint16_t *)row + at, x);
    }
}

// The whole vectors of a row that its seen columns fill: [*from, *to), and outside them at most one
// vector before and one after that they share with others.
static inline void whole_lanes(cy_row_range seen, int64_t *from, int64_t *to)
{
    *from = (seen.first + LANES - 1) / LANES * LANES;
    *to = seen.last / LANES * LANES;
}

static inline lanes edge_max(
    lanes max, const float *scores, cy_row_range seen, int64_t j, lanes factor)
{
    const lane_mask inside = lanes_between(seen.first - j, seen.last - j);
    return lanes_select(inside, lanes_max(lanes_mul(lanes_load(scores + j), factor), max), max);
}

static inline float row_max(const float *scores, cy_row_range seen, float factor)
{
    const lanes by = lanes_set(factor);
    lanes max = lanes_set(-__builtin_inff()), other = max;
    int64_t j, to;
    whole_lanes(seen, &j, &to);
    if (seen.first < j) max = edge_max(max, scores, seen, j - LANES, by);
    if (to < seen.last && to >= j) other = edge_max(other, scores, seen, to, by);
    for (; j + LANES < to; j += 2 * LANES) {
        max = lanes_max(lanes_mul(lanes_load(scores + j), by), max);
        other = lanes_max(lanes_mul(lanes_load(scores + j + LANES), by), other);
    }
    if (j < to) max = lanes_max(lanes_mul(lanes_load(scores + j), by), max);
    return lanes_largest(lanes_max(max, other));
}

static inline lanes edge_weights(
    const float *scores, cy_row_range seen, int64_t j, lanes factor, lanes shift)
{
    const lanes y = lanes_exp2(lanes_fma(lanes_load(scores + j), factor, shift));
    return lanes_select(lanes_between(seen.first - j, seen.last - j), y, lanes_set(0.0f));
}

static inline __attribute__((always_inline)) float row_weights(void *weights, const cy_dtype dtype,
    const float *scores, cy_row_range seen, float factor, float max, int64_t stride)
{
    const lanes by = lanes_set(factor), shift = lanes_set(-max), zero = lanes_set(0.0f);
    lanes sum = zero;
    int64_t from, to, j = 0;
    whole_lanes(seen, &from, &to);
    for (; j + LANES <= seen.first; j += LANES)
        store_weights(weights, dtype, j, zero);
    if (j < from) {
        sum = edge_weights(scores, seen, j, by, shift);
        store_weights(weights, dtype, j, sum);
        j += LANES;
    }
    for (; j < to; j += LANES) {
        const lanes y = lanes_exp2(lanes_fma(lanes_load(scores + j), by, shift));
        store_weights(weights, dtype, j, y);
        sum = lanes_add(sum, y);
    }
    if (j < seen.last) {
        const lanes y = edge_weights(scores, seen, j, by, shift);
        store_weights(weights, dtype, j, y);
        sum = lanes_add(sum, y);
        j += LANES;
    }
    for (; j < stride; j += LANES)
        store_weights(weights, dtype, j, zero);
    return lanes_sum(sum);
}

static void rows_softmax(const cy_softmax_block *block)
{
    const size_t size = block->dtype == CY_F32 ? 4 : 2;
    for (int64_t i = 0; i < block->rows; i++) {
        const cy_row_range seen = block->seen[i];
        const float *scores = block->scores + i * block->stride;
        void *weights = (char *)block->weights + (size_t)(i * block->stride) * size;
        if (seen.first >= seen.last) {
            memset(weights, 0, (size_t)block->stride * size);
            continue;
        }
        const float before = block->max[i];
        float max = row_max(scores, seen, block->factor);
        if (!(max > before)) {
            max = before;
        } else if (before > -__builtin_inff()) {
            const lanes shrink = lanes_exp2(lanes_set(before - max));
            float first[LANES];
            lanes_store(first, shrink);
            block->sum[i] *= first[0];
            float *out = block->out + i * block->out_cols;
            for (int64_t j = 0; j < block->out_cols; j += LANES) {
                lanes_store(out + j, lanes_mul(lanes_load(out + j), shrink));
            }
        }
        block->max[i] = max;
        block->sum[i] += block->dtype == CY_F32
            ? row_weights(weights, CY_F32, scores, seen, block->factor, max, block->stride)
            : row_weights(weights, CY_BF16, scores, seen, block->factor, max, block->stride);
    }
}

static void rows_gradient(const cy_gradient_block *block)
{
    const size_t size = block->dtype == CY_F32 ? 4 : 2;
    const lanes zero = lanes_set(0.0f), factor = lanes_set(block->factor);
    for (int64_t i = 0; i < block->rows; i++) {
        const cy_row_range seen = block->seen[i];
        const int64_t at = i * block->stride;
        char *weights = (char *)block->weights + (size_t)at * size;
        char *d_scores = (char *)block->d_scores + (size_t)at * size;
        for (int64_t j = 0; j < block->stride; j += LANES) {
            lanes y = zero, d = zero;
            if (j + LANES > seen.first && j < seen.last) {
                const lanes shift = lanes_load(block->log_sum + j);
                y = lanes_exp2(
                    lanes_sub(lanes_mul(lanes_load(block->scores + at + j), factor), shift));
                d = lanes_sub(lanes_load(block->d_weights + at + j), lanes_load(block->delta + j));
                d = lanes_mul(lanes_mul(d, lanes_set(block->scale)), y);
                if (seen.first > j || seen.last < j + LANES) {
                    const lane_mask inside = lanes_between(seen.first - j, seen.last - j);
                    y = lanes_select(inside, y, zero);
                    d = lanes_select(inside, d, zero);
                }
            }
            store_weights(weights, block->dtype, j, y);
            store_weights(d_scores, block->dtype, j, d);
        }
    }
}

static void rows_dot(float *scores, int64_t stride, const float *queries, int64_t count,
    const void *key, cy_dtype dtype, int64_t dim)
{
    const int64_t size = (int64_t)cy_dtype_size(dtype);
    for (int64_t q = 0; q < count; q++) {
        lanes sum = lanes_set(0.0f);
        for (int64_t i = 0; i < dim; i += LANES) {
            const lanes x = lanes_load_as((const char *)key + i * size, dtype, dim - i);
            sum = lanes_fma(x, lanes_load_as(queries + q * dim + i, CY_F32, dim - i), sum);
        }
        scores[q * stride] = lanes_sum(sum);
    }
}

static void rows_add(float *out, int64_t out_stride, const float *weights, int64_t stride,
    int64_t count, const void *value, cy_dtype dtype, int64_t dim)
{
    const int64_t size = (int64_t)cy_dtype_size(dtype);
    for (int64_t i = 0; i < dim; i += LANES) {
        const lanes x = lanes_load_as((const char *)value + i * size, dtype, dim - i);
        for (int64_t q = 0; q < count; q++) {
            float *at = out + q * out_stride + i;
            const lanes old = lanes_load_as(at, CY_F32, dim - i);
            lanes_store_as(at, CY_F32, dim - i, lanes_fma(lanes_set(weights[q * stride]), x, old));
        }
    }
}

static void rows_blend(
    void *o, cy_dtype dtype, float a, const void *part, cy_dtype part_dtype, float b, int64_t count)
{
    const int64_t size = (int64_t)cy_dtype_size(dtype);
    const int64_t part_size = (int64_t)cy_dtype_size(part_dtype);
    for (int64_t i = 0; i < count; i += LANES) {
        char *at = (char *)o + i * size;
        const lanes x = lanes_load_as(at, dtype, count - i);
        const lanes y = lanes_load_as((const char *)part + i * part_size, part_dtype, count - i);
        lanes_store_as(
            at, dtype, count - i, lanes_fma(x, lanes_set(a), lanes_mul(y, lanes_set(b))));
    }
}

static float rows_inner(
    const void *a, cy_dtype a_dtype, const void *b, cy_dtype b_dtype, int64_t count)
{
    const int64_t a_size = (int64_t)cy_dtype_size(a_dtype),
                  b_size = (int64_t)cy_dtype_size(b_dtype);
    lanes sum = lanes_set(0.0f);
    for (int64_t i = 0; i < count; i += LANES) {
        sum = lanes_fma(lanes_load_as((const char *)a + i * a_size, a_dtype, count - i),
            lanes_load_as((const char *)b + i * b_size, b_dtype, count - i), sum);
    }
    return lanes_sum(sum);
}

static const cy_attention_rows rows = {
    .softmax = rows_softmax,
    .gradient = rows_gradient,
    .dot = rows_dot,
    .add = rows_add,
    .blend = rows_blend,
    .inner = rows_inner,
};

#endif
