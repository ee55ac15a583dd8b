// model/head.h: the two ends of the model, split over the vocabulary: the embedding, and the final
// norm with the output projection and the loss.

#ifndef CY_MODEL_HEAD_H
#define CY_MODEL_HEAD_H

#include "model/context.h"
#include "model/storage.h"

// ---- embedding

// Starts y [t_local, hidden] = rows of the embedding for batch->inputs: *pending is the sum that y
// becomes.
CY_MUST_CHECK cy_status cy_embed_start(const cy_model_context *context, const cy_storage *storage,
    cy_view y, const cy_microbatch *batch, cy_tensor_reduce_state *pending);

// Adds the embedding's gradient from dy [t_local, hidden].
CY_MUST_CHECK cy_status cy_embed_backward(const cy_model_context *context,
    const cy_storage *storage, cy_view dy, const cy_microbatch *batch);

// ---- output head
//
// The head works on tiles of tokens: logits of a tile, its loss, the logits' gradient and both
// products that follow from it, before the next tile. The logits of all tokens never exist.

// Tokens whose logits exist at one time.
#define CY_HEAD_TILE CY_TENSOR_CHUNK_ROWS

typedef struct cy_head {
    const cy_model_context *context; // borrowed
    const cy_storage *storage;       // borrowed
    int norm_unit;                   // the unit of the final norm
    int matrix_unit;                 // the unit of the output matrix: the embedding's when tied
} cy_head;

// loss [1, 1] adds the sum of token losses of x [t_local, hidden]. Where dx is given, it becomes
// loss_scale times the gradient of that sum, and the head's weight gradients are added.
CY_MUST_CHECK cy_status cy_head_forward(const cy_head *head, cy_view loss, cy_view dx, cy_view x,
    const cy_microbatch *batch, double loss_scale);

// logits [t, this rank's part of the vocabulary] in the sum dtype, of x [t_local, hidden]: what a
// sampler reads.
CY_MUST_CHECK cy_status cy_head_logits(const cy_head *head, cy_view logits, cy_view x);

#endif
