// train/state.h: the state of a run in and out of checkpoints: parameters, optimizer, loss scale,
// position.

#ifndef CY_TRAIN_STATE_H
#define CY_TRAIN_STATE_H

#include "checkpoint/identity.h"
#include "checkpoint/save.h"
#include "train/ranks.h"

#include <cyclotron/tokenizer.h>

// How far a run has come.
typedef struct cy_run_position {
    int64_t step;          // updates done
    int64_t tokens;        // trained on
    bool residual_dropped; // the checkpoint has a residual of another mesh
} cy_run_position;

// The status of a call that ends the run where it fails. Who has only heard that another rank
// failed (CY_ERR_PEER) waits for that rank to end the run, and fails with its reason: one that went
// on would end it first, with the news alone.
CY_MUST_CHECK cy_status cy_state_await_reason(const cy_engine *engine, cy_status status);

// Where a run starts: the checkpoint that the configuration asks for, or NULL for a fresh start.
// *path is owned by the caller. *weights_only is false for a save of the run itself, which goes on
// whatever it once began with.
CY_MUST_CHECK cy_status cy_state_locate(char **path, bool *weights_only, const cy_config *config);

// Loads what the configuration asks for from a checkpoint (or weights from a Hugging Face folder)
// into the engine and sets the position. Adds what this rank read to *traffic. Collective.
CY_MUST_CHECK cy_status cy_state_load(cy_engine *engine, const cy_rank *rank, const char *path,
    bool weights_only, cy_run_position *position, cy_checkpoint_traffic *traffic);

// Loads the weights alone, from a checkpoint that is open.
CY_MUST_CHECK cy_status cy_state_load_weights(cy_engine *engine, const cy_rank *rank,
    cy_checkpoint *checkpoint, cy_checkpoint_traffic *traffic);

// Fails with CY_ERR_NOT_FINITE, on every rank and with the first such tensor of the model, where a
// weight, a moment or what compression keeps back is not finite, or a weight would not be in the
// dtype of the model. Collective; reads what a save writes, once.
CY_MUST_CHECK cy_status cy_state_check_finite(cy_engine *engine, const cy_rank *rank, int64_t step);

// What a checkpoint keeps of the data that it was trained on.
typedef struct cy_state_data {
    const cy_tokenizer *tokenizer; // borrowed; NULL: none
    const cy_identity *identity;   // borrowed; NULL: none
} cy_state_data;

// Writes a checkpoint, where all of the state is finite (cy_state_check_finite) and ranks that hold
// copies of a parameter hold the same (cy_replicas_check). Collective. `data` NULL: none; *report
// is what this rank wrote and how long it took, and may be NULL.
CY_MUST_CHECK cy_status cy_state_save(cy_engine *engine, const cy_rank *rank, cy_saver *saver,
    cy_run_position position, const cy_state_data *data, cy_save_report *report);

// ---- the residual of top-k compression
//
// Each rank keeps back what it has not sent of its own gradients, so this state belongs to a mesh,
// unlike all else in a checkpoint: a vector a rank, in the order of the rank's flat range, under a
// name that says the rank's place, the mesh and a hash of the order. A run on the same mesh loads
// it and goes on bit for bit; any other leaves it out, which delays nothing but those gradients,
// and says so. Collective calls; the rank's thread.

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
