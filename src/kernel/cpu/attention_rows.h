// kernel/cpu/attention_rows.h: the row-by-row part of attention, one set of functions per
// instruction set; the products between them are kernel/cpu/gemm/microkernel.h's.
//
// Everything is borrowed and pure; any thread. Rows of fp32 blocks have room for a multiple of 32
// columns, so whole vectors may be read and written. Scores come as plain products; `factor` is
// scale * log2(e), so that weights are powers of two, each with a relative error below 2^-21, or
// 2^-18 where they are stored as bf16.

#ifndef CY_KERNEL_CPU_ATTENTION_ROWS_H
#define CY_KERNEL_CPU_ATTENTION_ROWS_H

#include "device/view.h"

// The columns that a row of a block sees: [first, last).
typedef struct cy_row_range {
    int32_t first, last;
} cy_row_range;

typedef struct cy_softmax_block {
    const float *scores; // [rows, stride]
    void *weights;       // [rows, stride], fp32 or bf16: 2^(factor * score - max), 0 where unseen
    float *out;          // [rows, out_cols], sums so far: rescaled when a row's maximum grows
    float *max, *sum;    // [rows] of all blocks so far, max in units of log2
    const cy_row_range *seen; // [rows]
    int64_t rows, stride, out_cols;
    float factor;
    cy_dtype dtype; // of the weights
} cy_softmax_block;

typedef struct cy_gradient_block {
    const float *scores;      // [rows, stride]: keys by queries
    const float *d_weights;   // likewise: the gradient that arrives at the weights
    void *weights;            // [rows, stride], 0 where unseen
    void *d_scores;           // likewise: weight * (d_weight - delta) * scale
    const float *log_sum;     // [stride], in units of log2, of each query
    const float *delta;       // [stride]
    const cy_row_range *seen; // [rows]
    int64_t rows, stride;
    float factor, scale;
    cy_dtype dtype; // of weights and d_scores
} cy_gradient_block;

typedef struct cy_attention_rows {
    void (*softmax)(const cy_softmax_block *block);
    void (*gradient)(const cy_gradient_block *block);

    // scores[q * stride + k] = queries [count, dim] (fp32) times keys [some, dim], any row stride.
    // Rows at `ahead`, unless NULL, as many and as far apart as keys, are asked for meanwhile.
    void (*dot)(float *scores, int64_t stride, const float *queries, int64_t count, cy_view keys,
        const void *ahead);

    // out [count, dim], rows out_stride apart, += weights[q * stride + k] times values [some, dim].
    void (*add)(float *out, int64_t out_stride, const float *weights, int64_t stride, int64_t count,
        cy_view values, const void *ahead);

    // o = a * o + b * part over `count` elements.
    void (*blend)(void *o, cy_dtype dtype, float a, const void *part, cy_dtype part_dtype, float b,
        int64_t count);

    // sums[head * stride] = the sum of products of a's and b's elements of that head; rows of heads
    // * dim.
    void (*inner)(float *sums, int64_t stride, const void *a, cy_dtype a_dtype, const void *b,
        cy_dtype b_dtype, int64_t heads, int64_t dim);

    // sum [dim] = the sum of parts [count, dim], in ascending order, behind what it holds if `add`.
    void (*total)(float *sum, const float *parts, int64_t count, int64_t dim, bool add);
} cy_attention_rows;

const cy_attention_rows *cy_attention_rows_avx2(void);
const cy_attention_rows *cy_attention_rows_avx512(void);
const cy_attention_rows *cy_attention_rows_neon(void);

#endif
