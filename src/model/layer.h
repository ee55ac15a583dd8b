// model/layer.h: one layer of the model as its two halves see it: its weights, its gradients and
// its sums of strict mode, by role.
//
// A layer is two halves, each behind a norm and added to the residual stream: attention
// (self_attention.h) and the feed-forward network (feed_forward.h). block.h puts them together.
// What both halves need stands here. A layer is plain data; its pointers are borrowed.

#ifndef CY_MODEL_LAYER_H
#define CY_MODEL_LAYER_H

#include "model/context.h"
#include "model/storage.h"

typedef struct cy_layer {
    const cy_model_context *context; // borrowed
    const cy_storage *storage;       // borrowed
    int unit;                        // of this layer in the storage
} cy_layer;

typedef enum cy_backward {
    CY_BACKWARD_TOGETHER,   // input and weight gradients
    CY_BACKWARD_INPUT_ONLY, // weight gradients follow in cy_block_backward_weight
} cy_backward;

// Work that a half runs once, while its own gathers and sums travel.
typedef struct cy_overlap_work {
    cy_status (*run)(void *context);
    void *context; // borrowed
} cy_overlap_work;

// The weight of a role, or the `fused_extra` + 1 weights that lie together from it on; none where
// the model has no such parameter. Likewise the gradient.
cy_view cy_layer_weight(const cy_layer *layer, cy_role role, int fused_extra);
cy_view cy_layer_grad(const cy_layer *layer, cy_role role, int fused_extra);

// Where strict mode makes a sum of this layer; NULL in fast mode.
cy_fixed *cy_layer_sum(const cy_layer *layer, cy_sum_site site);

// Where the weight gradients of one linear layer go: nowhere yet for CY_BACKWARD_INPUT_ONLY. `bias`
// is CY_ROLE_COUNT where the linear layer has none.
cy_linear_gradients cy_layer_targets(const cy_layer *layer, cy_backward parts, cy_role role,
    int fused_extra, cy_role bias, int bias_fused_extra);

// y = a column-parallel linear layer of n [t_local, hidden], the output of a norm. `kept` is where
// all tokens of n stay for the backward pass, or none.
CY_MUST_CHECK cy_status cy_layer_column_forward(
    const cy_layer *layer, const cy_column_linear *linear, cy_view y, cy_view kept, cy_view n);

// The same input again, for the weight gradient: as it was kept, or made from what the norm saw (x,
// inv_rms and the weight of role `norm`) in the scratch arena, on its way from the other ranks.
CY_MUST_CHECK cy_status cy_layer_recompute_input(const cy_layer *layer,
    cy_tensor_gather_state *input, cy_view kept, cy_view x, cy_view inv_rms, cy_role norm);

// All tokens outside the tensor-parallel linears.
static inline cy_tensor_rows cy_layer_all_rows(cy_view outside)
{
    return (cy_tensor_rows){.count = outside.rows};
}

// What rows outside are inside: the same rows, or, where tokens are split, all of them.
cy_tensor_rows cy_layer_inside_rows(const cy_layer *layer, cy_tensor_rows rows, cy_view inside);

// Waits for `rows` of a sum that is cut into the same ranges, unless all of it has arrived.
CY_MUST_CHECK cy_status cy_layer_rows_arrive(cy_tensor_reduce_state *sum, cy_tensor_rows rows);

#endif
