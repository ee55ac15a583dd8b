// model/embed.h: the first end of the model: the embedding, split over the vocabulary.

#ifndef CY_MODEL_EMBED_H
#define CY_MODEL_EMBED_H

#include "model/context.h"
#include "model/storage.h"

// y [t_local, hidden] = rows of the embedding for batch->inputs.
CY_MUST_CHECK cy_status cy_embed_forward(const cy_model_context *context, const cy_storage *storage,
    cy_view y, const cy_microbatch *batch);

// The same, with the sum on its way: *pending, which y becomes.
CY_MUST_CHECK cy_status cy_embed_start(const cy_model_context *context, const cy_storage *storage,
    cy_view y, const cy_microbatch *batch, cy_tensor_reduce_state *pending);

// Adds the embedding's gradient from dy [t_local, hidden].
CY_MUST_CHECK cy_status cy_embed_backward(const cy_model_context *context,
    const cy_storage *storage, cy_view dy, const cy_microbatch *batch);

#endif
