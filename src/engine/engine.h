// engine/engine.h: everything that one rank needs to train: its part of the model, its memory, and
// the optimizer step over them.
//
// Opening an engine plans its memory. The step runs once on a dry queue over measuring arenas,
// which gives the peak of each lifetime. The ranks of a machine then compare the sum of their peaks
// with the memory that is free. If it is enough, each rank maps one range of its size, and the same
// code places everything in it. A training step makes no allocation after that. An engine that is
// opened with `plan_only` stops before the mapping: `cyclotron plan` prints what it found.
//
// An engine is used by one thread, its rank's. All ranks make the same calls in the same order.

#ifndef CY_ENGINE_ENGINE_H
#define CY_ENGINE_ENGINE_H

#include "comm/staged.h"
#include "comm/world.h"
#include "device/device.h"
#include "kernel/dispatch.h"
#include "model/stage.h"
#include "optim/loss_scaler.h"
#include "optim/adamw.h"
#include "parallel/data/reducer.h"
#include "parallel/pipeline/executor.h"
#include "config/config.h"

// The groups of one rank. Borrowed.
typedef struct cy_engine_groups {
    cy_group *tp;
    cy_group *kv; // tp ranks that hold copies of the same kv heads; often one rank alone
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
    const char *isa; // instruction set of the kernels: "auto" or a level
    bool train;      // false: forward only
    // Parameters that lie on other ranks than the dense ones, [set_count]; borrowed. What no set
    // holds is dense: it has groups.gradient, groups.norm and the configuration's ZeRO stage.
    const cy_param_set *sets;
    int set_count;
    // Dtypes of weights for compute that are not the configuration's, [dtype_rule_count]; borrowed.
    const cy_dtype_rule *dtype_rules;
    int dtype_rule_count;
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
    size_t compression; // the error-feedback residual, and messages in flight
    size_t tables;      // positions, cells, microbatches, and pinned host memory for copies
    size_t activations; // stashes of the microbatches in flight
    size_t boundaries;  // activations and gradients that stages of a pipeline exchange
    size_t scratch;     // inside layers and kernels
    size_t total;
} cy_engine_memory;

// The source of a microbatch's tokens. It fills inputs and targets, [tokens] each, on the host.
// `microbatch` counts from 0 in each step.
typedef struct cy_batch_source {
    void *context; // borrowed
    cy_status (*fill)(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets);
} cy_batch_source;

typedef struct cy_step_result {
    double loss; // mean over all tokens of the global batch
    double grad_norm;
    bool skipped; // fp16: a gradient overflowed, and no weight was updated
    int repeats;  // strict mode: how often the step was repeated with larger exponents
} cy_step_result;

// What the host has read of a step or of an evaluation. cy_engine_loss gives the loss of either
// mode.
typedef struct cy_engine_readings {
    double loss;        // of fast mode
    int64_t loss_units; // of strict mode
    double grad_norm;
    double squares; // of one tensor's gradient, where a step is not finite
} cy_engine_readings;

typedef struct cy_engine {
    cy_engine_options options;
    cy_device *device;    // owned
    cy_staging *staging;  // owned; NULL where the host reaches the device's memory
    cy_thread_pool *pool; // owned
    cy_kernels kernels;
    cy_queue queue;
    cy_trace trace;     // owned; has spans where the options ask for a timeline
    cy_param_set *sets; // owned, [set_count]: the dense parameters, then those of the options
    int set_count;
    cy_storage storage;     // owned, with the reducers of its groups
    cy_reducer *compressed; // borrowed: the reducer that compresses; NULL without compression
    cy_optimizer update;
    cy_loss_scaler scaler; // of fp16; its scale stays 1 otherwise

    cy_engine_memory memory;
    void *mapped; // owned memory of the device, [mapped_bytes]: all arenas lie in it
    size_t mapped_bytes;
    cy_arena run, step, scratch;

    // The pipeline; a rank without others is a pipeline of one stage.
    cy_model_context context;
    cy_sums sums;           // owned: the fixed-point sums of strict mode
    cy_view amaxes;         // [1, sums.count + 1] int32: the largest term of each sum, as the bits
                            // of an fp32, and whether one exceeded its head room
    cy_schedule schedule;   // owned
    cy_executor executor;   // owned
    cy_stage_slots slots;   // owned
    cy_stage *stages;       // owned, [schedule.chunks]
    int embedding_chunk;    // the last chunk of this rank that adds to the embedding's gradient
    cy_timed_action *times; // owned, [actions of this rank]; NULL unless asked for

    int64_t tokens;           // of a microbatch on this rank
    int64_t microbatches;     // of a step on this rank
    int32_t *inputs;          // device memory, [microbatches, tokens]
    int32_t *targets;         // device memory, [microbatches, tokens]
    cy_context_tables tables; // owned: positions and spans
    const int32_t *positions; // [tokens], of the tables
    cy_view loss;             // [1, 1] fp64; CY_FX64 in strict mode

    // Pinned memory of the host: what copies to and from the device pass through.
    void *pinned; // owned
    size_t pinned_bytes;
    cy_engine_readings *readings; // in `pinned`
    uint32_t *amaxes_read;        // [sums.count + 1], in `pinned`: copies of `amaxes`
    int32_t *rows;                // [2, microbatches, tokens], in `pinned`: inputs, then targets
    cy_event rows_copied;         // the rows may be written again
} cy_engine;

// Which positions of a sequence the context-parallel ranks of a run hold.
cy_context_layout cy_engine_layout(const cy_config *config);

// Opens in place: the engine must not be moved afterwards. On failure nothing stays open;
// closing once more does nothing.
CY_MUST_CHECK cy_status cy_engine_open(cy_engine *engine, const cy_engine_options *options);
void cy_engine_close(cy_engine *engine);

// Lets the system clear the engine's pages now, each by one thread. To be called once, before the
// first weights. Results do not depend on it: without it the first step clears the pages and takes
// longer.
void cy_engine_populate_memory(cy_engine *engine);

// Makes initial weights from the seed. They do not depend on the split. Optimizer state is zero.
CY_MUST_CHECK cy_status cy_engine_initialize(cy_engine *engine);

// Writes the weights for compute from the master copies: after a load.
CY_MUST_CHECK cy_status cy_engine_sync_weights(cy_engine *engine);

// Reads all microbatches of a step into the engine, for a cy_engine_train_step without a source. An
// evaluation overwrites the first of them.
CY_MUST_CHECK cy_status cy_engine_read(cy_engine *engine, const cy_batch_source *source);

// Runs one optimizer step: forward and backward of all microbatches, sums over ranks, clipping,
// AdamW. The microbatches come from `source`, or from cy_engine_read where `source` is NULL. A loss
// or gradient that is not finite is CY_ERR_NOT_FINITE; the message names the first such tensor, and
// the masters keep their values. With fp16 an overflow skips the update instead.
CY_MUST_CHECK cy_status cy_engine_train_step(cy_engine *engine, const cy_batch_source *source,
    const cy_adamw_spec *adamw, cy_step_result *result);

// Computes the sum of the token losses of one microbatch, over the tokens of this rank alone; 0 on
// ranks of a pipeline that do not have the head. Ranks of a pipeline call it together.
CY_MUST_CHECK cy_status cy_engine_evaluate(
    cy_engine *engine, const cy_batch_source *source, int64_t microbatch, double *loss_sum);

// Computes a hash of all parameters of the model. It does not depend on how they are split.
CY_MUST_CHECK cy_status cy_engine_params_hash(cy_engine *engine, uint64_t *hash);

// Measures the peak of the machine with the engine's threads (kernel/peak.h). In strict mode it
// takes the fast products: strict ones are no measure of the machine.
CY_MUST_CHECK cy_status cy_engine_peak(const cy_engine *engine, double *flops_per_s);

#endif
