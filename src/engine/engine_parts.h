// engine/engine_parts.h: what the files of the engine call of each other: its pipeline and its part
// of strict mode. Others include engine/engine.h, which states the rules for threads and failures.

#ifndef CY_ENGINE_ENGINE_PARTS_H
#define CY_ENGINE_ENGINE_PARTS_H

#include "engine/engine.h"

// ---- the pipeline: schedule, stages, and their runs
//
// One code path for every size: a rank alone is a pipeline of one stage under 1f1b, which holds one
// microbatch at a time.

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

// ---- strict mode's part of a step: whether the terms of all sums fitted, on all ranks alike, and
// the exponents that follow. In fast mode these functions do nothing.
//
// A step is tried with the exponents of its sums. Where any rank met a term beyond the head room,
// all ranks do the step again from the same weights with exponents raised by the same amount; after
// a few tries the step counts as one whose gradients are not finite. Exponents of the next step
// follow from the terms of the try that fitted. Nothing here depends on how the run is split.

CY_MUST_CHECK cy_status cy_engine_open_strict(cy_engine *engine);
void cy_engine_alloc_strict(cy_engine *engine, cy_arena *run);

// Before a try of a step.
void cy_engine_begin_try(cy_engine *engine);

// Collective. *raised, 0 at first, is by how much exponents are raised for this try. *again is true
// where the step is to be tried once more: exponents and *raised have become larger then.
// CY_ERR_NOT_FINITE, with the name of a sum, after the last try.
CY_MUST_CHECK cy_status cy_engine_end_try(
    cy_engine *engine, int64_t step, int *raised, bool *again);

// How many tries came before the one whose exponents were raised by so much.
int cy_engine_repeats(int raised);

// When the gradients are used up: the exponents of the next step.
void cy_engine_end_step(cy_engine *engine, int raised);

// Around a forward pass outside a step, which has more room than a step and is not tried again.
void cy_engine_begin_evaluation(cy_engine *engine);
CY_MUST_CHECK cy_status cy_engine_end_evaluation(cy_engine *engine);

// What the loss cell holds.
double cy_engine_loss(const cy_engine *engine);

#endif
