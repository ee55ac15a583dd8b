// model/qk_norm.h: the norms of Qwen3's attention: an RMSNorm over each head of q and of k, with
// one weight [head_dim] for all heads of q and one for those of k, before the heads are rotated.
//
// The kernels want rows of one head, and q and k are ranges of columns of the fused q | k | v, so
// the norm reads dense copies. These copies, q and k as they were before the norm, are what the
// backward pass needs: the stash keeps them, (heads + kv_heads) * head_dim elements a token.
// A model without such norms has an empty stash, and the functions do nothing.
//
// Weight gradients are those of this rank's heads and tokens.

#ifndef CY_MODEL_QK_NORM_H
#define CY_MODEL_QK_NORM_H

#include "model/context.h"
#include "model/storage.h"

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

#endif
