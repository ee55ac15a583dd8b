// Gives the two halves of a layer their weights, gradients, sums and normed inputs.

#include "model/layer.h"

#include "base/status.h"

cy_view cy_layer_weight(const cy_layer *layer, cy_role role, int fused_extra)
{
    return cy_storage_weight(layer->storage, layer->unit, role, fused_extra);
}

cy_view cy_layer_grad(const cy_layer *layer, cy_role role, int fused_extra)
{
    return cy_storage_grad(layer->storage, layer->unit, role, fused_extra);
}

cy_fixed *cy_layer_sum(const cy_layer *layer, cy_sum_site site)
{
    return cy_sums_at(layer->context->sums, layer->storage->units[layer->unit].layer, (int)site);
}

cy_linear_gradients cy_layer_targets(const cy_layer *layer, cy_backward parts, cy_role role,
    int fused_extra, cy_role bias, int bias_fused_extra)
{
    if (parts == CY_BACKWARD_INPUT_ONLY) return (cy_linear_gradients){0};
    return (cy_linear_gradients){
        .weight = cy_layer_grad(layer, role, fused_extra),
        .bias =
            bias == CY_ROLE_COUNT ? cy_view_none() : cy_layer_grad(layer, bias, bias_fused_extra),
        .empty = layer->storage->units[layer->unit].grads_empty,
    };
}

cy_status cy_layer_column_forward(
    const cy_layer *layer, const cy_column_linear *linear, cy_view y, cy_view kept, cy_view n)
{
    cy_queue *queue = layer->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view all = kept;
    if (cy_view_is_none(kept)) all = cy_tensor_all_tokens(linear->parallel, queue, n);
    CY_TRY(cy_column_linear_forward(linear, queue, y, all, n));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_layer_recompute_input(const cy_layer *layer, cy_tensor_gather_state *input,
    cy_view kept, cy_view x, cy_view inv_rms, cy_role norm)
{
    const cy_model_context *context = layer->context;
    cy_queue *queue = context->queue;
    if (!cy_view_is_none(kept)) {
        *input = cy_tensor_gather_done(&context->tp, kept);
        return CY_OK;
    }
    const cy_view n = cy_view_alloc(queue->scratch, context->dtype, x.rows, x.cols);
    cy_norm_apply(queue, n, x, inv_rms, cy_layer_weight(layer, norm, 0));
    return cy_tensor_gather_start(
        input, &context->tp, queue, cy_tensor_all_tokens(&context->tp, queue, n), n);
}

cy_tensor_rows cy_layer_inside_rows(const cy_layer *layer, cy_tensor_rows rows, cy_view inside)
{
    return cy_tensor_sequence_parallel(&layer->context->tp) ? cy_layer_all_rows(inside) : rows;
}

cy_status cy_layer_rows_arrive(cy_tensor_reduce_state *sum, cy_tensor_rows rows)
{
    cy_tensor_rows arrived;
    CY_TRY(cy_tensor_reduce_arrived(sum, &arrived));
    CY_ASSERT(arrived.count == 0 || (arrived.first == rows.first && arrived.count == rows.count));
    return CY_OK;
}
