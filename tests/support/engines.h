// tests/support/engines.h: small models to train in tests.

#ifndef CY_TESTS_ENGINES_H
#define CY_TESTS_ENGINES_H

#include "engine/engine.h"
#include "train/state.h"

// A resolved configuration of a model with 2 layers, hidden 32, 4 heads, 2 kv heads, ffn 48,
// vocabulary 61 and 2 x 16 tokens a microbatch, two of them a step.
void cy_test_config(cy_config *config, cy_dtype dtype);

// One rank, one thread, the kernels called `isa`.
cy_engine_options cy_test_engine_options(const cy_config *config, const char *isa);

// A source of random tokens below `vocab`, the same at every call. *vocab must outlive it.
cy_batch_source cy_test_tokens(const cy_engine *engine);

// One rank's part of a save of an engine into a folder of checkpoints.
CY_MUST_CHECK cy_status cy_test_save_engine(
    cy_engine *engine, const cy_rank *rank, const char *folder, cy_run_position position);

// The training forward's logits [rows, vocab] of rows from `first` on of what lies in the place of
// the first microbatch. A rank alone.
cy_status cy_test_logits(cy_engine *engine, cy_view logits, int64_t first);

#endif
