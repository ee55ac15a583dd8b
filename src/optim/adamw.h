// optim/adamw.h: the optimizer step of one rank over the parameters that it owns: their ranges, the
// global norm of the gradients, clipping, AdamW.
//
// The optimizer borrows queue, storage and sets; its scalars lie in the run arena. The
// rank's thread alone uses it. Only collectives fail.

#ifndef CY_OPTIM_ADAMW_H
#define CY_OPTIM_ADAMW_H

#include "comm/group.h"
#include "model/storage.h"
#include "parallel/data/reducer.h"

// ---- parameter ranges
//
// Reducers divide flat ranges over the ranks, and the manifest lists tensors. A parameter range
// is the part of one tensor in one owned flat range; it consists of rectangles of the global
// tensor. Initial weights, norms, the optimizer, hashes and checkpoints visit parameter ranges.

// A part of an owned range that lies in one tensor: elements [first, first + count) of the rank's
// rectangle of that tensor, in row-major order, at element `at` of the range.
typedef struct cy_param_range {
    const cy_tensor *tensor;
    int64_t first;
    int64_t count;
    int64_t at;
} cy_param_range;

typedef cy_status (*cy_param_range_visit)(
    void *context, const cy_owned_range *range, const cy_param_range *param_range);

// Calls `visit` for every parameter range of every owned range of every parameter group, in order,
// until one fails.
CY_MUST_CHECK cy_status cy_param_ranges_visit(
    const cy_storage *storage, cy_param_range_visit visit, void *context);

// The gradients of a parameter range, with their exponent where they are in fixed point.
cy_view cy_param_range_grad(
    const cy_storage *storage, const cy_owned_range *range, const cy_param_range *param_range);

// Whole rows of a rank's rectangle, or a part of one row. Element (row, col) is number
// global_first + row * param->cols + col of the global tensor.
typedef struct cy_param_block {
    int64_t at; // in the parameter range
    int64_t rows, cols;
    int64_t global_first;
} cy_param_block;

// The next rectangle of a parameter range; *done starts at 0 and counts the elements visited so
// far. Returns false when there is none. A range that begins or ends inside a row has up to three.
bool cy_param_range_next(const cy_param_range *param_range, int64_t *done, cy_param_block *part);

// ---- the step
//
// Gradients are sums over tokens; they are divided once, here, by the tokens of the global batch.
// An element that several ranks hold counts once in the norm: on the rank with copy index 0. The
// squares of each set are summed over the ranks that own different elements of that set.

// Scalars in device memory. A step writes them and the host reads them at its end.
typedef struct cy_optimizer_scalars {
    cy_view sum_squares; // [1, 1] fp64, or [1, 4] CY_FX64 where gradients are that: of all sets
    cy_view set_squares; // of each set, [set_count, 1] or [set_count, 4]; the first is sum_squares
    cy_view norm;        // [1, 1] fp64, of the divided gradients, before clipping
    cy_view scale;       // [1, 1] fp64, the factor of the gradients
} cy_optimizer_scalars;

typedef struct cy_optimizer {
    cy_queue *queue;           // borrowed
    const cy_storage *storage; // borrowed
    const cy_param_set *sets;  // borrowed, [set_count]: those of the storage
    int set_count;
    double max_norm; // 0: no clipping
    cy_optimizer_scalars cells;
} cy_optimizer;

void cy_optimizer_alloc(cy_optimizer *update, cy_arena *run);

// Computes the norm and, from it, the scale. `divisor` is the loss scale times the tokens of the
// global batch.
CY_MUST_CHECK cy_status cy_optimizer_grad_norm(cy_optimizer *update, double divisor);

// Runs AdamW over every owned range. Parameters without decay get none.
CY_MUST_CHECK cy_status cy_optimizer_step(cy_optimizer *update, const cy_adamw_spec *spec);

#endif
