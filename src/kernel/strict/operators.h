// kernel/strict/operators.h: cross-entropy whose sums do not depend on where the vocabulary is cut.
// Included by the tables of this folder only, which give it its vectors.
//
// exp(logit - max) is at most 1. The sum of a row is made in fixed point always: in the units of
// `sum`, or in units of 2^-39 where sum is fp32 and nobody adds to it. The target's logit may be
// added over ranks as it is, since all but one hold 0.

#ifndef CY_KERNEL_STRICT_OPERATORS_H
#define CY_KERNEL_STRICT_OPERATORS_H

#include "kernel/strict/fixed.h"
#include "kernel/strict/math.h"

#define OWN_SUM_EXPONENT (-39)

typedef struct logit_rows {
    cy_queue *queue;
    grid cut; // of rows
    cy_view out, target, logits, max, sum;
    const int32_t *targets; // [rows]
    int64_t first;          // global index of column 0
    int64_t valid;          // columns here that are not padding
    double scale;
} logit_rows;

static float logit_at(cy_view logits, int64_t t, int64_t column)
{
    const void *at = cy_view_at(logits, t, column);
    return logits.dtype == CY_BF16 ? cy_bf16_to_f32(*(const cy_bf16 *)at) : *(const float *)at;
}

static void head_max_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const piece at = piece_at(of->cut, of->logits.rows, of->logits.cols, number);
    const vec lowest = vec_all(-INFINITY);
    for (int64_t t = at.row; t < at.row_end; t++) {
        const void *logits = cy_view_at(of->logits, t, 0);
        vec max = lowest;
        for (int64_t i = 0; i < of->valid; i += LANES) {
            const int64_t lanes = lanes_left(of->valid, i);
            // A NaN is passed over, and shows in the sum.
            max = vec_max(vec_first(load(logits, of->logits.dtype, i, lanes), lowest, lanes), max);
        }
        // -0 and 0 are equal but not the same: which one a row's maximum is must not depend on
        // where it stood.
        ((float *)of->out.data)[t] = vec_largest(max) + 0.0f;
    }
}

static void strict_softmax_max(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range)
{
    if (!served(logits) || max.dtype != CY_F32) {
        cy_ref_softmax_max(queue, max, logits, range);
        return;
    }
    logit_rows of = {
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = max,
        .logits = logits,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, head_max_piece, &of, of.cut.count);
}

// Units of the sum of a row's exponentials.
FORCE_INLINE int64_t exponential_units(
    term_sizes *sizes, const logit_rows *of, int64_t t, float factor, cy_dtype dtype)
{
    int64_t sums[2][LANES] = {{0}}; // two, so that one addition need not wait for the last
    const void *logits = cy_view_at(of->logits, t, 0);
    const vec max = vec_all(((const float *)of->max.data)[t]), scale = vec_all(factor);
    const vec zero = vec_all(0.0f);
    for (int64_t i = 0; i < of->valid; i += LANES) {
        const int64_t lanes = lanes_left(of->valid, i);
        const vec power = vec_exp(vec_sub(load(logits, dtype, i, lanes), max));
        const vec term = vec_first(vec_mul(power, scale), zero, lanes);
        fixed_add(sums[i / LANES % 2], term, LANES, sizes);
    }
    // Unsigned: what is no number becomes the least integer, and two of these would overflow. Their
    // sum is never used, since `sizes` tells of them.
    uint64_t units = 0;
    for (int i = 0; i < LANES; i++)
        units += (uint64_t)sums[0][i] + (uint64_t)sums[1][i];
    return (int64_t)units;
}

static void head_sum_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const piece at = piece_at(of->cut, of->logits.rows, of->logits.cols, number);
    const int exponent = is_fixed(of->out) ? of->out.exponent : OWN_SUM_EXPONENT;
    const float factor = ldexpf(1.0f, -exponent);
    term_sizes sizes = no_terms();
    for (int64_t t = at.row; t < at.row_end; t++) {
        const int64_t units = of->logits.dtype == CY_BF16
            ? exponential_units(&sizes, of, t, factor, CY_BF16)
            : exponential_units(&sizes, of, t, factor, CY_F32);
        if (is_fixed(of->out)) {
            ((int64_t *)of->out.data)[t] = units;
        } else {
            ((float *)of->out.data)[t] = (float)ldexp((double)units, exponent);
        }
        const int64_t column = of->targets[t] - of->first;
        const bool here = of->targets[t] >= 0 && column >= 0 && column < of->valid;
        ((float *)of->target.data)[t] = here ? logit_at(of->logits, t, column) : 0.0f;
    }
    note_terms(of->queue, of->out, sizes);
}

static void strict_softmax_sum(cy_queue *queue, cy_view sum, cy_view target, cy_view logits,
    cy_view max, const int32_t *targets, cy_vocab_range range)
{
    const bool fp32 = max.dtype == CY_F32 && target.dtype == CY_F32;
    if (!served(logits) || !fp32 || (sum.dtype != CY_F32 && !is_fixed(sum))) {
        cy_ref_softmax_sum(queue, sum, target, logits, max, targets, range);
        return;
    }
    logit_rows of = {
        .queue = queue,
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = sum,
        .target = target,
        .logits = logits,
        .max = max,
        .targets = targets,
        .first = range.first,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, head_sum_piece, &of, of.cut.count);
}

static void strict_softmax_loss(
    cy_queue *queue, cy_view loss, cy_view max, cy_view sum, cy_view target, const int32_t *targets)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < max.cols; t++) {
        if (targets[t] < 0) continue;
        const double of_token = cy_ref_load(max, 0, t) + cy_strict_log(cy_ref_load(sum, 0, t)) -
            cy_ref_load(target, 0, t);
        if (is_fixed(loss) &&
            !(fabs(ldexp(of_token, -loss.exponent)) < (double)CY_STRICT_TERM_LIMIT)) {
            queue->fixed_overflow = true;
            continue;
        }
        cy_ref_add(queue, loss, 0, 0, of_token);
    }
}

FORCE_INLINE void head_grad_row(const logit_rows *of, int64_t t, cy_dtype out_dtype, cy_dtype dtype)
{
    const void *logits = cy_view_at(of->logits, t, 0);
    void *out = cy_view_at(of->out, t, 0);
    const bool counts = of->targets[t] >= 0;
    const int64_t column = of->targets[t] - of->first;
    const int64_t valid = counts ? of->valid : 0;
    const bool has_target = counts && column >= 0 && column < valid;
    // The gradient may take the logits' place.
    const float target = has_target ? logit_at(of->logits, t, column) : 0.0f;
    const double sum = cy_ref_load(of->sum, 0, t);
    const float row_max = ((const float *)of->max.data)[t];
    const vec max = vec_all(row_max), factor = vec_all((float)(of->scale / sum));
    const vec zero = vec_all(0.0f);
    for (int64_t i = 0; i < of->logits.cols; i += LANES) {
        const int64_t lanes = lanes_left(of->logits.cols, i), left = valid - i;
        const vec power = vec_exp(vec_sub(load(logits, dtype, i, lanes), max));
        const vec gradient = vec_first(vec_mul(factor, power), zero, left < 0 ? 0 : left);
        store(out, out_dtype, i, gradient, lanes);
    }
    if (!has_target) return;
    // Made apart: exp / sum - 1 would lose its digits to rounding otherwise.
    const double power = cy_strict_exp((double)target - (double)row_max);
    const float gradient = (float)(of->scale * (power / sum - 1.0));
    if (out_dtype == CY_BF16) {
        ((cy_bf16 *)out)[column] = cy_bf16_from_f32(gradient);
    } else {
        ((float *)out)[column] = gradient;
    }
}

static void head_grad_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const piece at = piece_at(of->cut, of->logits.rows, of->logits.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->logits.dtype == CY_BF16) {
            head_grad_row(of, t, of->out.dtype, CY_BF16);
        } else if (of->out.dtype == CY_BF16) {
            head_grad_row(of, t, CY_BF16, CY_F32);
        } else {
            head_grad_row(of, t, CY_F32, CY_F32);
        }
    }
}

static void strict_softmax_grad(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max,
    cy_view sum, const int32_t *targets, cy_vocab_range range, double scale)
{
    const bool statistics = max.dtype == CY_F32 && (sum.dtype == CY_F32 || is_fixed(sum));
    if (!served(d_logits) || !served(logits) || !statistics) {
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
        .scale = scale,
    };
    cy_queue_run(queue, head_grad_piece, &of, of.cut.count);
}

#endif
