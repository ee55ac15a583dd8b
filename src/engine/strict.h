// engine/strict.h: strict mode's part of a step: whether the terms of all sums fitted, on all
// ranks alike, and the exponents that follow.
//
// A step is tried with the exponents of its sums. Where any rank met a term beyond the head room,
// all ranks do the step again from the same weights with exponents raised by the same amount; after
// a few tries the step counts as one whose gradients are not finite. Exponents of the next step
// follow from the terms of the try that fitted. Nothing here depends on how the run is split.
//
// Part of the engine: its thread, its failures. In fast mode these do nothing.

#ifndef CY_ENGINE_STRICT_H
#define CY_ENGINE_STRICT_H

#include "engine/engine.h"

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

// What the machine's fastest products reach with the engine's threads, see kernel/peak.h: strict
// ones are no measure of the machine.
CY_MUST_CHECK cy_status cy_engine_peak(const cy_engine *engine, double *flops_per_s);

// What the loss cell holds.
double cy_engine_loss(const cy_engine *engine);

#endif
