#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

// The row of the table for a token, or -1 where another rank holds it.
static int64_t local_row(cy_view table, int32_t token, int64_t first)
{
    const int64_t row = token - first;
    return row >= 0 && row < table.rows ? row : -1;
}

void cy_ref_embedding_forward(
    cy_queue *queue, cy_view y, cy_view table, const int32_t *tokens, int64_t first)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        const int64_t row = local_row(table, tokens[t], first);
        for (int64_t i = 0; i < y.cols; i++) {
            cy_ref_store(queue, y, t, i, row >= 0 ? cy_ref_load(table, row, i) : 0.0);
        }
    }
}

void cy_ref_embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < dy.rows; t++) {
        const int64_t row = local_row(d_table, tokens[t], first);
        if (row < 0) continue;
        for (int64_t i = 0; i < dy.cols; i++) {
            cy_ref_add(queue, d_table, row, i, cy_ref_load(dy, t, i));
        }
    }
}
