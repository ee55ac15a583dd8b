// model/feed_forward.h: the feed-forward half of a layer, forward and backward written out.
//
//   x += the attention branch    n = norm2(x)    gate|up = n Wgu^T    y = x + (silu(gate) * up)
//   Wdown^T
//
// (Shazeer, "GLU variants improve transformer", 2020.) Kept from forward to backward: x, its
// statistics, gate|up. The norm's output and the SwiGLU product are made again in the backward
// pass. (With sequence parallelism the norm's output would be gathered again:
// context.tp.keep_inputs keeps it.)
//
// Shapes and ownership are those of self_attention.h. Functions fail when a group does.

#ifndef CY_MODEL_FEED_FORWARD_H
#define CY_MODEL_FEED_FORWARD_H

#include "model/layer.h"

// What one microbatch leaves behind between forward and backward.
typedef struct cy_feed_forward_stash {
    cy_view x;       // [t_local, hidden] the residual stream after attention
    cy_view inv_rms; // [1, t_local]
    cy_view gate_up; // [t, 2 ffn]; the backward pass of the input leaves its gradient here
    cy_view n;       // [t, hidden] norm of x, gathered; none where it is gathered again
} cy_feed_forward_stash;

// What the backward pass of the input leaves for that of the weights.
typedef struct cy_feed_forward_gradients {
    cy_view dy;  // [t_local, hidden] gradient of the output
    cy_view act; // [t, ffn] the SwiGLU product, made again
} cy_feed_forward_gradients;

// The input of this half as the attention half leaves it: rows of `branch` arrive in the stash's x,
// and then get bias and residual added, in this order.
typedef struct cy_feed_forward_input {
    cy_tensor_reduce_state *branch; // borrowed
    cy_view bias;                   // [1, hidden], or none
    cy_view residual;               // [t_local, hidden]
} cy_feed_forward_input;

// The gradients of the weights of gate and up, which are made last: as the work that another half
// runs while its traffic travels (cy_feed_forward_backward_gate_up).
typedef struct cy_feed_forward_deferred {
    const cy_layer *layer;              // borrowed
    const cy_feed_forward_stash *stash; // borrowed
    cy_backward parts;
    cy_tensor_gather_state n; // with tokens split: on its way
} cy_feed_forward_deferred;

// Take views of one microbatch from an arena; gate_up only where it is kept.
void cy_feed_forward_stash_alloc(cy_feed_forward_stash *stash, const cy_model_context *context,
    cy_arena *arena, int64_t tokens, bool keep_gate_up);
void cy_feed_forward_gradients_alloc(cy_feed_forward_gradients *gradients,
    const cy_model_context *context, cy_arena *arena, int64_t tokens);

// Fills the stash, gate_up too, for all rows as they arrive.
CY_MUST_CHECK cy_status cy_feed_forward_gate_up(
    const cy_layer *layer, const cy_feed_forward_stash *stash, const cy_feed_forward_input *input);

// y [t_local, hidden] = x + the branch once *output, which is started here, has arrived. Without
// `input` gate_up is there; with it, rows are taken from norm to projection as they arrive.
CY_MUST_CHECK cy_status cy_feed_forward_project(const cy_layer *layer, cy_view y,
    const cy_feed_forward_stash *stash, const cy_feed_forward_input *input,
    cy_tensor_reduce_state *output);

// Makes stash->gate_up again from stash->x, for recomputation: the same bits.
CY_MUST_CHECK cy_status cy_feed_forward_recompute_gate_up(
    const cy_layer *layer, const cy_feed_forward_stash *stash);

// dx [t_local, hidden] holds dy; it becomes dy plus the gradient through the branch. `gradients` is
// filled for CY_BACKWARD_INPUT_ONLY and is scratch otherwise. *deferred is what is left to do, with
// memory in the scratch arena: run it before that is rewound.
CY_MUST_CHECK cy_status cy_feed_forward_backward(const cy_layer *layer, cy_view dx,
    const cy_feed_forward_stash *stash, const cy_feed_forward_gradients *gradients,
    cy_backward parts, cy_feed_forward_deferred *deferred);

// Does it; `deferred` is a cy_feed_forward_deferred, as cy_overlap_work passes it.
CY_MUST_CHECK cy_status cy_feed_forward_backward_gate_up(void *deferred);

// Adds the weight gradients that CY_BACKWARD_INPUT_ONLY left.
CY_MUST_CHECK cy_status cy_feed_forward_backward_weight(const cy_layer *layer,
    const cy_feed_forward_stash *stash, const cy_feed_forward_gradients *gradients);

#endif
