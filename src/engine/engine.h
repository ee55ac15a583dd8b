// engine/engine.h: everything that one rank needs to train: its part of the model, its memory, and
// the optimizer step over them.
//
// Opening an engine plans it: the step runs once on a dry queue over measuring arenas, which gives
// the peak of each lifetime; where the machine has that free for all ranks on it
// (engine/memory_check.h), one range of that size is mapped, and the same code places everything in
// it. A training step makes no allocation after that. An engine that is opened with `plan_only`
// stops before the mapping: `cyclotron plan` prints what it found.
//
// An engine is used by one thread, its rank's. All ranks make the same calls in the same order.

#ifndef CY_ENGINE_ENGINE_H
#define CY_ENGINE_ENGINE_H

#include "comm/world.h"
#include "kernel/dispatch.h"
#include "model/stage.h"
#include "optim/loss_scaler.h"
#include "optim/adamw.h"
#include "parallel/data/reducer.h"
#include "parallel/pipeline/executor.h"
#include "config/config.h"

// The groups of one rank, and where it stands in them. Borrowed.
typedef struct cy_engine_groups {
    cy_group *tp;
    cy_group *kv; // tp ranks that hold copies of the same kv heads; mostly one rank alone
    cy_group *cp;
    cy_group *pp;
    cy_group *embedding; // first and last stage of a pipeline; elsewhere the rank alone
    cy_group *gradient;  // cp x dp: other tokens, the same parameters
    cy_group *norm;      // ranks that hold different elements
    cy_group *world;
} cy_engine_groups;

// The groups of a run of one rank.
cy_engine_groups cy_engine_groups_self(void);

typedef struct cy_engine_options {
    const cy_config *config; // borrowed, resolved and checked
    cy_engine_groups groups;
    cy_world *world; // borrowed; NULL for one rank alone
    int threads;     // of this rank
    int first_core;  // -1: not pinned
    bool spin;       // ranks do not outnumber the cores
    const char *isa; // of the kernels, or of strict mode's: "auto", a level
    bool train;      // false: forward only
    bool plan_only;
    bool trace;   // keep a timeline
    bool measure; // keep what each action of the last step's schedule took
} cy_engine_options;

// Bytes by kind, of this rank.
typedef struct cy_engine_memory {
    size_t weights; // for compute
    size_t gradients;
    size_t optimizer;   // master copies and moments
    size_t units;       // whole units in use, where weights or gradients are kept as shards
    size_t compression; // gradients that were kept back, and messages on their way
    size_t tables;      // positions, cells, microbatches
    size_t activations; // stashes of the microbatches in flight
    size_t boundaries;  // what travels between the stages of a pipeline
    size_t scratch;     // inside layers and kernels
    size_t total;
} cy_engine_memory;

// Where the tokens of a microbatch come from: fills inputs and targets, [tokens] each, on the
// host. `microbatch` counts within the step.
typedef struct cy_batch_source {
    void *context; // borrowed
    cy_status (*fill)(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets);
} cy_batch_source;

typedef struct cy_step_result {
    double loss; // mean over all tokens of the global batch
    double grad_norm;
    bool skipped; // fp16: an overflow, and no update
    int repeats;  // strict mode: how often the step was done again, with larger exponents
} cy_step_result;

typedef struct cy_engine {
    cy_engine_options options;
    cy_thread_pool *pool; // owned
    cy_kernels kernels;
    cy_queue queue;
    cy_trace trace;      // owned; without spans unless asked for
    cy_storage storage;  // owned
    cy_reducer *reducer; // owned
    cy_optimizer update;
    cy_loss_scaler scaler; // of fp16; its scale stays 1 otherwise

    cy_engine_memory memory;
    void *mapped; // owned, all arenas lie in it
    cy_arena run, step, scratch;

    // The pipeline; a rank alone is one of one stage (engine/pipeline.h).
    cy_model_context context;
    cy_sums sums;           // owned: strict mode's, see engine/strict.h
    cy_view amaxes;         // [1, sums.count + 1] int64: what the ranks tell each other of them
    cy_schedule schedule;   // owned
    cy_executor executor;   // owned
    cy_stage_slots slots;   // owned
    cy_stage *stages;       // owned, [schedule.chunks]
    int embedding_chunk;    // the last of this rank's that adds to the embedding's gradient
    cy_timed_action *times; // owned, [actions of this rank]; NULL unless asked for

    int64_t tokens;           // of a microbatch on this rank
    int64_t microbatches;     // of a step on this rank
    int32_t *inputs;          // [microbatches, tokens]
    int32_t *targets;         // [microbatches, tokens]
    cy_context_tables tables; // owned: positions and spans
    const int32_t *positions; // [tokens], of the tables
    cy_view loss;             // [1, 1] fp64; CY_FX64 in strict mode
} cy_engine;

// Which positions of a sequence the context-parallel ranks of a run hold.
cy_context_layout cy_engine_layout(const cy_config *config);

// Opens in place: the engine must not be moved afterwards. On failure nothing stays open;
// closing once more does nothing.
CY_MUST_CHECK cy_status cy_engine_open(cy_engine *engine, const cy_engine_options *options);
void cy_engine_close(cy_engine *engine);

// Has the system clear the engine's pages now, each by one thread: once, before the first weights.
// Not needed for what is computed; a first step that clears them on its way takes longer.
void cy_engine_populate_memory(cy_engine *engine);

// Fresh weights from the seed; the same whatever the split. Optimizer state is zero.
CY_MUST_CHECK cy_status cy_engine_initialize(cy_engine *engine);

// Writes the weights for compute from the master copies: after a load.
CY_MUST_CHECK cy_status cy_engine_sync_weights(cy_engine *engine);

// Reads all microbatches of a step into the engine, for a train_step without a source. An
// evaluation takes their place.
CY_MUST_CHECK cy_status cy_engine_read(cy_engine *engine, const cy_batch_source *source);

// One optimizer step on what `source` gives, or on what was read where it is NULL: all
// microbatches, forward and backward, sums over ranks, clipping, AdamW. A loss or gradient that is
// not finite is CY_ERR_NOT_FINITE and names the first such tensor; the masters are then as before.
// (With fp16 an overflow skips the update instead.)
CY_MUST_CHECK cy_status cy_engine_train_step(cy_engine *engine, const cy_batch_source *source,
    const cy_adamw_spec *adamw, cy_step_result *result);

// The sum of token losses of one microbatch, over the tokens of this rank alone; 0 on ranks of a
// pipeline that do not have the head. Ranks of a pipeline call it together.
CY_MUST_CHECK cy_status cy_engine_evaluate(
    cy_engine *engine, const cy_batch_source *source, int64_t microbatch, double *loss_sum);

// A hash of all parameters of the model that does not depend on how they are split.
CY_MUST_CHECK cy_status cy_engine_params_hash(cy_engine *engine, uint64_t *hash);

// What the machine's fastest products reach with the engine's threads, see kernel/peak.h: strict
// ones are no measure of the machine.
CY_MUST_CHECK cy_status cy_engine_peak(const cy_engine *engine, double *flops_per_s);

#endif
