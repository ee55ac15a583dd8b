// engine/pipeline.h: an engine's part of a pipeline: schedule, stages, and their runs.
//
// One code path for every size: a rank alone is a pipeline of one stage under 1f1b, which holds one
// microbatch at a time. Part of the engine (engine.h): its thread, its memory, its failures.

#ifndef CY_ENGINE_PIPELINE_H
#define CY_ENGINE_PIPELINE_H

#include "engine/engine.h"

// Makes the schedule and opens storage, executor, places and stages for this rank's segments. The
// stages have no reducer yet. On failure what is open is left to cy_engine_close_pipeline.
CY_MUST_CHECK cy_status cy_engine_open_pipeline(cy_engine *engine);
void cy_engine_close_pipeline(cy_engine *engine);

// A microbatch of the step, whose tokens lie in its place.
cy_microbatch cy_engine_microbatch(const cy_engine *engine, int64_t microbatch);

// Forward and backward of all microbatches, whose tokens are in place.
CY_MUST_CHECK cy_status cy_engine_run_pipeline(cy_engine *engine);

// Forward of the tokens in the first place alone: the loss is added on the rank with the head.
CY_MUST_CHECK cy_status cy_engine_forward_only(cy_engine *engine);

// What the loss of each token is multiplied by: with fp16 the loss scale over the tokens of a
// sequence, rounded down to a power of two, so that the scale means what it means where losses are
// means. The same on every mesh and for every size of the microbatch.
double cy_engine_loss_scale(const cy_engine *engine);

// With tied embeddings the first and the last stage hold a copy each, whose gradients are summed
// over both before either is used: before the reduction over data where that is of whole gradients,
// which then waits, and after it where each rank has a shard.
bool cy_engine_defers_embedding_grads(const cy_engine *engine);

// After the last backward: gradients become the sums over data, and over both copies.
CY_MUST_CHECK cy_status finalize_grads(cy_engine *engine);

#endif
