// train/residual_state.h: what top-k compression keeps back, in and out of checkpoints.
//
// Each rank keeps back what it has not sent of its own gradients, so this state belongs to a mesh,
// unlike all else in a checkpoint: a vector a rank, in the order of the rank's flat range, under a
// name that says the rank's place, the mesh and a hash of the order. A run on the same mesh loads
// it and goes on bit for bit; any other leaves it out, which delays nothing but those gradients,
// and says so. Collective calls; the rank's thread.

#ifndef CY_TRAIN_RESIDUAL_STATE_H
#define CY_TRAIN_RESIDUAL_STATE_H

#include "checkpoint/checkpoint.h"
#include "train/ranks.h"

#define CY_RESIDUAL_NAME_BYTES 96

typedef struct cy_residual_state {
    char (*names)[CY_RESIDUAL_NAME_BYTES]; // owned, [count]
    cy_global_tensor *tensors;             // owned, [count]: one a rank of the world
    int count;                             // 0 where nothing is kept back
    cy_tensor_shard piece;                 // this rank's; `tensor` counts in `tensors`
} cy_residual_state;

// Start from a zeroed struct; free with cy_residual_state_close.
CY_MUST_CHECK cy_status cy_residual_state_list(
    cy_residual_state *list, cy_engine *engine, const cy_rank *rank);
void cy_residual_state_close(cy_residual_state *list);

// True where the checkpoint has the parts of all ranks of this mesh: the same on every rank.
// *residual_dropped: there is something in the checkpoint that no rank here can use.
bool cy_residual_state_is_complete(
    const cy_residual_state *list, const cy_checkpoint *checkpoint, bool *residual_dropped);

#endif
