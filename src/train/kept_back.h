// train/kept_back.h: what top-k compression keeps back, in and out of checkpoints.
//
// Each rank keeps back what it has not sent of its own gradients, so this state belongs to a mesh,
// unlike all else in a checkpoint: a vector a rank, in the order of the rank's flat range, under a
// name that says the rank's place, the mesh and a hash of the order. A run on the same mesh loads
// it and goes on bit for bit; any other leaves it out, which delays nothing but those gradients,
// and says so. Collective calls; the rank's thread.

#ifndef CY_TRAIN_KEPT_BACK_H
#define CY_TRAIN_KEPT_BACK_H

#include "checkpoint/checkpoint.h"
#include "train/ranks.h"

#define CY_KEPT_BACK_NAME_BYTES 96

typedef struct cy_kept_back {
    char (*names)[CY_KEPT_BACK_NAME_BYTES]; // owned, [count]
    cy_global_tensor *tensors;              // owned, [count]: one a rank of the world
    int count;                              // 0 where nothing is kept back
    cy_piece piece;                         // this rank's; `tensor` counts in `tensors`
} cy_kept_back;

// Start from a zeroed struct; free with cy_kept_back_close.
CY_MUST_CHECK cy_status cy_kept_back_list(
    cy_kept_back *list, cy_engine *engine, const cy_rank *rank);
void cy_kept_back_close(cy_kept_back *list);

// True where the checkpoint has the parts of all ranks of this mesh: the same on every rank.
// *left_out: there is something in the checkpoint that no rank here can use.
bool cy_kept_back_is_there(
    const cy_kept_back *list, const cy_checkpoint *checkpoint, bool *left_out);

#endif
