// Runs one transformer layer forward and backward: attention, then the feed-forward network.

#include "model/block.h"

#include "base/status.h"

void cy_block_stash_alloc_to_input(
    cy_block_stash *stash, const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    cy_self_attention_stash_alloc_to_input(&stash->attention, context, arena, tokens);
}

void cy_block_stash_alloc_to_weight(cy_block_stash *stash, const cy_model_context *context,
    cy_arena *arena, int64_t tokens, bool keep_gate_up)
{
    cy_self_attention_stash_alloc_to_weight(&stash->attention, context, arena, tokens);
    cy_feed_forward_stash_alloc(&stash->feed_forward, context, arena, tokens, keep_gate_up);
}

void cy_block_gradients_alloc(
    cy_block_gradients *gradients, const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    cy_self_attention_gradients_alloc(&gradients->attention, context, arena, tokens);
    cy_feed_forward_gradients_alloc(&gradients->feed_forward, context, arena, tokens);
}

cy_status cy_block_forward(const cy_layer *layer, cy_view y, const cy_block_stash *stash,
    const cy_microbatch *batch, cy_tensor_reduce_state *pending)
{
    cy_arena *scratch = layer->context->queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    const bool at_once = cy_tensor_sequence_parallel(&layer->context->tp) || cy_view_is_none(y);
    cy_tensor_reduce_state branch, output = {0};
    CY_TRY(cy_self_attention_forward(
        layer, stash->feed_forward.x, &stash->attention, batch, pending, &branch));
    const cy_feed_forward_input input = {
        .branch = &branch,
        .bias = cy_self_attention_bias(layer),
        .residual = stash->attention.x,
    };
    if (at_once) {
        CY_TRY(cy_feed_forward_gate_up(layer, &stash->feed_forward, &input));
        cy_arena_rewind(scratch, mark);
    }
    if (!cy_view_is_none(y)) {
        CY_TRY(cy_feed_forward_project(
            layer, y, &stash->feed_forward, at_once ? NULL : &input, &output));
    }
    cy_arena_rewind(scratch, mark);
    *pending = output;
    return CY_OK;
}

cy_status cy_block_backward(const cy_layer *layer, cy_view dx, const cy_block_stash *stash,
    const cy_block_gradients *gradients, const cy_microbatch *batch, cy_backward parts)
{
    CY_ASSERT(dx.rows == stash->attention.x.rows && dx.cols == stash->attention.x.cols);
    cy_arena *scratch = layer->context->queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    cy_feed_forward_deferred deferred;
    const cy_overlap_work under = {cy_feed_forward_backward_gate_up, &deferred};
    CY_TRY(cy_feed_forward_backward(
        layer, dx, &stash->feed_forward, &gradients->feed_forward, parts, &deferred));
    CY_TRY(cy_self_attention_backward(
        layer, dx, &stash->attention, &gradients->attention, batch, parts, &under));
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

cy_status cy_block_backward_weight(
    const cy_layer *layer, const cy_block_stash *stash, const cy_block_gradients *gradients)
{
    CY_TRY(cy_feed_forward_backward_weight(layer, &stash->feed_forward, &gradients->feed_forward));
    return cy_self_attention_backward_weight(layer, &stash->attention, &gradients->attention);
}
