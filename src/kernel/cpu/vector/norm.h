// kernel/cpu/vector/norm.h: RMS norm and its gradient. Memory bandwidth limits them: a row is read
// once into L1, and its sum of squares and its outputs are computed from there.

#ifndef CY_KERNEL_CPU_VECTOR_NORM_H
#define CY_KERNEL_CPU_VECTOR_NORM_H

#include "kernel/cpu/vector/elementwise.h"

typedef struct norm {
    grid cut; // of rows
    cy_view y, inv_rms, x, branch, weight, dx, dweight, dy;
    row_parts parts;
    double eps;
} norm;

static bool norm_supported(cy_view x, cy_view inv_rms, cy_view weight)
{
    return supported(x) && supported(weight) && inv_rms.dtype == CY_F32;
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

FORCE_INLINE void norm_forward_chunk_of(const norm *of, int64_t number, cy_dtype dtype)
{
    const chunk at = chunk_at(of->cut, of->x.rows, of->x.cols, number);
    float *inv_rms = of->inv_rms.data;
    for (int64_t t = at.row; t < at.row_end; t++) {
        const double mean = (double)norm_squares(of, t, dtype) / (double)of->x.cols;
        inv_rms[t] = (float)(1.0 / sqrt(mean + of->eps));
        norm_row(of, t, inv_rms[t], dtype);
    }
}

static void norm_forward_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const norm *of = context;
    if (of->x.dtype == CY_BF16) {
        norm_forward_chunk_of(of, number, CY_BF16);
    } else {
        norm_forward_chunk_of(of, number, CY_F32);
    }
}

static void norm_forward(cy_queue *queue, cy_view y, cy_view inv_rms, cy_view x, cy_view branch,
    cy_view weight, double eps)
{
    if (!norm_supported(x, inv_rms, weight)) {
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
    cy_queue_run(queue, norm_forward_chunk, &of, of.cut.count);
}

static void norm_apply_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const norm *of = context;
    const chunk at = chunk_at(of->cut, of->x.rows, of->x.cols, number);
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
    if (!norm_supported(x, inv_rms, weight)) {
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
    cy_queue_run(queue, norm_apply_chunk, &of, of.cut.count);
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

// Computes dx of a row, and adds its share of dweight while x and dy are in L1; either may be
// absent.
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
    if (!norm_supported(x, inv_rms, weight) || !supported(dy) || (to_x && !supported(dx)) ||
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

#endif
