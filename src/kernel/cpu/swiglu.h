// kernel/cpu/swiglu.h: silu(gate) * up and its gradient. Bound by memory with AVX-512, by the
// exponential with AVX2.

#ifndef CY_KERNEL_CPU_SWIGLU_H
#define CY_KERNEL_CPU_SWIGLU_H

#include "kernel/cpu/vector/elementwise.h"

typedef struct gated {
    grid cut;
    cy_view y, gate_up, dy, d_gate_up;
} gated;

// The one place that makes y, so that both passes give the same bits.
FORCE_INLINE vec gated_output(vec gate, vec up, vec sigmoid)
{
    return vec_mul(vec_mul(gate, sigmoid), up);
}

FORCE_INLINE void swiglu_forward_row(const gated *of, piece at, int64_t t, cy_dtype dtype)
{
    const int64_t cols = of->y.cols;
    const void *gate_up = cy_view_at(of->gate_up, t, 0);
    void *y = cy_view_at(of->y, t, 0);
    for (int64_t i = at.col; i < at.col_end; i += LANES) {
        const int64_t lanes = lanes_left(at.col_end, i);
        const vec gate = load(gate_up, dtype, i, lanes);
        const vec up = load(gate_up, dtype, cols + i, lanes);
        prefetch(gate_up, dtype, of->gate_up.stride + i);
        prefetch(gate_up, dtype, of->gate_up.stride + cols + i);
        prefetch(y, dtype, of->y.stride + i);
        store(y, dtype, i, gated_output(gate, up, vec_sigmoid(gate)), lanes);
    }
}

static void swiglu_forward_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const gated *of = context;
    const piece at = piece_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->y.dtype == CY_BF16) {
            swiglu_forward_row(of, at, t, CY_BF16);
        } else {
            swiglu_forward_row(of, at, t, CY_F32);
        }
    }
}

static void swiglu_forward(cy_queue *queue, cy_view y, cy_view gate_up)
{
    if (!served(y)) {
        cy_ref_swiglu_forward(queue, y, gate_up);
        return;
    }
    gated of = {.cut = grid_of(y.rows, y.cols), .y = y, .gate_up = gate_up};
    cy_queue_run(queue, swiglu_forward_piece, &of, of.cut.count);
}

FORCE_INLINE void swiglu_backward_row(const gated *of, piece at, int64_t t, cy_dtype dtype)
{
    const int64_t cols = of->dy.cols;
    const void *gate_up = cy_view_at(of->gate_up, t, 0), *dy = cy_view_at(of->dy, t, 0);
    void *y = cy_view_is_none(of->y) ? NULL : cy_view_at(of->y, t, 0);
    void *d_gate_up = cy_view_at(of->d_gate_up, t, 0);
    for (int64_t i = at.col; i < at.col_end; i += LANES) {
        const int64_t lanes = lanes_left(at.col_end, i);
        const vec gate = load(gate_up, dtype, i, lanes);
        const vec up = load(gate_up, dtype, cols + i, lanes);
        const vec d = load(dy, of->dy.dtype, i, lanes);
        prefetch(gate_up, dtype, of->gate_up.stride + i);
        prefetch(gate_up, dtype, of->gate_up.stride + cols + i);
        prefetch(dy, of->dy.dtype, of->dy.stride + i);
        const vec s = vec_sigmoid(gate);
        const vec silu = vec_mul(gate, s);
        if (y != NULL) {
            store(y, dtype, i, gated_output(gate, up, s), lanes);
            prefetch(y, dtype, of->y.stride + i);
        }
        // The slope of silu: s + gate s (1 - s).
        const vec slope = vec_fma(silu, vec_sub(vec_all(1.0f), s), s);
        store(d_gate_up, of->d_gate_up.dtype, i, vec_mul(vec_mul(d, up), slope), lanes);
        store(d_gate_up, of->d_gate_up.dtype, cols + i, vec_mul(d, silu), lanes);
    }
}

static void swiglu_backward_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const gated *of = context;
    const piece at = piece_at(of->cut, of->dy.rows, of->dy.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->gate_up.dtype == CY_BF16) {
            swiglu_backward_row(of, at, t, CY_BF16);
        } else {
            swiglu_backward_row(of, at, t, CY_F32);
        }
    }
}

static void swiglu_backward(
    cy_queue *queue, cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up)
{
    if (!served(gate_up) || !served(dy) || !served(d_gate_up)) {
        cy_ref_swiglu_backward(queue, d_gate_up, y, dy, gate_up);
        return;
    }
    gated of = {
        .cut = grid_of(dy.rows, dy.cols),
        .y = y,
        .gate_up = gate_up,
        .dy = dy,
        .d_gate_up = d_gate_up,
    };
    cy_queue_run(queue, swiglu_backward_piece, &of, of.cut.count);
}

#endif
