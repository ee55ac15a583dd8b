// model/block.h: one transformer layer (attention, then feed-forward, each behind a norm and added
// to the residual), forward and backward written out.
//
//   n1 = norm1(x)         qkv = n1 Wqkv^T    q, k rotated    o = attention(q, k, v)
//                         (Qwen3: q and k normed before they are rotated)
//   mid = x + o Wout^T    n2 = norm2(mid)    gate|up = n2 Wgu^T
//   y = mid + (silu(gate) * up) Wdown^T
//
// Kept from forward to backward: x, mid, qkv (rotated), o and the statistics, gate|up. Norm outputs
// and the SwiGLU product are made again in the backward pass, from what is kept: cheaper than the
// memory traffic of keeping them. (With sequence parallelism the norm outputs would be gathered
// again: context.tp.keep_inputs keeps them.)
//
// Where tensor parallelism sums whole matrices, tokens go through a layer in ranges of rows: one
// range computes from norm to projection while the sum of the one before it travels, and a layer
// begins with rows whose sum has come while the last ones of the layer before are on their way
// (parallel/tensor/overlap.h).
//
// The backward pass comes in two parts that a pipeline may run apart: backward_input turns dy into
// dx; backward_weight adds the weight gradients. `together` runs both, with weight products under
// the sums of input gradients.
//
// Shapes: t tokens inside the tensor-parallel linears, t_local outside (t, or t / tp with
// sequence parallelism). Buffers of the stash belong to whoever took them.

#ifndef CY_MODEL_BLOCK_H
#define CY_MODEL_BLOCK_H

#include "model/context.h"
#include "model/storage.h"

// ---- norms of q and k (Qwen3): an RMSNorm over each head of q and of k, with one weight
// [head_dim] for all heads of q and one for those of k, before the heads are rotated.
//
// The kernels need rows of one head, and q and k are ranges of columns of the fused q | k | v, so
// the norm reads dense copies. The backward pass needs these copies, q and k before the norm: the
// stash keeps them, (heads + kv_heads) * head_dim elements a token. A model without such norms has
// an empty stash, and the functions do nothing. Weight gradients are those of this rank's heads and
// tokens.

typedef struct cy_qk_norm_stash {
    cy_view q;         // [t * heads, head_dim]
    cy_view k;         // [t * kv_heads, head_dim]
    cy_view inv_rms_q; // [1, t * heads]
    cy_view inv_rms_k; // [1, t * kv_heads]
} cy_qk_norm_stash;

void cy_qk_norm_stash_alloc(
    cy_qk_norm_stash *stash, const cy_model_context *context, cy_arena *arena, int64_t tokens);

// Of rows [first, first + count) of the tokens alone.
cy_qk_norm_stash cy_qk_norm_stash_rows(
    const cy_qk_norm_stash *stash, const cy_model_context *context, int64_t first, int64_t count);

// q and k in qkv [t, (heads + 2 kv_heads) head_dim] are normed in place; fills the stash.
void cy_qk_norm_forward(const cy_model_context *context, const cy_storage *storage, int unit,
    cy_view qkv, const cy_qk_norm_stash *stash);

// d_qkv holds the gradient of the normed q and k and becomes that of q and k before the norm; adds
// the gradients of the two weights.
void cy_qk_norm_backward(const cy_model_context *context, const cy_storage *storage, int unit,
    cy_view d_qkv, const cy_qk_norm_stash *stash);

// ---- the layer

typedef struct cy_block {
    const cy_model_context *context; // borrowed
    const cy_storage *storage;       // borrowed
    int unit;                        // of this layer in the storage
} cy_block;

// What one microbatch leaves behind in one layer between forward and backward.
typedef struct cy_block_stash {
    cy_view x;        // [t_local, hidden] input
    cy_view mid;      // [t_local, hidden] after attention
    cy_view inv_rms1; // [1, t_local]
    cy_view inv_rms2; // [1, t_local]
    cy_view qkv;      // [t, (heads + 2 kv_heads) head_dim], q and k rotated
    cy_view o;        // [t, heads head_dim]
    cy_view lse;      // [heads, t]
    cy_view gate_up;  // [t, 2 ffn]; backward_input leaves its gradient here
    cy_view n1;       // [t, hidden] norm of x, gathered; none where it is gathered again
    cy_view n2;       // [t, hidden] norm of mid, likewise
    cy_qk_norm_stash qk_norm;
} cy_block_stash;

// What backward_input leaves for backward_weight.
typedef struct cy_block_gradients {
    cy_view dy;    // [t, hidden] gradient of the output
    cy_view d_mid; // [t, hidden] gradient of the attention branch
    cy_view d_qkv; // as qkv
    cy_view act;   // [t, ffn] the SwiGLU product, made again
} cy_block_gradients;

typedef enum cy_backward {
    CY_BACKWARD_TOGETHER,   // input and weight gradients
    CY_BACKWARD_INPUT_ONLY, // weight gradients follow in cy_block_backward_weight
} cy_backward;

// Take the stash of one microbatch from an arena, all but x: what lives until the input gradient
// (qkv, lse), and what lives until the weight gradients; gate_up only where it is kept.
void cy_block_stash_alloc_to_input(
    cy_block_stash *stash, const cy_model_context *context, cy_arena *arena, int64_t tokens);
void cy_block_stash_alloc_to_weight(cy_block_stash *stash, const cy_model_context *context,
    cy_arena *arena, int64_t tokens, bool keep_gate_up);
void cy_block_gradients_alloc(cy_block_gradients *gradients, const cy_model_context *context,
    cy_arena *arena, int64_t tokens);

// y [t_local, hidden] from stash->x; fills the stash. *pending is the sum that stash->x becomes,
// or a zeroed struct where it is there; on return it is the sum that y becomes: the next layer's,
// or cy_tensor_reduce_finish is next. Until then y and the stash's mid stay where they are. Without
// y the stash alone is filled, for recomputation.
CY_MUST_CHECK cy_status cy_block_forward(const cy_block *block, cy_view y, cy_block_stash *stash,
    const cy_microbatch *batch, cy_tensor_reduce_state *pending);

// Makes stash->gate_up again from stash->mid, for recomputation: the same bits.
CY_MUST_CHECK cy_status cy_block_recompute_gate_up(const cy_block *block, cy_block_stash *stash);

// dx [t_local, hidden] holds dy and becomes the gradient of x, in place. `gradients` is filled
// for CY_BACKWARD_INPUT_ONLY and is scratch otherwise.
CY_MUST_CHECK cy_status cy_block_backward(const cy_block *block, cy_view dx, cy_block_stash *stash,
    cy_block_gradients *gradients, const cy_microbatch *batch, cy_backward parts);

// Adds the weight gradients that CY_BACKWARD_INPUT_ONLY left.
CY_MUST_CHECK cy_status cy_block_backward_weight(
    const cy_block *block, const cy_block_stash *stash, const cy_block_gradients *gradients);

#endif
