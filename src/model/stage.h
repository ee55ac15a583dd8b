// model/stage.h: a segment of the model, run forward and backward one microbatch at a time.
//
// A whole model on one rank is one segment; a rank of a pipeline holds one or several, each a stage
// of its own. What a microbatch leaves behind lies in places that the stages of a rank share: a
// stash lives from forward to the input gradient, what is kept to the weight gradient. Where both
// are made at once the two end together. Places live in the step arena.
//
// The stage tells the reducer when it needs the weights of a unit and when it no longer does, when
// it adds to the gradients of a unit next, and when these are final for the microbatch. The reducer
// gathers parameters and sums gradients accordingly.

#ifndef CY_MODEL_STAGE_H
#define CY_MODEL_STAGE_H

#include "model/block.h"
#include "model/head.h"

typedef enum cy_recompute {
    CY_RECOMPUTE_NONE,
    CY_RECOMPUTE_SELECTIVE, // gate and up are made again
    CY_RECOMPUTE_FULL,      // only each layer's input is kept
} cy_recompute;

// How large the places are, and how many.
typedef struct cy_stage_spec {
    const cy_model_context *context; // borrowed
    cy_recompute recompute;
    int64_t tokens;      // of a microbatch on this rank, inside tensor-parallel layers
    int layers;          // of the longest segment
    bool embedding;      // one of the segments reads tokens
    bool head;           // one of them has the head
    bool split_backward; // input and weight gradients are made apart; without recomputation only
    int stashes, kept;   // places of each kind
} cy_stage_spec;

typedef struct cy_stage_slots {
    cy_stage_spec spec;
    cy_block_stash *stashes;       // owned, [stashes, layers]: views that end with the input
                                   // gradient; the others are none
    cy_view *d_out;                // owned, [stashes], [t_local, hidden] each: where the head is,
                                   // the gradient of the last layer's output
    cy_block_stash *kept;          // owned, [kept, layers]: the other views; with recompute, some
                                   // are none
    cy_block_gradients *gradients; // owned, [kept, layers], for the split backward pass
} cy_stage_slots;

CY_MUST_CHECK cy_status cy_stage_slots_open(cy_stage_slots *slots, const cy_stage_spec *spec);
void cy_stage_slots_close(cy_stage_slots *slots);

// Takes the data of all places from an arena: once from a measuring one, once for good.
void cy_stage_slots_alloc(cy_stage_slots *slots, cy_arena *step);

// Plain data; all pointers are borrowed.
typedef struct cy_stage {
    cy_stage_slots *slots;
    cy_storage *storage; // its units follow the reducers of its groups, where it has some
    cy_segment segment;
    cy_head head; // where the segment has it
    // The embedding's gradient is final after the last backward pass of this stage: no stage adds
    // to it later, and no other rank holds a copy that is summed with it first.
    bool ends_embedding;
} cy_stage;

cy_stage cy_stage_of(cy_stage_slots *slots, cy_storage *storage, const cy_segment *segment);

// One microbatch on its way through a stage.
typedef struct cy_stage_pass {
    int stash, kept; // its places
    bool last;       // of the step: the weight gradients are final after its backward pass
    cy_view input;   // [t_local, hidden], readable until the weight gradients are done; none where
                     // the segment reads tokens
    const cy_microbatch *batch; // borrowed
} cy_stage_pass;

// What the head makes of the last layer's output.
typedef struct cy_stage_loss {
    cy_view sum;  // [1, 1]: token losses are added
    bool train;   // leave the gradient of the last layer's output in the stash's d_out
    double scale; // of that gradient
} cy_stage_loss;

// Forward. `output` [t_local, hidden] of the last layer; none where the head is here, which then
// adds to `loss` instead; elsewhere that is not read and may be NULL.
CY_MUST_CHECK cy_status cy_stage_forward(
    const cy_stage *stage, const cy_stage_pass *pass, cy_view output, const cy_stage_loss *loss);

// Backward: d [t_local, hidden] holds the gradient of the output and becomes that of the input;
// where the head is here, that of the stash's d_out.
CY_MUST_CHECK cy_status cy_stage_backward(
    const cy_stage *stage, const cy_stage_pass *pass, cy_view d, cy_backward parts);

// The weight gradients that CY_BACKWARD_INPUT_ONLY left.
CY_MUST_CHECK cy_status cy_stage_backward_weight(const cy_stage *stage, const cy_stage_pass *pass);

#endif
