// kernel/cpu/rope.h: turning queries and keys by their positions. Bound by memory.

#ifndef CY_KERNEL_CPU_ROPE_H
#define CY_KERNEL_CPU_ROPE_H

#include "kernel/cpu/vector/elementwise.h"

typedef struct turn {
    grid cut; // of rows
    cy_view x, table;
    const int32_t *positions; // [rows of x]
    int heads;
    bool inverse;
} turn;

FORCE_INLINE void turn_row(const turn *of, int64_t t, cy_dtype dtype)
{
    const int64_t dim = of->table.cols, half = dim / 2;
    const float *cosines = cy_view_at(of->table, of->positions[t], 0);
    const float *sines = cosines + half;
    const vec sign = vec_all(of->inverse ? -1.0f : 1.0f);
    void *x = cy_view_at(of->x, t, 0);
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t lanes = lanes_left(half, i);
        const vec cosine = load_f32(cosines + i, lanes);
        const vec sine = vec_mul(sign, load_f32(sines + i, lanes));
        for (int64_t col = i; col < of->heads * dim; col += dim) {
            const vec a = load(x, dtype, col, lanes), b = load(x, dtype, col + half, lanes);
            prefetch(x, dtype, of->x.stride + col);
            prefetch(x, dtype, of->x.stride + col + half);
            store(x, dtype, col, vec_fnma(b, sine, vec_mul(a, cosine)), lanes);
            store(x, dtype, col + half, vec_fma(a, sine, vec_mul(b, cosine)), lanes);
        }
    }
}

static void turn_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const turn *of = context;
    const piece at = piece_at(of->cut, of->x.rows, of->heads * of->table.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->x.dtype == CY_BF16) {
            turn_row(of, t, CY_BF16);
        } else {
            turn_row(of, t, CY_F32);
        }
    }
}

static void rope(
    cy_queue *queue, cy_view x, cy_view table, const int32_t *positions, int heads, bool inverse)
{
    if (!served(x) || table.dtype != CY_F32) {
        cy_ref_rope(queue, x, table, positions, heads, inverse);
        return;
    }
    turn of = {
        .cut = grid_of_rows(x.rows, heads * table.cols),
        .x = x,
        .table = table,
        .positions = positions,
        .heads = heads,
        .inverse = inverse,
    };
    cy_queue_run(queue, turn_piece, &of, of.cut.count);
}

#endif
