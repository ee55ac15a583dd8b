// support/meshes.h: a small model trained on any mesh, with ranks as threads, to compare with the
// same training on one rank.

#ifndef CY_TESTS_MESHES_H
#define CY_TESTS_MESHES_H

#include "train/ranks.h"

#define CY_TEST_STEPS_MAX 64

// What a training leaves behind. Arrays hold every parameter in the manifest's order and global
// layout. `copies_differ` counts elements that ranks hold copies of with other bits.
typedef struct cy_test_training {
    int steps;
    double loss[CY_TEST_STEPS_MAX], norm[CY_TEST_STEPS_MAX];
    uint64_t hash;
    int64_t elements;
    double *grads;   // owned, [elements]: of the last step, sums over tokens
    double *weights; // owned, [elements]
    int64_t copies_differ;
    cy_traffic tp, kv, cp; // of rank zero in the last step
    cy_traffic gradient;   // likewise, the group of data and context
    size_t scratch_bytes;  // planned, of rank zero
} cy_test_training;

// Trains `steps` steps of config's mesh. The tokens of the global batch depend on their place in it
// alone. `isa` names the kernels. Fails the test when a rank fails.
void cy_test_train(cy_test_training *training, const cy_config *config, int steps, const char *isa);
void cy_test_training_close(cy_test_training *training);

// The same training on one rank, whose accumulation takes the place of data parallel ranks.
cy_config cy_test_dense(const cy_config *split);

// The largest difference of any loss.
double cy_test_loss_difference(const cy_test_training *a, const cy_test_training *b);

// The largest difference of a step's gradient norm, relative to b's.
double cy_test_norm_difference(const cy_test_training *a, const cy_test_training *b);
// Of gradients, relative to the largest gradient of their tensor.
double cy_test_gradient_difference(
    const cy_test_training *a, const cy_test_training *b, const cy_config *config);

// The largest difference of a weight tensor's final values: the 2-norm of a's less b's over the
// 2-norm of b's, of the tensor where it is worst.
double cy_test_weight_difference(
    const cy_test_training *a, const cy_test_training *b, const cy_config *config);

// The tokens of the global batch, for engines of any mesh: what a source is filled from.
typedef struct cy_test_batch {
    const cy_config *config; // borrowed
    cy_coordinates at;
    int64_t columns; // tokens of a sequence on this rank
} cy_test_batch;
cy_batch_source cy_test_batch_source(cy_test_batch *batch);

// The part of the global batch that this rank's engine takes.
cy_test_batch cy_test_batch_of(const cy_engine *engine, const cy_rank *rank);

// The optimizer of step `step`, counted from 1, of every training on a mesh.
cy_adamw_spec cy_test_adamw(double learning_rate, int step);

// Opens the engine of a rank, of one thread with the kernels that `isa` names, hands it to `use`
// and closes it. Fails with what `use` returns.
CY_MUST_CHECK cy_status cy_test_with_engine(const cy_rank *rank, const cy_config *config,
    const char *isa, cy_engine_use use, void *context);

// The same on every rank of config's mesh, as threads. `delay` NULL: over links as they are.
CY_MUST_CHECK cy_status cy_test_on_mesh(const cy_config *config, const char *isa,
    const cy_world_delay *delay, cy_engine_use use, void *context);

#endif
