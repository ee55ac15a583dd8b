// kernel/cpu/vector/softmax.h: the passes of cross-entropy over a tile of logits. Bound by the
// exponential where the tile is in a cache, by memory where it is not.

#ifndef CY_KERNEL_CPU_VECTOR_SOFTMAX_H
#define CY_KERNEL_CPU_VECTOR_SOFTMAX_H

#include "kernel/cpu/vector/elementwise.h"

typedef struct logit_rows {
    grid cut; // of rows
    cy_view out, target, logits, max, sum;
    const int32_t *targets; // [rows]
    int64_t first;          // global index of column 0
    int64_t valid;          // columns here that are not padding
    float scale;
} logit_rows;

// Elements by which rows of logits are prefetched: they come from memory, and those of the gradient
// go there too.
#define LOGITS_AHEAD 1024

static void softmax_max_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const chunk at = chunk_at(of->cut, of->logits.rows, of->logits.cols, number);
    const vec lowest = vec_all(-INFINITY);
    for (int64_t t = at.row; t < at.row_end; t++) {
        const void *logits = cy_view_at(of->logits, t, 0);
        vec last = lowest, before = lowest; // two maxima in turn, in registers
        for (int64_t i = 0; i < of->valid; i += LANES) {
            const int64_t lanes = lanes_left(of->valid, i);
            prefetch(logits, of->logits.dtype, i + LOGITS_AHEAD);
            const vec value = vec_first(load(logits, of->logits.dtype, i, lanes), lowest, lanes);
            const vec max = vec_max(value, before); // a NaN is passed over, and shows in the sum
            before = last;
            last = max;
        }
        ((float *)of->out.data)[t] = vec_largest(vec_max(before, last));
    }
}

static void softmax_max(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range)
{
    if (!supported(logits) || max.dtype != CY_F32) {
        cy_ref_softmax_max(queue, max, logits, range);
        return;
    }
    logit_rows of = {
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = max,
        .logits = logits,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, softmax_max_chunk, &of, of.cut.count);
}

// Four sums side by side, so that one addition need not wait for the last.
FORCE_INLINE float exponential_sum(const void *logits, cy_dtype dtype, int64_t valid, float row_max)
{
    const vec max = vec_all(row_max), lowest = vec_all(-INFINITY);
    vec sums[4] = {vec_all(0.0f), vec_all(0.0f), vec_all(0.0f), vec_all(0.0f)};
    int64_t i = 0;
    for (; i + INT64_C(4) * LANES <= valid; i += INT64_C(4) * LANES) {
        for (int j = 0; j < 4; j++) {
            prefetch(logits, dtype, i + (int64_t)j * LANES + LOGITS_AHEAD);
            const vec value = load(logits, dtype, i + (int64_t)j * LANES, LANES);
            sums[j] = vec_add(sums[j], vec_exp(vec_sub(value, max)));
        }
    }
    for (; i < valid; i += LANES) {
        const int64_t lanes = lanes_left(valid, i);
        const vec value = vec_first(load(logits, dtype, i, lanes), lowest, lanes);
        sums[0] = vec_add(sums[0], vec_exp(vec_sub(value, max)));
    }
    return vec_sum(vec_add(vec_add(sums[0], sums[1]), vec_add(sums[2], sums[3])));
}

static void softmax_sum_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const chunk at = chunk_at(of->cut, of->logits.rows, of->logits.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        const void *logits = cy_view_at(of->logits, t, 0);
        const float max = ((const float *)of->max.data)[t];
        ((float *)of->out.data)[t] = of->logits.dtype == CY_BF16
            ? exponential_sum(logits, CY_BF16, of->valid, max)
            : exponential_sum(logits, CY_F32, of->valid, max);
        const int64_t column = of->targets[t] - of->first;
        float target = 0.0f;
        if (of->targets[t] >= 0 && column >= 0 && column < of->valid) {
            target = of->logits.dtype == CY_BF16 ? cy_bf16_to_f32(((const cy_bf16 *)logits)[column])
                                                 : ((const float *)logits)[column];
        }
        ((float *)of->target.data)[t] = target;
    }
}

static void softmax_sum(cy_queue *queue, cy_view sum, cy_view target, cy_view logits, cy_view max,
    const int32_t *targets, cy_vocab_range range)
{
    if (!supported(logits) || sum.dtype != CY_F32 || target.dtype != CY_F32 ||
        max.dtype != CY_F32) {
        cy_ref_softmax_sum(queue, sum, target, logits, max, targets, range);
        return;
    }
    logit_rows of = {
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = sum,
        .target = target,
        .logits = logits,
        .max = max,
        .targets = targets,
        .first = range.first,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, softmax_sum_chunk, &of, of.cut.count);
}

// Computes the target's column apart: otherwise exp / sum - 1 would lose its digits to rounding.
static void softmax_grad_target(const logit_rows *of, int64_t t, float logit)
{
    const int64_t column = of->targets[t] - of->first;
    const double max = (double)((const float *)of->max.data)[t];
    const double sum = (double)((const float *)of->sum.data)[t];
    const float gradient = of->scale * (float)(exp((double)logit - max) / sum - 1.0);
    if (of->out.dtype == CY_BF16) {
        *(cy_bf16 *)cy_view_at(of->out, t, column) = cy_bf16_from_f32(gradient);
    } else {
        *(float *)cy_view_at(of->out, t, column) = gradient;
    }
}

FORCE_INLINE void softmax_grad_row(
    const logit_rows *of, int64_t t, cy_dtype out_dtype, cy_dtype dtype)
{
    const void *logits = cy_view_at(of->logits, t, 0);
    void *out = cy_view_at(of->out, t, 0);
    const bool counts = of->targets[t] >= 0;
    const int64_t column = of->targets[t] - of->first;
    const int64_t valid = counts ? of->valid : 0;
    const bool has_target = counts && column >= 0 && column < valid;
    // The gradient may take the logits' place.
    const float target = !has_target ? 0.0f
        : dtype == CY_BF16           ? cy_bf16_to_f32(((const cy_bf16 *)logits)[column])
                                     : ((const float *)logits)[column];
    const vec max = vec_all(((const float *)of->max.data)[t]);
    const vec factor = vec_all(of->scale / ((const float *)of->sum.data)[t]);
    const vec lowest = vec_all(-INFINITY);
    int64_t i = 0;
    for (; i < valid; i += LANES) {
        const int64_t lanes = lanes_left(of->logits.cols, i);
        prefetch(logits, dtype, i + LOGITS_AHEAD);
        prefetch(out, out_dtype, i + LOGITS_AHEAD);
        const vec read = load(logits, dtype, i, lanes);
        const vec value = i + LANES <= valid ? read : vec_first(read, lowest, valid - i);
        store(out, out_dtype, i, vec_mul(factor, vec_exp(vec_sub(value, max))), lanes);
    }
    for (; i < of->logits.cols; i += LANES) {
        store(out, out_dtype, i, vec_all(0.0f), lanes_left(of->logits.cols, i));
    }
    if (has_target) softmax_grad_target(of, t, target);
}

static void softmax_grad_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const chunk at = chunk_at(of->cut, of->logits.rows, of->logits.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->logits.dtype == CY_BF16) {
            softmax_grad_row(of, t, of->out.dtype, CY_BF16);
        } else if (of->out.dtype == CY_BF16) {
            softmax_grad_row(of, t, CY_BF16, CY_F32);
        } else {
            softmax_grad_row(of, t, CY_F32, CY_F32);
        }
    }
}

static void softmax_grad(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max,
    cy_view sum, const int32_t *targets, cy_vocab_range range, double scale)
{
    if (!supported(d_logits) || !supported(logits) || max.dtype != CY_F32 || sum.dtype != CY_F32) {
        cy_ref_softmax_grad(queue, d_logits, logits, max, sum, targets, range, scale);
        return;
    }
    logit_rows of = {
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = d_logits,
        .logits = logits,
        .max = max,
        .sum = sum,
        .targets = targets,
        .first = range.first,
        .valid = cy_vocab_columns(range, logits.cols),
        .scale = (float)scale,
    };
    cy_queue_run(queue, softmax_grad_chunk, &of, of.cut.count);
}

#endif
