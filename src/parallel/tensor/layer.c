#include "parallel/tensor/layer.h"

#include "parallel/tensor/moves.h"

cy_status cy_column_layer_forward(
    const cy_column_layer *layer, cy_queue *queue, cy_view y, cy_view x)
{
    const cy_tensor_parallel *parallel = layer->parallel;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view bias = layer->skip_bias_add ? cy_view_none() : layer->bias;
    cy_view own = y;
    if (layer->gather_output) {
        own = cy_view_take(queue->scratch, y.dtype, y.rows, layer->weight.rows);
    }
    CY_TRY(cy_column_linear_forward_outside(
        parallel, queue, own, cy_tensor_inside(parallel, queue, x), x, layer->weight, bias));
    if (layer->gather_output) {
        CY_TRY(cy_tensor_move_run(CY_MOVE_GATHER_COLS, parallel->group, queue, y, own));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_column_layer_backward(
    const cy_column_layer *layer, cy_queue *queue, cy_view dx, cy_view dy, cy_view x)
{
    const cy_tensor_parallel *parallel = layer->parallel;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view own = dy;
    if (layer->gather_output) {
        own = cy_view_take(queue->scratch, dy.dtype, dy.rows, layer->weight.rows);
        const cy_tensor_move back = cy_tensor_move_back(CY_MOVE_GATHER_COLS);
        CY_TRY(cy_tensor_move_run(back, parallel->group, queue, own, dy));
    }
    cy_tensor_gathering all;
    CY_TRY(cy_tensor_gather_start(&all, parallel, queue, cy_tensor_inside(parallel, queue, x), x));
    const cy_linear_gradients to = {
        .weight = layer->weight_grad,
        .bias = layer->skip_bias_add ? cy_view_none() : layer->bias_grad,
    };
    CY_TRY(cy_column_linear_backward(parallel, queue, dx, &to, own, &all, layer->weight, NULL));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// The own columns of x, from the scratch arena unless they are all there is.
static cy_status own_columns(const cy_row_layer *layer, cy_queue *queue, cy_view *own, cy_view x)
{
    *own = x;
    if (layer->input_is_parallel) return CY_OK;
    *own = cy_view_take(queue->scratch, x.dtype, x.rows, layer->weight.cols);
    return cy_tensor_move_run(CY_MOVE_TAKE_COLS, layer->parallel->group, queue, *own, x);
}

cy_status cy_row_layer_forward(const cy_row_layer *layer, cy_queue *queue, cy_view y, cy_view x)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view own;
    CY_TRY(own_columns(layer, queue, &own, x));
    CY_TRY(cy_row_linear_forward(layer->parallel, queue, y, own, layer->weight, NULL));
    // After the sum, so that it is added once.
    if (!layer->skip_bias_add && !cy_view_is_none(layer->bias)) cy_add_bias(queue, y, layer->bias);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_row_layer_backward(
    const cy_row_layer *layer, cy_queue *queue, cy_view dx, cy_view dy, cy_view x)
{
    const cy_tensor_parallel *parallel = layer->parallel;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view own, d_own = dx;
    CY_TRY(own_columns(layer, queue, &own, x));
    if (!layer->input_is_parallel) {
        d_own = cy_view_take(queue->scratch, dx.dtype, dx.rows, layer->weight.cols);
    }
    cy_tensor_gathering all;
    CY_TRY(
        cy_tensor_gather_start(&all, parallel, queue, cy_tensor_inside(parallel, queue, dy), dy));
    CY_TRY(cy_row_linear_backward_input(queue, d_own, &all, layer->weight));
    const cy_linear_gradients to = {.weight = layer->weight_grad};
    cy_linear_weight_gradient(queue, &to, all.all, own);
    if (!layer->skip_bias_add && !cy_view_is_none(layer->bias_grad)) {
        cy_sum_rows(queue, layer->bias_grad, dy);
    }
    if (!layer->input_is_parallel) {
        const cy_tensor_move back = cy_tensor_move_back(CY_MOVE_TAKE_COLS);
        CY_TRY(cy_tensor_move_run(back, parallel->group, queue, dx, d_own));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}
