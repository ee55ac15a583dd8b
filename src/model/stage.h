// model/stage.h: the layers that one rank holds, run forward and backward for one micro-batch.
//
// A pipeline sees a stage as forward and backward of a micro-batch; a whole model on one rank is a
// pipeline of one stage. Each micro-batch in flight has a slot: what its layers keep between
// forward and backward. Slots live in the step arena.
//
// The stage calls its hooks downwards-blind: before a unit's weights are needed, after, before its
// gradients are added to, and when they are final for this micro-batch. That is how parameters are
// gathered and gradients reduced without the model knowing about either.

#ifndef CY_MODEL_STAGE_H
#define CY_MODEL_STAGE_H

#include "model/block.h"
#include "model/head.h"

typedef enum cy_recompute {
    CY_RECOMPUTE_NONE,
    CY_RECOMPUTE_SELECTIVE, // gate and up are made again
    CY_RECOMPUTE_FULL,      // only each layer's input is kept
} cy_recompute;

typedef struct cy_stage_hooks {
    void *context;                                         // borrowed
    cy_status (*before_unit)(void *context, int unit);     // weights are needed
    cy_status (*after_unit)(void *context, int unit);      // and no more
    cy_status (*before_gradient)(void *context, int unit); // its gradients are added to next
    cy_status (*gradient_final)(void *context, int unit);  // of this micro-batch
} cy_stage_hooks;

typedef struct cy_stage_slot {
    cy_block_stash *blocks;        // [layer_count]; with recompute, some views are none
    cy_block_gradients *gradients; // [layer_count], for the split backward pass; NULL otherwise
    cy_view out;                   // [t_outside, hidden] after the last layer
    cy_view d_out;                 // likewise: its gradient, where the head is here
} cy_stage_slot;

typedef struct cy_stage {
    cy_model_context context;
    cy_storage *storage; // borrowed
    cy_head head;
    cy_recompute recompute;
    cy_stage_hooks hooks; // all functions set, or all NULL
    int64_t tokens;       // of a micro-batch on this rank, inside tensor-parallel layers
    cy_stage_slot *slots; // owned, [slot_count]
    int slot_count;
    bool split_backward; // slots can hold what backward_weight needs
} cy_stage;

// Builds the stage over an opened storage, with tables for slot_count slots. Must not be moved
// afterwards: its layers point into it.
CY_MUST_CHECK cy_status cy_stage_open(cy_stage *stage, const cy_model_context *context,
    cy_storage *storage, cy_recompute recompute, int64_t tokens, int slot_count,
    bool split_backward);
void cy_stage_close(cy_stage *stage);

// Takes the data of all slots from an arena: once from a measuring one, once for good.
void cy_stage_take_slots(cy_stage *stage, cy_arena *step);

// Forward of a micro-batch into a slot. `input` [t_outside, hidden] stays readable until backward
// is done; none where the embedding is here. With the head here, loss [1, 1] adds the token losses
// and, when `train`, the gradient of the slot's output is left in it. The output is slot->out.
CY_MUST_CHECK cy_status cy_stage_forward(cy_stage *stage, int slot, cy_view input, cy_view loss,
    const cy_micro_batch *batch, bool train, double loss_scale);

// Backward: d [t_outside, hidden] holds the gradient of the slot's output and becomes that of its
// input; where the head is here, pass slot->d_out.
CY_MUST_CHECK cy_status cy_stage_backward(
    cy_stage *stage, int slot, cy_view d, const cy_micro_batch *batch, cy_backward parts);

// The weight gradients that CY_BACKWARD_INPUT_ONLY left.
CY_MUST_CHECK cy_status cy_stage_backward_weight(
    cy_stage *stage, int slot, const cy_micro_batch *batch);

#endif
