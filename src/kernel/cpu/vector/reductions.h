// kernel/cpu/vector/reductions.h: operators that reduce a row before they write it: RMS norm and the
// softmax of the vocabulary, each with its gradient.

#ifndef CY_KERNEL_CPU_VECTOR_REDUCTIONS_H
#define CY_KERNEL_CPU_VECTOR_REDUCTIONS_H

#include "kernel/cpu/vector/elementwise.h"

// ---- normalisation

typedef struct norm {
    grid cut; // of rows
    cy_view y, inv_rms, x, branch, weight, dx, dweight, dy;
    row_parts parts;
    double eps;
} norm;

static bool norm_served(cy_view x, cy_view inv_rms, cy_view weight)
{
    return served(x) && served(weight) && inv_rms.dtype == CY_F32;
}

// Adds the branch to a row where there is one, and sums the squares of the row as it is stored.
FORCE_INLINE float norm_squares(const norm *of, int64_t t, cy_dtype dtype)
{
    const int64_t cols = of->x.cols;
    void *x = cy_view_at(of->x, t, 0);
    const void *branch = cy_view_is_none(of->branch) ? NULL : cy_view_at(of->branch, t, 0);
    vec last = vec_all(0.0f), before = last; // two sums in turn, in registers
    for (int64_t i = 0; i < cols; i += LANES) {
        const int64_t lanes = lanes_left(cols, i);
        vec value = load(x, dtype, i, lanes);
        prefetch(x, dtype, of->x.stride + i);
        if (branch != NULL) {
            store(x, dtype, i, vec_add(value, load(branch, dtype, i, lanes)), lanes);
            value = load(x, dtype, i, lanes); // as rounded
        }
        const vec sum = vec_fma(value, value, before);
        before = last;
        last = sum;
    }
    return vec_sum(vec_add(before, last));
}

// y = x * inv * weight: the one place that makes y, so that both passes give the same bits.
FORCE_INLINE void norm_row(const norm *of, int64_t t, float inv, cy_dtype dtype)
{
    void *y = cy_view_at(of->y, t, 0);
    const void *x = cy_view_at(of->x, t, 0);
    for (int64_t i = 0; i < of->x.cols; i += LANES) {
        const int64_t lanes = lanes_left(of->x.cols, i);
        const vec scaled = vec_mul(load(x, dtype, i, lanes), vec_all(inv));
        const vec weight = load(of->weight.data, of->weight.dtype, i, lanes);
        prefetch(x, dtype, of->x.stride + i);
        prefetch(y, dtype, of->y.stride + i);
        store(y, dtype, i, vec_mul(scaled, weight), lanes);
    }
}

FORCE_INLINE void norm_forward_piece_of(const norm *of, int64_t number, cy_dtype dtype)
{
    const piece at = piece_at(of->cut, of->x.rows, of->x.cols, number);
    float *inv_rms = of->inv_rms.data;
    for (int64_t t = at.row; t < at.row_end; t++) {
        const double mean = (double)norm_squares(of, t, dtype) / (double)of->x.cols;
        inv_rms[t] = (float)(1.0 / sqrt(mean + of->eps));
        norm_row(of, t, inv_rms[t], dtype);
    }
}

static void norm_forward_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const norm *of = context;
    if (of->x.dtype == CY_BF16) {
        norm_forward_piece_of(of, number, CY_BF16);
    } else {
        norm_forward_piece_of(of, number, CY_F32);
    }
}

static void norm_forward(cy_queue *queue, cy_view y, cy_view inv_rms, cy_view x, cy_view branch,
    cy_view weight, double eps)
{
    if (!norm_served(x, inv_rms, weight)) {
        cy_ref_norm_forward(queue, y, inv_rms, x, branch, weight, eps);
        return;
    }
    norm of = {
        .cut = grid_of_rows(x.rows, x.cols),
        .y = y,
        .inv_rms = inv_rms,
        .x = x,
        .branch = branch,
        .weight = weight,
        .eps = eps,
    };
    cy_queue_run(queue, norm_forward_piece, &of, of.cut.count);
}

static void norm_apply_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const norm *of = context;
    const piece at = piece_at(of->cut, of->x.rows, of->x.cols, number);
    const float *inv_rms = of->inv_rms.data;
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->x.dtype == CY_BF16) {
            norm_row(of, t, inv_rms[t], CY_BF16);
        } else {
            norm_row(of, t, inv_rms[t], CY_F32);
        }
    }
}

static void norm_apply(cy_queue *queue, cy_view y, cy_view x, cy_view inv_rms, cy_view weight)
{
    if (!norm_served(x, inv_rms, weight)) {
        cy_ref_norm_apply(queue, y, x, inv_rms, weight);
        return;
    }
    norm of = {
        .cut = grid_of_rows(x.rows, x.cols),
        .y = y,
        .inv_rms = inv_rms,
        .x = x,
        .weight = weight,
    };
    cy_queue_run(queue, norm_apply_piece, &of, of.cut.count);
}

// ---- backward: with r = inv_rms and g = dy * weight, dx = r g - x r^3 mean(g x) and dweight = sum
// over t of dy x r

FORCE_INLINE float norm_dot(const norm *of, int64_t t, cy_dtype dtype)
{
    const void *x = cy_view_at(of->x, t, 0), *dy = cy_view_at(of->dy, t, 0);
    const void *dx = cy_view_at(of->dx, t, 0);
    vec last = vec_all(0.0f), before = last; // two sums in turn, in registers
    for (int64_t i = 0; i < of->x.cols; i += LANES) {
        const int64_t lanes = lanes_left(of->x.cols, i);
        const vec weight = load(of->weight.data, of->weight.dtype, i, lanes);
        const vec g = vec_mul(load(dy, of->dy.dtype, i, lanes), weight);
        prefetch(x, dtype, of->x.stride + i);
        prefetch(dy, of->dy.dtype, of->dy.stride + i);
        prefetch(dx, of->dx.dtype, of->dx.stride + i);
        const vec sum = vec_fma(g, load(x, dtype, i, lanes), before);
        before = last;
        last = sum;
    }
    return vec_sum(vec_add(before, last));
}

// dx of a row, and its share of dweight while x and dy are at hand; either may be absent.
FORCE_INLINE void norm_backward_row(const norm *of, int64_t t, float *part, cy_dtype dtype)
{
    const float r = ((const float *)of->inv_rms.data)[t];
    const bool to_x = !cy_view_is_none(of->dx);
    const float dot = to_x ? norm_dot(of, t, dtype) : 0.0f;
    const vec pull = vec_all(r * r * (dot / (float)of->x.cols));
    const void *x = cy_view_at(of->x, t, 0), *dy = cy_view_at(of->dy, t, 0);
    void *dx = to_x ? cy_view_at(of->dx, t, 0) : NULL;
    for (int64_t i = 0; i < of->x.cols; i += LANES) {
        const int64_t lanes = lanes_left(of->x.cols, i);
        const vec value = load(x, dtype, i, lanes), d = load(dy, of->dy.dtype, i, lanes);
        if (to_x) {
            const vec weight = load(of->weight.data, of->weight.dtype, i, lanes);
            const vec inner = vec_fnma(pull, value, vec_mul(d, weight));
            const vec sum = vec_fma(vec_all(r), inner, load(dx, of->dx.dtype, i, lanes));
            store(dx, of->dx.dtype, i, sum, lanes);
        }
        if (part != NULL) {
            const vec share = vec_mul(value, vec_all(r));
            store_f32(part + i, vec_fma(d, share, load_f32(part + i, lanes)), lanes);
        }
    }
}

static void norm_backward_part(void *context, int64_t number, int worker)
{
    (void)worker;
    const norm *of = context;
    const int64_t row = number * of->parts.rows;
    const int64_t row_end = row + of->parts.rows < of->x.rows ? row + of->parts.rows : of->x.rows;
    float *part = NULL;
    if (!cy_view_is_none(of->dweight)) {
        part = cy_view_at(of->parts.sums, number, 0);
        memset(part, 0, (size_t)of->x.cols * sizeof(*part));
    }
    for (int64_t t = row; t < row_end; t++) {
        if (of->x.dtype == CY_BF16) {
            norm_backward_row(of, t, part, CY_BF16);
        } else {
            norm_backward_row(of, t, part, CY_F32);
        }
    }
}

static void norm_backward(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy, cy_view x,
    cy_view inv_rms, cy_view weight)
{
    const bool to_x = !cy_view_is_none(dx), to_weight = !cy_view_is_none(dweight);
    if (!norm_served(x, inv_rms, weight) || !served(dy) || (to_x && !served(dx)) ||
        (to_weight && dweight.dtype != CY_F32)) {
        cy_ref_norm_backward(queue, dx, dweight, dy, x, inv_rms, weight);
        return;
    }
    const size_t mark = cy_arena_mark(queue->scratch);
    norm of = {
        .inv_rms = inv_rms,
        .x = x,
        .weight = weight,
        .dx = dx,
        .dweight = dweight,
        .dy = dy,
        .parts = take_parts(queue, x.rows, x.cols),
    };
    cy_queue_run(queue, norm_backward_part, &of, of.parts.count);
    if (to_weight) add_parts(queue, dweight, of.parts);
    cy_arena_rewind(queue->scratch, mark);
}

// ---- softmax cross-entropy

typedef struct logit_rows {
    grid cut; // of rows
    cy_view out, target, logits, max, sum;
    const int32_t *targets; // [rows]
    int64_t first;          // global index of column 0
    int64_t valid;          // columns here that are not padding
    float scale;
} logit_rows;

// Elements of a row of logits that are asked for ahead: rows come from memory, and the gradient's
// go there too.
#define LOGITS_AHEAD 1024

static void softmax_max_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const piece at = piece_at(of->cut, of->logits.rows, of->logits.cols, number);
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
    cy_queue_run(queue, softmax_max_piece, &of, of.cut.count);
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

static void softmax_sum_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const piece at = piece_at(of->cut, of->logits.rows, of->logits.cols, number);
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
    if (!served(logits) || sum.dtype != CY_F32 || target.dtype != CY_F32 || max.dtype != CY_F32) {
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
    cy_queue_run(queue, softmax_sum_piece, &of, of.cut.count);
}

// The target's column is made apart: exp / sum - 1 would lose its digits to rounding otherwise.
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

static void softmax_grad_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const piece at = piece_at(of->cut, of->logits.rows, of->logits.cols, number);
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
    if (!served(d_logits) || !served(logits) || max.dtype != CY_F32 || sum.dtype != CY_F32) {
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
    cy_queue_run(queue, softmax_grad_piece, &of, of.cut.count);
}

#endif
