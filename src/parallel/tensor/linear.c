#include "parallel/tensor/linear.h"

#include "base/assert.h"

static cy_view rows_of(cy_view view, cy_tensor_rows rows)
{
    return cy_view_rows(view, rows.first, rows.count);
}

cy_status cy_row_linear_forward(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view y,
    cy_view x, cy_view weight, cy_fixed *fixed)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_tensor_summing sum;
    cy_tensor_rows rows;
    cy_tensor_sum_start(&sum, parallel, queue, y, fixed);
    CY_TRY(cy_tensor_sum_next(&sum, &rows));
    while (rows.count > 0) {
        cy_matmul(queue, rows_of(sum.partial, rows), rows_of(x, rows), weight,
            (cy_matmul_spec){.transpose_b = true});
        CY_TRY(cy_tensor_sum_next(&sum, &rows));
    }
    CY_TRY(cy_tensor_sum_end(&sum));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_row_linear_backward_input(
    cy_queue *queue, cy_view dx, cy_tensor_gathering *dy, cy_view weight)
{
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_gather_next(dy, &rows));
    while (rows.count > 0) {
        cy_matmul(queue, rows_of(dx, rows), rows_of(dy->all, rows), weight, (cy_matmul_spec){0});
        CY_TRY(cy_tensor_gather_next(dy, &rows));
    }
    return CY_OK;
}

void cy_column_linear_forward(cy_queue *queue, cy_view y, cy_view x, cy_view weight, cy_view bias)
{
    cy_matmul(queue, y, x, weight, (cy_matmul_spec){.transpose_b = true});
    if (!cy_view_is_none(bias)) cy_add_bias(queue, y, bias);
}

cy_status cy_column_linear_forward_outside(const cy_tensor_parallel *parallel, cy_queue *queue,
    cy_view y, cy_view x_all, cy_view x, cy_view weight, cy_view bias)
{
    cy_tensor_gathering gathering;
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_gather_start(&gathering, parallel, queue, x_all, x));
    CY_TRY(cy_tensor_gather_next(&gathering, &rows));
    while (rows.count > 0) {
        cy_column_linear_forward(queue, rows_of(y, rows), rows_of(x_all, rows), weight, bias);
        CY_TRY(cy_tensor_gather_next(&gathering, &rows));
    }
    return CY_OK;
}

void cy_linear_weight_gradient(
    cy_queue *queue, const cy_linear_gradients *to, cy_view dy, cy_view x)
{
    if (!cy_view_is_none(to->weight)) {
        cy_matmul(queue, to->weight, dy, x,
            (cy_matmul_spec){.transpose_a = true, .accumulate = !to->empty});
    }
    if (!cy_view_is_none(to->bias)) cy_sum_rows(queue, to->bias, dy);
}

cy_status cy_column_linear_backward(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view dx,
    const cy_linear_gradients *to, cy_view dy, cy_tensor_gathering *x, cy_view weight,
    cy_fixed *fixed)
{
    CY_ASSERT(dx.data != x->all.data); // x is still read below, while dx is being summed
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_tensor_summing sum;
    cy_tensor_rows rows;
    cy_tensor_sum_start(&sum, parallel, queue, dx, fixed);
    CY_TRY(cy_tensor_sum_next(&sum, &rows));
    while (rows.count > 0) {
        cy_matmul(
            queue, rows_of(sum.partial, rows), rows_of(dy, rows), weight, (cy_matmul_spec){0});
        CY_TRY(cy_tensor_sum_next(&sum, &rows));
    }
    if (!cy_view_is_none(to->weight)) CY_TRY(cy_tensor_gather_rest(x));
    cy_linear_weight_gradient(queue, to, dy, x->all);
    CY_TRY(cy_tensor_sum_end(&sum));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}
