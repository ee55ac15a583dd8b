// kernel/strict/rows.h: the gradients of norm weights and embeddings, and the table of positions.
// Included by the tables of this folder only, which give it its vectors.

#ifndef CY_KERNEL_STRICT_ROWS_H
#define CY_KERNEL_STRICT_ROWS_H

#include "kernel/cpu/embedding.h"
#include "kernel/cpu/vector/reductions.h"
#include "kernel/strict/fixed.h"
#include "kernel/strict/math.h"

// dweight: one term a token, dy * (x * inv_rms).
static void norm_weight_columns(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_columns *of = context;
    const int64_t first = number * FIXED_COLUMNS;
    const int64_t end = first + FIXED_COLUMNS < of->x.cols ? first + FIXED_COLUMNS : of->x.cols;
    const vec factor = vec_all(units_in_one(of->sum));
    const float *inv_rms = of->inv_rms.data;
    term_sizes sizes = no_terms();
    for (int64_t t = 0; t < of->x.rows; t++) {
        const void *x = cy_view_at(of->x, t, 0), *dy = cy_view_at(of->dy, t, 0);
        for (int64_t i = first; i < end; i += LANES) {
            const int64_t lanes = lanes_left(end, i);
            const vec share = vec_mul(load(x, of->x.dtype, i, lanes), vec_all(inv_rms[t]));
            const vec term = vec_mul(load(dy, of->dy.dtype, i, lanes), share);
            fixed_add(fixed_at(of->sum, 0, i), vec_mul(term, factor), lanes, &sizes);
        }
    }
    note_terms(of->queue, of->sum, sizes);
}

static void strict_norm_backward(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy,
    cy_view x, cy_view inv_rms, cy_view weight)
{
    if (!is_fixed(dweight) || !norm_served(x, inv_rms, weight) || !served(dy)) {
        norm_backward(queue, dx, dweight, dy, x, inv_rms, weight);
        return;
    }
    // First, because dx may be where dy lies for somebody who needs dweight no more.
    fixed_columns of = {.queue = queue, .sum = dweight, .x = x, .dy = dy, .inv_rms = inv_rms};
    cy_queue_run(queue, norm_weight_columns, &of, pieces_of(x.cols, FIXED_COLUMNS));
    if (!cy_view_is_none(dx)) {
        norm_backward(queue, dx, cy_view_none(), dy, x, inv_rms, weight);
    }
}

static void embedding_columns(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_columns *of = context;
    const int64_t first = number * FIXED_COLUMNS;
    const int64_t end = first + FIXED_COLUMNS < of->dy.cols ? first + FIXED_COLUMNS : of->dy.cols;
    const float factor = units_in_one(of->sum);
    term_sizes sizes = no_terms();
    for (int64_t t = 0; t < of->dy.rows; t++) {
        const int64_t row = of->tokens[t] - of->first;
        if (row < 0 || row >= of->sum.rows) continue;
        fixed_add_row(fixed_at(of->sum, row, first), cy_view_at(of->dy, t, 0), of->dy.dtype, first,
            end, factor, &sizes);
    }
    note_terms(of->queue, of->sum, sizes);
}

static void strict_embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first)
{
    if (!is_fixed(d_table) || !served(dy)) {
        embedding_backward(queue, d_table, dy, tokens, first);
        return;
    }
    fixed_columns of = {.queue = queue, .sum = d_table, .dy = dy, .tokens = tokens, .first = first};
    cy_queue_run(queue, embedding_columns, &of, pieces_of(dy.cols, FIXED_COLUMNS));
}

typedef struct angle_rows {
    cy_queue *queue;
    cy_view table;
    const double *inv_freq; // [head_dim / 2]
    double scale;
} angle_rows;

static void angle_row(void *context, int64_t p, int worker)
{
    (void)worker;
    const angle_rows *of = context;
    const int64_t half = of->table.cols / 2;
    for (int64_t i = 0; i < half; i++) {
        double sine, cosine;
        cy_strict_sine_cosine(&sine, &cosine, (double)p * of->inv_freq[i]);
        cy_ref_store(of->queue, of->table, p, i, of->scale * cosine);
        cy_ref_store(of->queue, of->table, p, half + i, of->scale * sine);
    }
}

static void strict_rope_table(cy_queue *queue, cy_view table, const double *inv_freq, double scale)
{
    angle_rows of = {.queue = queue, .table = table, .inv_freq = inv_freq, .scale = scale};
    cy_queue_run(queue, angle_row, &of, table.rows);
}

#endif
