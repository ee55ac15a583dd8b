// model/self_attention.h: the attention half of a layer, forward and backward written out.
//
//   n = norm1(x)    qkv = n Wqkv^T    q, k rotated    o = attention(q, k, v)    branch = o Wout^T
//   (Qwen3: each head of q and k goes through a norm before it is rotated)
//
// The branch is summed over the tensor-parallel group. The residual stream gets it, and the bias of
// the output projection, where the other half reads it (feed_forward.h).
//
// Training, evaluation and generation share the forward pass. They differ in where a query's keys
// are: in the microbatch itself (parallel/context/attention.h), or, where batch->cache is given, in
// the pages of a KV cache, to which the microbatch's own keys and values are written first.
//
// Kept from forward to backward: x, qkv (rotated), o and the statistics. The norm's output is made
// again in the backward pass: cheaper than the memory traffic of keeping it. (With sequence
// parallelism it would be gathered again: context.tp.keep_inputs keeps it.)
//
// Shapes: t tokens inside the tensor-parallel linears, t_local outside (t, or t / tp with sequence
// parallelism). Buffers of a stash belong to whoever took them. Functions fail when a group does.

#ifndef CY_MODEL_SELF_ATTENTION_H
#define CY_MODEL_SELF_ATTENTION_H

#include "model/layer.h"

// What the norms of q and k leave (Qwen3): an RMSNorm over each head of q and of k, with one weight
// [head_dim] for all heads of q and one for those of k. The kernels need rows of one head, and q
// and k are ranges of columns of the fused q | k | v, so the norm reads dense copies, which the
// backward pass needs: (heads + kv_heads) * head_dim elements a token. Empty in other models.
typedef struct cy_qk_norm_stash {
    cy_view q;         // [t * heads, head_dim], before the norm
    cy_view k;         // [t * kv_heads, head_dim], before the norm
    cy_view inv_rms_q; // [1, t * heads]
    cy_view inv_rms_k; // [1, t * kv_heads]
} cy_qk_norm_stash;

// What one microbatch leaves behind between forward and backward.
typedef struct cy_self_attention_stash {
    cy_view x;       // [t_local, hidden] input
    cy_view inv_rms; // [1, t_local]
    cy_view qkv;     // [t, (heads + 2 kv_heads) head_dim], q and k rotated
    cy_view o;       // [t, heads head_dim]
    cy_view lse;     // [heads, t]
    cy_view n;       // [t, hidden] norm of x, gathered; none where it is gathered again
    cy_qk_norm_stash qk_norm;
} cy_self_attention_stash;

// What the backward pass of the input leaves for that of the weights.
typedef struct cy_self_attention_gradients {
    cy_view dy;    // [t_local, hidden] gradient of the branch
    cy_view d_qkv; // as qkv
} cy_self_attention_gradients;

// Take views of one microbatch from an arena, all but x: what lives until the input gradient (qkv,
// lse, qk_norm), and what lives until the weight gradients (the others).
void cy_self_attention_stash_alloc_to_input(cy_self_attention_stash *stash,
    const cy_model_context *context, cy_arena *arena, int64_t tokens);
void cy_self_attention_stash_alloc_to_weight(cy_self_attention_stash *stash,
    const cy_model_context *context, cy_arena *arena, int64_t tokens);
void cy_self_attention_gradients_alloc(cy_self_attention_gradients *gradients,
    const cy_model_context *context, cy_arena *arena, int64_t tokens);

// Starts the sum `branch` into y [t_local, hidden] and returns while its last rows travel. *x is
// the sum that stash->x becomes, or a zeroed struct where x is there. Rows are taken from norm to
// projection as soon as x has them, so that the sum of one range of rows travels under the next.
CY_MUST_CHECK cy_status cy_self_attention_forward(const cy_layer *layer, cy_view y,
    const cy_self_attention_stash *stash, const cy_microbatch *batch, cy_tensor_reduce_state *x,
    cy_tensor_reduce_state *branch);

// The bias of the output projection, which is added to the sum of the branch; or none.
cy_view cy_self_attention_bias(const cy_layer *layer);

// dx [t_local, hidden] holds the gradient of the branch, which is that of the residual stream too,
// and becomes the gradient of x, in place. `gradients` is filled for CY_BACKWARD_INPUT_ONLY and is
// scratch otherwise. `under` runs where traffic would else be exposed: under the sum of the input
// gradient, or, with tokens split, under the gather of dx.
CY_MUST_CHECK cy_status cy_self_attention_backward(const cy_layer *layer, cy_view dx,
    const cy_self_attention_stash *stash, const cy_self_attention_gradients *gradients,
    const cy_microbatch *batch, cy_backward parts, const cy_overlap_work *under);

// Adds the weight gradients that CY_BACKWARD_INPUT_ONLY left.
CY_MUST_CHECK cy_status cy_self_attention_backward_weight(const cy_layer *layer,
    const cy_self_attention_stash *stash, const cy_self_attention_gradients *gradients);

// Fills context->rope for texts of `length` tokens. Returns when the device has done it.
CY_MUST_CHECK cy_status cy_self_attention_fill_rope(
    const cy_model_context *context, int64_t length);

// Writes k and v [n, cols], of the tokens first.. of a microbatch, to their places in the pages of
// one layer, whose keys and values have as many columns: all kv heads', or those of some.
void cy_kv_pages_write(cy_queue *queue, const cy_kv_pages *pages, cy_view k, cy_view v,
    const cy_cache_batch *batch, int64_t first);

#endif
