// Computes column- and row-parallel linear layers, forward and backward.

#include "parallel/tensor/linear.h"

#include "base/status.h"
#include "parallel/tensor/overlap.h"

void cy_linear_backward_weight(
    cy_queue *queue, const cy_linear_gradients *to, cy_view dy, cy_view x)
{
    if (!cy_view_is_none(to->weight)) {
        cy_matmul(queue, to->weight, dy, x,
            (cy_matmul_spec){.transpose_a = true, .accumulate = !to->empty});
    }
    if (!cy_view_is_none(to->bias)) cy_sum_rows(queue, to->bias, dy);
}

// ---- column-parallel

// Whether y is gathered from the columns of several ranks.
static bool gathers(const cy_column_linear *layer)
{
    return layer->gather_output && cy_group_size(layer->parallel->group) > 1;
}

void cy_column_linear_rows(const cy_column_linear *layer, cy_queue *queue, cy_view y, cy_view x)
{
    cy_matmul(queue, y, x, layer->weight, (cy_matmul_spec){.transpose_b = true});
    if (!layer->skip_bias && !cy_view_is_none(layer->bias)) cy_add_bias(queue, y, layer->bias);
}

cy_status cy_column_linear_forward(
    const cy_column_linear *layer, cy_queue *queue, cy_view y, cy_view x_all, cy_view x)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view own = y;
    if (gathers(layer)) {
        own = cy_view_alloc(queue->scratch, y.dtype, y.rows, layer->weight.rows);
    }
    cy_tensor_gather_state gathering;
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_gather_start(&gathering, layer->parallel, queue, x_all, x));
    CY_TRY(cy_tensor_gather_next(&gathering, &rows));
    while (rows.count > 0) {
        cy_column_linear_rows(
            layer, queue, cy_tensor_rows_of(own, rows), cy_tensor_rows_of(x_all, rows));
        CY_TRY(cy_tensor_gather_next(&gathering, &rows));
    }
    if (gathers(layer)) {
        CY_TRY(cy_tensor_gather_cols(layer->parallel->group, queue, y, own));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// This rank's columns of dy, from the scratch arena where dy has all.
static cy_view own_columns(const cy_column_linear *layer, cy_queue *queue, cy_view dy)
{
    if (!gathers(layer)) return dy;
    const cy_view own = cy_view_alloc(queue->scratch, dy.dtype, dy.rows, layer->weight.rows);
    cy_tensor_scatter_cols(layer->parallel->group, queue, own, dy);
    return own;
}

void cy_column_linear_backward_rows(
    const cy_column_linear *layer, cy_queue *queue, cy_view dx, cy_view dy)
{
    cy_matmul(queue, dx, dy, layer->weight, (cy_matmul_spec){0});
}

cy_status cy_column_linear_backward_input(
    const cy_column_linear *layer, cy_queue *queue, cy_tensor_reduce_state *sum, cy_view dy)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view own = own_columns(layer, queue, dy);
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_reduce_next(sum, &rows));
    while (rows.count > 0) {
        cy_column_linear_backward_rows(
            layer, queue, cy_tensor_rows_of(sum->partial, rows), cy_tensor_rows_of(own, rows));
        CY_TRY(cy_tensor_reduce_next(sum, &rows));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

void cy_column_linear_backward_weight(const cy_column_linear *layer, cy_queue *queue,
    const cy_linear_gradients *to, cy_view dy, cy_view x)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_linear_gradients own = *to;
    if (layer->skip_bias) own.bias = cy_view_none();
    cy_linear_backward_weight(queue, &own, own_columns(layer, queue, dy), x);
    cy_arena_rewind(queue->scratch, mark);
}

// ---- row-parallel

// Whether x and dx hold only this rank's columns, or the group is one rank.
static bool is_own(const cy_row_linear *layer)
{
    return layer->input_is_parallel || cy_group_size(layer->parallel->group) == 1;
}

// This rank's columns of x, likewise.
static cy_view own_inputs(const cy_row_linear *layer, cy_queue *queue, cy_view x)
{
    if (is_own(layer)) return x;
    const cy_view own = cy_view_alloc(queue->scratch, x.dtype, x.rows, layer->weight.cols);
    cy_tensor_scatter_cols(layer->parallel->group, queue, own, x);
    return own;
}

void cy_row_linear_rows(const cy_row_linear *layer, cy_queue *queue, cy_view y, cy_view x)
{
    cy_matmul(queue, y, x, layer->weight, (cy_matmul_spec){.transpose_b = true});
}

cy_status cy_row_linear_forward(
    const cy_row_linear *layer, cy_queue *queue, cy_view y, cy_view x, cy_fixed *fixed)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view own = own_inputs(layer, queue, x);
    cy_tensor_reduce_state sum;
    cy_tensor_rows rows;
    cy_tensor_reduce_start(&sum, layer->parallel, queue, y, fixed);
    CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    while (rows.count > 0) {
        cy_row_linear_rows(
            layer, queue, cy_tensor_rows_of(sum.partial, rows), cy_tensor_rows_of(own, rows));
        CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    }
    CY_TRY(cy_tensor_reduce_finish(&sum));
    // After the sum, so that it is added once.
    if (!layer->skip_bias && !cy_view_is_none(layer->bias)) cy_add_bias(queue, y, layer->bias);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

void cy_row_linear_backward_rows(
    const cy_row_linear *layer, cy_queue *queue, cy_view dx, cy_view dy)
{
    cy_matmul(queue, dx, dy, layer->weight, (cy_matmul_spec){0});
}

cy_status cy_row_linear_backward_input(
    const cy_row_linear *layer, cy_queue *queue, cy_view dx, cy_tensor_gather_state *dy)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view own = dx;
    if (!is_own(layer)) {
        own = cy_view_alloc(queue->scratch, dx.dtype, dx.rows, layer->weight.cols);
    }
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_gather_next(dy, &rows));
    while (rows.count > 0) {
        cy_row_linear_backward_rows(
            layer, queue, cy_tensor_rows_of(own, rows), cy_tensor_rows_of(dy->all, rows));
        CY_TRY(cy_tensor_gather_next(dy, &rows));
    }
    if (!is_own(layer)) {
        CY_TRY(cy_tensor_gather_cols(layer->parallel->group, queue, dx, own));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

void cy_row_linear_backward_weight(const cy_row_linear *layer, cy_queue *queue,
    const cy_linear_gradients *to, const cy_tensor_gather_state *dy, cy_view x)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_linear_gradients weight = {.weight = to->weight, .empty = to->empty};
    cy_linear_backward_weight(queue, &weight, dy->all, own_inputs(layer, queue, x));
    if (!layer->skip_bias && !cy_view_is_none(to->bias)) cy_sum_rows(queue, to->bias, dy->outside);
    cy_arena_rewind(queue->scratch, mark);
}
