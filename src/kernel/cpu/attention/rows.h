// kernel/cpu/attention/rows.h: the row-by-row part of attention.
// Included by the microkernel.c of each instruction set, which compiles it for that set.

#ifndef CY_KERNEL_CPU_ATTENTION_ROWS_H
#define CY_KERNEL_CPU_ATTENTION_ROWS_H

#include "kernel/cpu/attention/attention.h"
#include "kernel/cpu/vector/vector.h"

#define SOME 4 // queries at once: each element of a key or a value is widened once for all of them

// 2^x = 2^floor(x) 2^f with f in [0, 1), and 2^f by a polynomial of least relative error among
// those that are exact at 0, where a lone key's weight is: 1.5e-7 in degree five, with its
// rounding, and 3.0e-6 in degree four, for weights that are rounded to bf16. Below 2^-149 it is 0.
FORCE_INLINE vec vec_exp2(vec x, const cy_dtype dtype)
{
    const vec in_range = vec_max(vec_all(-160.0f), x); // a NaN passes
    const vec whole = vec_floor(in_range), f = vec_sub(in_range, whole);
    vec y;
    if (dtype == CY_F32) {
        y = vec_all(1.8671300e-3f);
        y = vec_fma(y, f, vec_all(9.0170310e-3f));
        y = vec_fma(y, f, vec_all(5.5799913e-2f));
        y = vec_fma(y, f, vec_all(2.4016444e-1f));
        y = vec_fma(y, f, vec_all(6.9315130e-1f));
        y = vec_fma(y, f, vec_all(1.0f));
    } else {
        y = vec_all(1.3426685e-2f);
        y = vec_fma(y, f, vec_all(5.2242473e-2f));
        y = vec_fma(y, f, vec_all(2.4128020e-1f));
        y = vec_fma(y, f, vec_all(6.9304484e-1f));
        y = vec_fma(y, f, vec_all(1.0f));
    }
    return vec_scale(y, whole);
}

FORCE_INLINE void store_weights(void *row, cy_dtype dtype, int64_t at, vec x)
{
    if (dtype == CY_F32) {
        vec_store((float *)row + at, x);
    } else {
        store_bf16_fast((uint16_t *)row + at, x);
    }
}

// The whole vectors of a row that its seen columns fill: [*from, *to), and outside them at most one
// vector before and one after that they share with others.
FORCE_INLINE void whole_lanes(cy_row_range seen, int64_t *from, int64_t *to)
{
    *from = (seen.first + LANES - 1) / LANES * LANES;
    *to = seen.last / LANES * LANES;
}

FORCE_INLINE vec edge_max(vec max, const float *scores, cy_row_range seen, int64_t j, vec factor)
{
    const vec_mask inside = lanes_between(seen.first - j, seen.last - j);
    return vec_select(inside, vec_max(vec_mul(vec_load(scores + j), factor), max), max);
}

FORCE_INLINE float row_max(const float *scores, cy_row_range seen, float factor)
{
    const vec by = vec_all(factor);
    vec max = vec_all(-__builtin_inff()), other = max;
    int64_t j, to;
    whole_lanes(seen, &j, &to);
    if (seen.first < j) max = edge_max(max, scores, seen, j - LANES, by);
    if (to < seen.last && to >= j) other = edge_max(other, scores, seen, to, by);
    for (; j + LANES < to; j += 2 * LANES) {
        max = vec_max(vec_mul(vec_load(scores + j), by), max);
        other = vec_max(vec_mul(vec_load(scores + j + LANES), by), other);
    }
    if (j < to) max = vec_max(vec_mul(vec_load(scores + j), by), max);
    return vec_largest(vec_max(max, other));
}

FORCE_INLINE vec edge_weights(
    const float *scores, cy_row_range seen, int64_t j, vec factor, vec shift, const cy_dtype dtype)
{
    const vec y = vec_exp2(vec_fma(vec_load(scores + j), factor, shift), dtype);
    return vec_select(lanes_between(seen.first - j, seen.last - j), y, vec_all(0.0f));
}

FORCE_INLINE float row_weights(void *weights, const cy_dtype dtype, const float *scores,
    cy_row_range seen, float factor, float max, int64_t stride)
{
    const vec by = vec_all(factor), shift = vec_all(-max), zero = vec_all(0.0f);
    vec sum = zero, other = zero;
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
        const vec x = vec_exp2(vec_fma(vec_load(scores + j), by, shift), dtype);
        const vec y = vec_exp2(vec_fma(vec_load(scores + j + LANES), by, shift), dtype);
        store_weights(weights, dtype, j, x);
        store_weights(weights, dtype, j + LANES, y);
        sum = vec_add(sum, x);
        other = vec_add(other, y);
    }
    if (j < to) {
        const vec y = vec_exp2(vec_fma(vec_load(scores + j), by, shift), dtype);
        store_weights(weights, dtype, j, y);
        sum = vec_add(sum, y);
        j += LANES;
    }
    if (j < seen.last) {
        const vec y = edge_weights(scores, seen, j, by, shift, dtype);
        store_weights(weights, dtype, j, y);
        other = vec_add(other, y);
        j += LANES;
    }
    for (; j < stride; j += LANES)
        store_weights(weights, dtype, j, zero);
    return vec_sum_pairs(vec_add(sum, other));
}

FORCE_INLINE void softmax_of(const cy_softmax_block *block, const cy_dtype dtype)
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
            const vec shrink = vec_exp2(vec_all(before - max), CY_F32);
            float first[LANES];
            vec_store(first, shrink);
            block->sum[i] *= first[0];
            float *out = block->out + i * block->out_cols;
            for (int64_t j = 0; j < block->out_cols; j += LANES) {
                vec_store(out + j, vec_mul(vec_load(out + j), shrink));
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
FORCE_INLINE void keep_seen(vec *y, vec *d, cy_row_range seen, int64_t j)
{
    if (seen.first <= j && seen.last >= j + LANES) return;
    const vec_mask inside = lanes_between(seen.first - j, seen.last - j);
    *y = vec_select(inside, *y, vec_all(0.0f));
    *d = vec_select(inside, *d, vec_all(0.0f));
}

FORCE_INLINE void gradient_of(const cy_gradient_block *block, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    const vec zero = vec_all(0.0f), factor = vec_all(block->factor);
    const vec scale = vec_all(block->scale);
    // Down the columns, so that what belongs to a query is loaded once.
    for (int64_t j = 0; j < block->stride; j += LANES) {
        const vec shift = vec_sub(zero, vec_load(block->log_sum + j));
        const vec delta = vec_load(block->delta + j);
        for (int64_t i = 0; i < block->rows; i++) {
            const cy_row_range seen = block->seen[i];
            const int64_t at = i * block->stride + j;
            vec y = zero, d = zero;
            if (j + LANES > seen.first && j < seen.last) {
                y = vec_exp2(vec_fma(vec_load(block->scores + at), factor, shift), dtype);
                d = vec_sub(vec_load(block->d_weights + at), delta); // 0 where they are equal
                d = vec_mul(vec_mul(d, scale), y);
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
FORCE_INLINE void dot_step(vec sum[SOME][4], const float *queries, const int count, const char *key,
    int64_t key_bytes, const int keys, int64_t dim, int64_t i, int64_t left, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    vec x[4];
    for (int k = 0; k < keys; k++)
        x[k] = load_as(key + k * key_bytes + i * size, dtype, left);
    for (int q = 0; q < count; q++) {
        const vec y = load_as(queries + q * dim + i, CY_F32, left);
        for (int k = 0; k < keys; k++)
            sum[q][k] = vec_fma(x[k], y, sum[q][k]);
    }
}

FORCE_INLINE void dot_block(float *scores, int64_t stride, const float *queries, const int count,
    const char *key, int64_t key_bytes, const int keys, int64_t dim, const cy_dtype dtype)
{
    vec sum[SOME][4];
    for (int q = 0; q < count; q++) {
        for (int k = 0; k < 4; k++)
            sum[q][k] = vec_all(0.0f);
    }
    int64_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        dot_step(sum, queries, count, key, key_bytes, keys, dim, i, LANES, dtype);
    if (i < dim) dot_step(sum, queries, count, key, key_bytes, keys, dim, i, dim - i, dtype);
    for (int q = 0; q < count; q++) {
        float four[4];
        vec_sum4(four, sum[q]);
        memcpy(scores + q * stride, four, (size_t)keys * sizeof(float));
    }
}

// Prefetches `rows` rows of `bytes` bytes.
FORCE_INLINE void prefetch_rows(const char *at, int64_t stride_bytes, int64_t bytes, int64_t rows)
{
    for (int64_t k = 0; k < rows; k++, at += stride_bytes) {
        for (int64_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(at + i);
    }
}

FORCE_INLINE void dot_some(float *scores, int64_t stride, const float *queries, const int count,
    cy_view keys, const char *ahead, const cy_dtype dtype)
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
FORCE_INLINE void add_step(float *out, int64_t out_stride, const float *weights, int64_t stride,
    const int count, cy_view values, const char *ahead, int64_t i, int64_t low, int64_t high,
    const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2, value_bytes = values.stride * size;
    vec sum[SOME][2];
    for (int q = 0; q < count; q++) {
        sum[q][0] = load_as(out + q * out_stride + i, CY_F32, low);
        sum[q][1] = vec_all(0.0f);
        if (high > 0) sum[q][1] = load_as(out + q * out_stride + i + LANES, CY_F32, high);
    }
    const char *value = (const char *)values.data + i * size;
    for (int64_t k = 0; k < values.rows; k++, value += value_bytes) {
        if (ahead != NULL) {
            for (int64_t byte = 0; byte < 2 * LANES * size; byte += 64)
                __builtin_prefetch(ahead + k * value_bytes + i * size + byte);
        }
        const vec x = load_as(value, dtype, low);
        const vec y = high > 0 ? load_as(value + LANES * size, dtype, high) : x;
        for (int q = 0; q < count; q++) {
            const vec weight = vec_all(weights[q * stride + k]);
            sum[q][0] = vec_fma(weight, x, sum[q][0]);
            sum[q][1] = vec_fma(weight, y, sum[q][1]);
        }
    }
    for (int q = 0; q < count; q++) {
        store_as(out + q * out_stride + i, CY_F32, sum[q][0], low);
        if (high > 0) store_as(out + q * out_stride + i + LANES, CY_F32, sum[q][1], high);
    }
}

FORCE_INLINE void add_some(float *out, int64_t out_stride, const float *weights, int64_t stride,
    const int count, cy_view values, const char *ahead, const cy_dtype dtype)
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
        const vec x = load_as(at, dtype, count - i);
        const vec y = load_as((const char *)part + i * part_size, part_dtype, count - i);
        store_as(at, dtype, vec_fma(x, vec_all(a), vec_mul(y, vec_all(b))), count - i);
    }
}

FORCE_INLINE void inner_of(float *sums, int64_t stride, const char *a, const cy_dtype a_dtype,
    const char *b, const cy_dtype b_dtype, int64_t heads, int64_t dim)
{
    const int64_t a_size = a_dtype == CY_F32 ? 4 : 2, b_size = b_dtype == CY_F32 ? 4 : 2;
    for (int64_t head = 0; head < heads; head++) {
        vec sum = vec_all(0.0f);
        for (int64_t i = 0; i < dim; i += LANES) {
            const int64_t at = head * dim + i;
            sum = vec_fma(load_as(a + at * a_size, a_dtype, dim - i),
                load_as(b + at * b_size, b_dtype, dim - i), sum);
        }
        sums[head * stride] = vec_sum_pairs(sum);
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

// Floats by which a sum of parts prefetches ahead: they come from memory in short runs.
#define PARTS_AHEAD 1024

static void rows_total(float *sum, const float *parts, int64_t count, int64_t dim, bool add)
{
    for (int64_t i = 0; i < dim; i += LANES) {
        vec total = add ? load_as(sum + i, CY_F32, dim - i) : vec_all(0.0f);
        for (int64_t j = 0; j < count; j++) {
            __builtin_prefetch(parts + j * dim + i + PARTS_AHEAD);
            total = vec_add(total, load_as(parts + j * dim + i, CY_F32, dim - i));
        }
        store_as(sum + i, CY_F32, total, dim - i);
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
