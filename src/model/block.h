// model/block.h: one transformer layer: attention, then the feed-forward network, each behind a
// norm and added to the residual stream.
//
// Where tensor parallelism sums whole matrices, tokens go through a layer in ranges of rows: one
// range computes from norm to projection while the sum of the one before it travels, and a layer
// begins with rows whose sum has arrived while the last ones of the layer before are on their way
// (parallel/tensor/overlap.h). So the halves hand each other sums that are still travelling.
//
// The backward pass comes in two parts that a pipeline may run apart: one turns dy into dx; the
// other adds the weight gradients. CY_BACKWARD_TOGETHER runs both, with weight products under the
// sums of input gradients.
//
// Shapes: t tokens inside the tensor-parallel linears, t_local outside (t, or t / tp with
// sequence parallelism). Buffers of the stash belong to whoever took them.

#ifndef CY_MODEL_BLOCK_H
#define CY_MODEL_BLOCK_H

#include "model/feed_forward.h"
#include "model/self_attention.h"

// What one microbatch leaves behind in one layer between forward and backward.
typedef struct cy_block_stash {
    cy_self_attention_stash attention;
    cy_feed_forward_stash feed_forward;
} cy_block_stash;

// What CY_BACKWARD_INPUT_ONLY leaves for cy_block_backward_weight.
typedef struct cy_block_gradients {
    cy_self_attention_gradients attention;
    cy_feed_forward_gradients feed_forward;
} cy_block_gradients;

// Take the stash of one microbatch from an arena, all but attention's x: what lives until the input
// gradient, and what lives until the weight gradients; gate_up only where it is kept.
void cy_block_stash_alloc_to_input(
    cy_block_stash *stash, const cy_model_context *context, cy_arena *arena, int64_t tokens);
void cy_block_stash_alloc_to_weight(cy_block_stash *stash, const cy_model_context *context,
    cy_arena *arena, int64_t tokens, bool keep_gate_up);
void cy_block_gradients_alloc(cy_block_gradients *gradients, const cy_model_context *context,
    cy_arena *arena, int64_t tokens);

// y [t_local, hidden] from stash->attention.x; fills the stash. *pending is the sum that this x
// becomes, or a zeroed struct where x is there; on return it is the sum that y becomes: the next
// layer's, or cy_tensor_reduce_finish is next. Until then y and the stash's feed_forward.x stay
// where they are. Without y the stash alone is filled, for recomputation.
CY_MUST_CHECK cy_status cy_block_forward(const cy_layer *layer, cy_view y,
    const cy_block_stash *stash, const cy_microbatch *batch, cy_tensor_reduce_state *pending);

// dx [t_local, hidden] holds dy and becomes the gradient of x, in place. `gradients` is filled
// for CY_BACKWARD_INPUT_ONLY and is scratch otherwise.
CY_MUST_CHECK cy_status cy_block_backward(const cy_layer *layer, cy_view dx,
    const cy_block_stash *stash, const cy_block_gradients *gradients, const cy_microbatch *batch,
    cy_backward parts);

// Adds the weight gradients that CY_BACKWARD_INPUT_ONLY left.
CY_MUST_CHECK cy_status cy_block_backward_weight(
    const cy_layer *layer, const cy_block_stash *stash, const cy_block_gradients *gradients);

#endif
