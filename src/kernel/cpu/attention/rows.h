// kernel/cpu/attention/rows.h: the rows of attention with vectors of LANES floats.
// Included by the microkernel.c of each instruction set, after its lanes.h.

#ifndef CY_KERNEL_CPU_ATTENTION_ROWS_H
#define CY_KERNEL_CPU_ATTENTION_ROWS_H

#include "kernel/cpu/attention/attention.h"

#define SOME 4 // queries at once: each element of a key or a value is widened once for them

// 2^x = 2^floor(x) 2^f with f in [0, 1), and 2^f by a polynomial of least relative error among
// those that are exact at 0, where a lone key's weight is: 1.5e-7 in degree five, with its
// rounding, and 3.0e-6 in degree four, for weights that are rounded to bf16. Below 2^-149 it is 0.
static inline lanes lanes_exp2(lanes x, const cy_dtype dtype)
{
    lanes whole;
    const lanes f = lanes_fraction(x, &whole);
    lanes y;
    if (dtype == CY_F32) {
        y = lanes_set(1.8671300e-3f);
        y = lanes_fma(y, f, lanes_set(9.0170310e-3f));
        y = lanes_fma(y, f, lanes_set(5.5799913e-2f));
        y = lanes_fma(y, f, lanes_set(2.4016444e-1f));
        y = lanes_fma(y, f, lanes_set(6.9315130e-1f));
        y = lanes_fma(y, f, lanes_set(1.0f));
    } else {
        y = lanes_set(1.3426685e-2f);
        y = lanes_fma(y, f, lanes_set(5.2242473e-2f));
        y = lanes_fma(y, f, lanes_set(2.4128020e-1f));
        y = lanes_fma(y, f, lanes_set(6.9304484e-1f));
        y = lanes_fma(y, f, lanes_set(1.0f));
    }
    return lanes_scale(y, whole);
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

static inline lanes edge_weights(const float *scores, cy_row_range seen, int64_t j, lanes factor,
    lanes shift, const cy_dtype dtype)
{
    const lanes y = lanes_exp2(lanes_fma(lanes_load(scores + j), factor, shift), dtype);
    return lanes_select(lanes_between(seen.first - j, seen.last - j), y, lanes_set(0.0f));
}

static inline __attribute__((always_inline)) float row_weights(void *weights, const cy_dtype dtype,
    const float *scores, cy_row_range seen, float factor, float max, int64_t stride)
{
    const lanes by = lanes_set(factor), shift = lanes_set(-max), zero = lanes_set(0.0f);
    lanes sum = zero, other = zero;
    int64_t from, to, j = 0;
    whole_lanes(seen, &from, &to);
    for (; j + LANES <= seen.first; j += LANES)
        store_weights(weights, dtype, j, zero);
    if (j < from) {
        sum = edge_weights(scores, seen, j, by, shift, dtype);
        store_weights(weights, dtype, j, sum);
        j += LANES;
    }
    for (; j + LANES < to; j += 2 * LANES) {
        const lanes x = lanes_exp2(lanes_fma(lanes_load(scores + j), by, shift), dtype);
        const lanes y = lanes_exp2(lanes_fma(lanes_load(scores + j + LANES), by, shift), dtype);
        store_weights(weights, dtype, j, x);
        store_weights(weights, dtype, j + LANES, y);
        sum = lanes_add(sum, x);
        other = lanes_add(other, y);
    }
    if (j < to) {
        const lanes y = lanes_exp2(lanes_fma(lanes_load(scores + j), by, shift), dtype);
        store_weights(weights, dtype, j, y);
        sum = lanes_add(sum, y);
        j += LANES;
    }
    if (j < seen.last) {
        const lanes y = edge_weights(scores, seen, j, by, shift, dtype);
        store_weights(weights, dtype, j, y);
        other = lanes_add(other, y);
        j += LANES;
    }
    for (; j < stride; j += LANES)
        store_weights(weights, dtype, j, zero);
    return lanes_sum(lanes_add(sum, other));
}

static inline __attribute__((always_inline)) void softmax_of(
    const cy_softmax_block *block, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    for (int64_t i = 0; i < block->rows; i++) {
        const cy_row_range seen = block->seen[i];
        const float *scores = block->scores + i * block->stride;
        void *weights = (char *)block->weights + i * block->stride * size;
        if (seen.first >= seen.last) {
            memset(weights, 0, (size_t)(block->stride * size));
            continue;
        }
        const float before = block->max[i];
        float max = row_max(scores, seen, block->factor);
        if (!(max > before)) {
            max = before;
        } else if (before > -__builtin_inff()) {
            const lanes shrink = lanes_exp2(lanes_set(before - max), CY_F32);
            float first[LANES];
            lanes_store(first, shrink);
            block->sum[i] *= first[0];
            float *out = block->out + i * block->out_cols;
            for (int64_t j = 0; j < block->out_cols; j += LANES) {
                lanes_store(out + j, lanes_mul(lanes_load(out + j), shrink));
            }
        }
        block->max[i] = max;
        block->sum[i] +=
            row_weights(weights, dtype, scores, seen, block->factor, max, block->stride);
    }
}

static void rows_softmax(const cy_softmax_block *block)
{
    if (block->dtype == CY_F32) {
        softmax_of(block, CY_F32);
    } else {
        softmax_of(block, CY_BF16);
    }
}

// Zero outside of what is seen of the columns from j on.
static inline void keep_seen(lanes *y, lanes *d, cy_row_range seen, int64_t j)
{
    if (seen.first <= j && seen.last >= j + LANES) return;
    const lane_mask inside = lanes_between(seen.first - j, seen.last - j);
    *y = lanes_select(inside, *y, lanes_set(0.0f));
    *d = lanes_select(inside, *d, lanes_set(0.0f));
}

static inline __attribute__((always_inline)) void gradient_of(
    const cy_gradient_block *block, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    const lanes zero = lanes_set(0.0f), factor = lanes_set(block->factor);
    const lanes scale = lanes_set(block->scale);
    // Down the columns, so that what belongs to a query is loaded once.
    for (int64_t j = 0; j < block->stride; j += LANES) {
        const lanes shift = lanes_sub(zero, lanes_load(block->log_sum + j));
        const lanes delta = lanes_load(block->delta + j);
        for (int64_t i = 0; i < block->rows; i++) {
            const cy_row_range seen = block->seen[i];
            const int64_t at = i * block->stride + j;
            lanes y = zero, d = zero;
            if (j + LANES > seen.first && j < seen.last) {
                y = lanes_exp2(lanes_fma(lanes_load(block->scores + at), factor, shift), dtype);
                d = lanes_sub(lanes_load(block->d_weights + at), delta); // 0 where they are equal
                d = lanes_mul(lanes_mul(d, scale), y);
                keep_seen(&y, &d, seen, j);
            }
            store_weights((char *)block->weights + at * size, dtype, 0, y);
            store_weights((char *)block->d_scores + at * size, dtype, 0, d);
        }
    }
}

static void rows_gradient(const cy_gradient_block *block)
{
    if (block->dtype == CY_F32) {
        gradient_of(block, CY_F32);
    } else {
        gradient_of(block, CY_BF16);
    }
}

// The dtype and the number of queries and of keys are constants wherever these are inlined: sums
// stay in registers.
static inline __attribute__((always_inline)) void dot_step(lanes sum[SOME][4], const float *queries,
    const int count, const char *key, int64_t key_bytes, const int keys, int64_t dim, int64_t i,
    int64_t left, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    lanes x[4];
    for (int k = 0; k < keys; k++)
        x[k] = lanes_load_as(key + k * key_bytes + i * size, dtype, left);
    for (int q = 0; q < count; q++) {
        const lanes y = lanes_load_as(queries + q * dim + i, CY_F32, left);
        for (int k = 0; k < keys; k++)
            sum[q][k] = lanes_fma(x[k], y, sum[q][k]);
    }
}

static inline __attribute__((always_inline)) void dot_block(float *scores, int64_t stride,
    const float *queries, const int count, const char *key, int64_t key_bytes, const int keys,
    int64_t dim, const cy_dtype dtype)
{
    lanes sum[SOME][4];
    for (int q = 0; q < count; q++) {
        for (int k = 0; k < 4; k++)
            sum[q][k] = lanes_set(0.0f);
    }
    int64_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        dot_step(sum, queries, count, key, key_bytes, keys, dim, i, LANES, dtype);
    if (i < dim) dot_step(sum, queries, count, key, key_bytes, keys, dim, i, dim - i, dtype);
    for (int q = 0; q < count; q++) {
        float four[4];
        lanes_sum4(four, sum[q]);
        memcpy(scores + q * stride, four, (size_t)keys * sizeof(float));
    }
}

// Asks for `rows` rows of `bytes` bytes.
static inline void prefetch_rows(const char *at, int64_t stride_bytes, int64_t bytes, int64_t rows)
{
    for (int64_t k = 0; k < rows; k++, at += stride_bytes) {
        for (int64_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(at + i);
    }
}

static inline __attribute__((always_inline)) void dot_some(float *scores, int64_t stride,
    const float *queries, const int count, cy_view keys, const char *ahead, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2, key_bytes = keys.stride * size, dim = keys.cols;
    const char *key = keys.data;
    int64_t k = 0;
    for (; k + 4 <= keys.rows; k += 4) {
        if (ahead != NULL) prefetch_rows(ahead + k * key_bytes, key_bytes, dim * size, 4);
        dot_block(
            scores + k, stride, queries, count, key + k * key_bytes, key_bytes, 4, dim, dtype);
    }
    for (; k < keys.rows; k++)
        dot_block(
            scores + k, stride, queries, count, key + k * key_bytes, key_bytes, 1, dim, dtype);
}

// Columns [i, i + low + high) of the sums; low and high are constants but for the last columns.
static inline __attribute__((always_inline)) void add_step(float *out, int64_t out_stride,
    const float *weights, int64_t stride, const int count, cy_view values, const char *ahead,
    int64_t i, int64_t low, int64_t high, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2, value_bytes = values.stride * size;
    lanes sum[SOME][2];
    for (int q = 0; q < count; q++) {
        sum[q][0] = lanes_load_as(out + q * out_stride + i, CY_F32, low);
        sum[q][1] = lanes_set(0.0f);
        if (high > 0) sum[q][1] = lanes_load_as(out + q * out_stride + i + LANES, CY_F32, high);
    }
    const char *value = (const char *)values.data + i * size;
    for (int64_t k = 0; k < values.rows; k++, value += value_bytes) {
        if (ahead != NULL) {
            for (int64_t byte = 0; byte < 2 * LANES * size; byte += 64)
                __builtin_prefetch(ahead + k * value_bytes + i * size + byte);
        }
        const lanes x = lanes_load_as(value, dtype, low);
        const lanes y = high > 0 ? lanes_load_as(value + LANES * size, dtype, high) : x;
        for (int q = 0; q < count; q++) {
            const lanes weight = lanes_set(weights[q * stride + k]);
            sum[q][0] = lanes_fma(weight, x, sum[q][0]);
            sum[q][1] = lanes_fma(weight, y, sum[q][1]);
        }
    }
    for (int q = 0; q < count; q++) {
        lanes_store_as(out + q * out_stride + i, CY_F32, low, sum[q][0]);
        if (high > 0) lanes_store_as(out + q * out_stride + i + LANES, CY_F32, high, sum[q][1]);
    }
}

static inline __attribute__((always_inline)) void add_some(float *out, int64_t out_stride,
    const float *weights, int64_t stride, const int count, cy_view values, const char *ahead,
    const cy_dtype dtype)
{
    const int64_t dim = values.cols;
    int64_t i = 0;
    for (; i + 2 * LANES <= dim; i += 2 * LANES) {
        add_step(out, out_stride, weights, stride, count, values, ahead, i, LANES, LANES, dtype);
    }
    if (i < dim) {
        const int64_t low = dim - i < LANES ? dim - i : LANES;
        const int64_t high = dim - i - LANES; // none: below 1
        add_step(out, out_stride, weights, stride, count, values, ahead, i, low, high, dtype);
    }
}

#define SOME_CASES(function, dtype)                                                                \
    switch (count < SOME ? count : SOME) {                                                         \
    case 1:                                                                                        \
        function(1, dtype);                                                                        \
        break;                                                                                     \
    case 2:                                                                                        \
        function(2, dtype);                                                                        \
        break;                                                                                     \
    case 3:                                                                                        \
        function(3, dtype);                                                                        \
        break;                                                                                     \
    default:                                                                                       \
        function(SOME, dtype);                                                                     \
    }

#define SOME_DTYPES(function, dtype)                                                               \
    if ((dtype) == CY_BF16) {                                                                      \
        SOME_CASES(function, CY_BF16)                                                              \
    } else if ((dtype) == CY_F16) {                                                                \
        SOME_CASES(function, CY_F16)                                                               \
    } else {                                                                                       \
        SOME_CASES(function, CY_F32)                                                               \
    }

#define DOT_SOME(number, dtype) dot_some(scores, stride, queries, number, keys, ahead, dtype)
#define ADD_SOME(number, dtype)                                                                    \
    add_some(out, out_stride, weights, stride, number, values, ahead, dtype)

static void rows_dot(float *scores, int64_t stride, const float *queries, int64_t count,
    cy_view keys, const void *ahead)
{
    for (; count > 0; count -= SOME) {
        SOME_DTYPES(DOT_SOME, keys.dtype)
        ahead = NULL; // once is enough
        scores += SOME * stride;
        queries += SOME * keys.cols;
    }
}

static void rows_add(float *out, int64_t out_stride, const float *weights, int64_t stride,
    int64_t count, cy_view values, const void *ahead)
{
    for (; count > 0; count -= SOME) {
        SOME_DTYPES(ADD_SOME, values.dtype)
        ahead = NULL;
        out += SOME * out_stride;
        weights += SOME * stride;
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

static inline __attribute__((always_inline)) void inner_of(float *sums, int64_t stride,
    const char *a, const cy_dtype a_dtype, const char *b, const cy_dtype b_dtype, int64_t heads,
    int64_t dim)
{
    const int64_t a_size = a_dtype == CY_F32 ? 4 : 2, b_size = b_dtype == CY_F32 ? 4 : 2;
    for (int64_t head = 0; head < heads; head++) {
        lanes sum = lanes_set(0.0f);
        for (int64_t i = 0; i < dim; i += LANES) {
            const int64_t at = head * dim + i;
            sum = lanes_fma(lanes_load_as(a + at * a_size, a_dtype, dim - i),
                lanes_load_as(b + at * b_size, b_dtype, dim - i), sum);
        }
        sums[head * stride] = lanes_sum(sum);
    }
}

static void rows_inner(float *sums, int64_t stride, const void *a, cy_dtype a_dtype, const void *b,
    cy_dtype b_dtype, int64_t heads, int64_t dim)
{
    if (a_dtype == CY_BF16 && b_dtype == CY_BF16) {
        inner_of(sums, stride, a, CY_BF16, b, CY_BF16, heads, dim);
    } else if (a_dtype == CY_F32 && b_dtype == CY_F32) {
        inner_of(sums, stride, a, CY_F32, b, CY_F32, heads, dim);
    } else {
        inner_of(sums, stride, a, a_dtype, b, b_dtype, heads, dim);
    }
}

// Floats ahead that a sum of parts asks for: they come from far, and in short runs.
#define PARTS_AHEAD 1024

static void rows_total(float *sum, const float *parts, int64_t count, int64_t dim, bool add)
{
    for (int64_t i = 0; i < dim; i += LANES) {
        lanes total = add ? lanes_load_as(sum + i, CY_F32, dim - i) : lanes_set(0.0f);
        for (int64_t j = 0; j < count; j++) {
            __builtin_prefetch(parts + j * dim + i + PARTS_AHEAD);
            total = lanes_add(total, lanes_load_as(parts + j * dim + i, CY_F32, dim - i));
        }
        lanes_store_as(sum + i, CY_F32, dim - i, total);
    }
}

static const cy_attention_rows attention_rows = {
    .softmax = rows_softmax,
    .gradient = rows_gradient,
    .dot = rows_dot,
    .add = rows_add,
    .blend = rows_blend,
    .inner = rows_inner,
    .total = rows_total,
};

#endif
