// optim/optimizer.h: one optimizer step over the ranges that a rank owns: the global norm of the
// gradients, clipping, AdamW.
//
// Gradients are sums over tokens; they are divided once, here, by the tokens of the global batch.
// An element that several ranks hold counts once in the norm: on the rank with copy index 0.

#ifndef CY_OPTIM_OPTIMIZER_H
#define CY_OPTIM_OPTIMIZER_H

#include "comm/group.h"
#include "model/storage.h"
#include "parallel/data/reducer.h"

// Cells in device memory that a step writes and the host reads when the step is over.
typedef struct cy_optimizer_scalars {
    cy_view sum_squares; // [1, 1] fp64, or [1, 4] CY_FX64 where gradients are that
    cy_view norm;        // [1, 1] fp64, of the divided gradients, before clipping
    cy_view scale;       // [1, 1] fp64, what the gradients are multiplied with
} cy_optimizer_scalars;

typedef struct cy_optimizer {
    cy_queue *queue;           // borrowed
    const cy_storage *storage; // borrowed
    cy_reducer *reducer;       // borrowed
    cy_group *norm_group;      // borrowed: all ranks that hold different elements
    double max_norm;           // 0: no clipping
    cy_optimizer_scalars cells;
} cy_optimizer;

void cy_optimizer_alloc(cy_optimizer *update, cy_arena *run);

// The norm and, from it, the scale; `divisor` is loss_scale times the tokens of the global batch.
CY_MUST_CHECK cy_status cy_optimizer_grad_norm(cy_optimizer *update, double divisor);

// AdamW over every owned range; parameters without decay get none.
CY_MUST_CHECK cy_status cy_optimizer_step(cy_optimizer *update, const cy_adamw_spec *spec);

#endif
