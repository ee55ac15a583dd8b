// kernel/cpu/embedding.h: rows of the vocabulary. Bound by memory.

#ifndef CY_KERNEL_CPU_EMBEDDING_H
#define CY_KERNEL_CPU_EMBEDDING_H

#include "kernel/cpu/vector/elementwise.h"

typedef struct lookup {
    grid cut;
    cy_view y, table; // of the gradients in the backward pass
    const int32_t *tokens;
    int64_t first;
} lookup;

static void embedding_forward_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const lookup *of = context;
    const piece at = piece_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        const int64_t row = of->tokens[t] - of->first;
        const bool here = row >= 0 && row < of->table.rows;
        const void *from = here ? cy_view_at(of->table, row, 0) : NULL;
        void *y = cy_view_at(of->y, t, 0);
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            const vec value = here ? load(from, of->table.dtype, i, lanes) : vec_all(0.0f);
            store(y, of->y.dtype, i, value, lanes);
        }
    }
}

static void embedding_forward(
    cy_queue *queue, cy_view y, cy_view table, const int32_t *tokens, int64_t first)
{
    if (!served(y) || !served(table)) {
        cy_ref_embedding_forward(queue, y, table, tokens, first);
        return;
    }
    lookup of = {
        .cut = grid_of(y.rows, y.cols),
        .y = y,
        .table = table,
        .tokens = tokens,
        .first = first,
    };
    cy_queue_run(queue, embedding_forward_piece, &of, of.cut.count);
}

// A task has all tokens and a range of columns: the terms of a row are added in their order, and no
// two tasks meet.
#define LOOKUP_COLUMNS 64

static void embedding_backward_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const lookup *of = context;
    const int64_t first = number * LOOKUP_COLUMNS;
    const int64_t end = first + LOOKUP_COLUMNS < of->y.cols ? first + LOOKUP_COLUMNS : of->y.cols;
    for (int64_t t = 0; t < of->y.rows; t++) {
        const int64_t row = of->tokens[t] - of->first;
        if (row < 0 || row >= of->table.rows) continue;
        const void *dy = cy_view_at(of->y, t, 0);
        float *sum = cy_view_at(of->table, row, 0);
        for (int64_t i = first; i < end; i += LANES) {
            const int64_t lanes = lanes_left(end, i);
            const vec term = load(dy, of->y.dtype, i, lanes);
            store_f32(sum + i, vec_add(load_f32(sum + i, lanes), term), lanes);
        }
    }
}

static void embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first)
{
    if (d_table.dtype != CY_F32 || !served(dy)) {
        cy_ref_embedding_backward(queue, d_table, dy, tokens, first);
        return;
    }
    lookup of = {.y = dy, .table = d_table, .tokens = tokens, .first = first};
    cy_queue_run(queue, embedding_backward_piece, &of, pieces_of(dy.cols, LOOKUP_COLUMNS));
}

#endif
