// engine/engine_parts.h: functions that the files of the engine share: its pipeline and its part of
// strict mode. Other folders include engine/engine.h, whose rules for threads and failures hold.

#ifndef CY_ENGINE_ENGINE_PARTS_H
#define CY_ENGINE_ENGINE_PARTS_H

#include "engine/engine.h"

// ---- the pipeline: schedule, stages, and their runs
//
// One code path for every size: a rank alone is a pipeline of one stage under 1f1b, which holds one
// microbatch at a time.

// Makes the schedule and opens storage, executor, slots and stages for this rank's segments. The
// stages have no reducer yet. On failure cy_engine_close_pipeline closes what is open.
CY_MUST_CHECK cy_status cy_engine_open_pipeline(cy_engine *engine);
void cy_engine_close_pipeline(cy_engine *engine);

// The tokens of a microbatch of the step, which cy_engine_read has read.
cy_microbatch cy_engine_microbatch(const cy_engine *engine, int64_t microbatch);

// Runs forward and backward of all microbatches, which cy_engine_read has read.
CY_MUST_CHECK cy_status cy_engine_run_pipeline(cy_engine *engine);

// Runs a forward pass of the first microbatch. The rank with the head adds its loss to the cell.
CY_MUST_CHECK cy_status cy_engine_forward_only(cy_engine *engine);

// The factor of each token's loss. With fp16 it is the loss scale divided by the tokens of a
// sequence, rounded down to a power of two: the loss scale is defined for mean losses, and losses
// here are sums. It is the same on every mesh and for every size of the microbatch.
double cy_engine_loss_scale(const cy_engine *engine);

// With tied embeddings the first and the last stage hold a copy each, and the gradients of both
// copies must be summed before either is used. Where the reduction over data takes whole gradients,
// this sum comes before the reduction, which is deferred until then; where it leaves shards, the
// sum comes after it. True in the first case.
bool cy_engine_defers_embedding_grads(const cy_engine *engine);

// After the last backward pass: gradients become sums over data, and over both copies of a tied
// embedding.
CY_MUST_CHECK cy_status cy_engine_finalize_grads(cy_engine *engine);

// ---- strict mode: the tries of a step. In fast mode these functions do nothing.
//
// A step is tried with the exponents of its sums. Where any rank met a term beyond the head room,
// all ranks repeat the step from the same weights with exponents raised by the same amount. After a
// few tries the step fails as one whose gradients are not finite. The exponents of the next step
// follow from the terms of the try that fitted. Nothing here depends on how the run is split.

CY_MUST_CHECK cy_status cy_engine_open_strict(cy_engine *engine);
void cy_engine_alloc_strict(cy_engine *engine, cy_arena *run);

// Before a try of a step.
void cy_engine_begin_try(cy_engine *engine);

// After a try: takes the largest terms over all ranks, in device memory.
CY_MUST_CHECK cy_status cy_engine_reduce_amaxes(cy_engine *engine);

// After that, once the host has read the largest terms. *raised, 0 at first, counts the bits by
// which exponents are raised in this try. *again: the step must be tried once more, with the
// exponents and *raised that the call has increased. After the last try CY_ERR_NOT_FINITE with the
// name of a sum.
CY_MUST_CHECK cy_status cy_engine_end_try(
    cy_engine *engine, int64_t step, int *raised, bool *again);

// The number of tries before the one whose exponents were raised by so many bits.
int cy_engine_repeats(int raised);

// After the update: sets the exponents of the next step.
void cy_engine_end_step(cy_engine *engine, int raised);

// Before and after a forward pass outside a step: after it, once the host has read the largest
// terms. It has more head room than a step and is not tried again.
void cy_engine_begin_evaluation(cy_engine *engine);
CY_MUST_CHECK cy_status cy_engine_end_evaluation(cy_engine *engine);

// The loss that the host has read last.
double cy_engine_loss(const cy_engine *engine);

#endif
