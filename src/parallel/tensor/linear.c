#include "parallel/tensor/linear.h"

#include "base/assert.h"

static bool splits_tokens(const cy_tensor_parallel *parallel)
{
    return parallel->sequence && cy_group_size(parallel->group) > 1;
}

int64_t cy_tensor_outside(const cy_tensor_parallel *parallel, int64_t tokens)
{
    if (!splits_tokens(parallel)) return tokens;
    CY_ASSERT(tokens % cy_group_size(parallel->group) == 0);
    return tokens / cy_group_size(parallel->group);
}

static cy_view take_all_tokens(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view outside)
{
    const int64_t tokens = outside.rows * cy_group_size(parallel->group);
    return cy_view_take(queue->scratch, outside.dtype, tokens, outside.cols);
}

cy_status cy_tensor_gather(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view *inside, cy_view outside)
{
    if (!splits_tokens(parallel)) {
        *inside = outside;
        return CY_OK;
    }
    cy_request request = {0};
    const cy_view all = take_all_tokens(parallel, queue, outside);
    CY_TRY(cy_group_start_all_gather(parallel->group, queue, &request, all, outside));
    CY_TRY(cy_group_wait(parallel->group, queue, &request));
    *inside = all;
    return CY_OK;
}

cy_view cy_tensor_partial(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view outside)
{
    return splits_tokens(parallel) ? take_all_tokens(parallel, queue, outside) : outside;
}

cy_status cy_tensor_start_sum(const cy_tensor_parallel *parallel, cy_queue *queue,
    cy_request *request, cy_view outside, cy_view partial)
{
    if (splits_tokens(parallel)) {
        return cy_group_start_reduce_scatter(
            parallel->group, queue, request, outside, partial, CY_SUM);
    }
    return cy_group_start_all_reduce(parallel->group, queue, request, partial, CY_SUM);
}

cy_status cy_row_linear_forward(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view y, cy_view x, cy_view weight)
{
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_request sum = {0};
    const cy_view partial = cy_tensor_partial(parallel, queue, y);
    cy_matmul(queue, partial, x, weight, (cy_matmul_spec){.transpose_b = true});
    CY_TRY(cy_tensor_start_sum(parallel, queue, &sum, y, partial));
    CY_TRY(cy_group_wait(parallel->group, queue, &sum));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

void cy_column_linear_forward(cy_queue *queue, cy_view y, cy_view x, cy_view weight, cy_view bias)
{
    cy_matmul(queue, y, x, weight, (cy_matmul_spec){.transpose_b = true});
    if (!cy_view_is_none(bias)) cy_add_bias(queue, y, bias);
}

void cy_linear_weight_gradient(
    cy_queue *queue, cy_view dweight, cy_view dbias, cy_view dy, cy_view x)
{
    if (!cy_view_is_none(dweight)) {
        cy_matmul(queue, dweight, dy, x, (cy_matmul_spec){.transpose_a = true, .accumulate = true});
    }
    if (!cy_view_is_none(dbias)) cy_sum_rows(queue, dbias, dy);
}

cy_status cy_column_linear_backward(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view dx,
    cy_view dweight, cy_view dbias, cy_view dy, cy_view x, cy_view weight)
{
    CY_ASSERT(dx.data != x.data); // x is still read below, while dx is being summed
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_request sum = {0};
    const cy_view partial = cy_tensor_partial(parallel, queue, dx);
    cy_matmul(queue, partial, dy, weight, (cy_matmul_spec){0});
    CY_TRY(cy_tensor_start_sum(parallel, queue, &sum, dx, partial));
    if (!parallel->overlap) CY_TRY(cy_group_wait(parallel->group, queue, &sum));
    cy_linear_weight_gradient(queue, dweight, dbias, dy, x);
    CY_TRY(cy_group_wait(parallel->group, queue, &sum));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}
