// train/state.h: saves and loads the state of a run: parameters, optimizer, loss scale, position,
// and the residual of top-k compression.

#ifndef CY_TRAIN_STATE_H
#define CY_TRAIN_STATE_H

#include "checkpoint/identity.h"
#include "checkpoint/save.h"
#include "train/ranks.h"

#include <cyclotron/tokenizer.h>

// The progress of a run.
typedef struct cy_run_position {
    int64_t step;          // updates done
    int64_t tokens;        // trained on
    bool residual_dropped; // the checkpoint's residual is of another mesh and was not loaded
} cy_run_position;

// Passes on the status of a call whose failure ends the run. A rank that only knows that another
// rank failed (CY_ERR_PEER) waits until that rank ends the run, and then fails with its reason. If
// it did not wait, it could end the run first, without the reason.
CY_MUST_CHECK cy_status cy_state_await_reason(const cy_engine *engine, cy_status status);

// Finds where a run starts: the checkpoint that the configuration asks for, or NULL for a fresh
// start. *path is owned by the caller. *weights_only is false for a save of the run itself: a
// resumed run continues from it, however the run began.
CY_MUST_CHECK cy_status cy_state_locate(char **path, bool *weights_only, const cy_config *config);

// Loads a checkpoint, or the weights of a Hugging Face folder, into the engine and sets the
// position. Adds the bytes that this rank read to *traffic. Collective.
CY_MUST_CHECK cy_status cy_state_load(cy_engine *engine, const cy_rank *rank, const char *path,
    bool weights_only, cy_run_position *position, cy_checkpoint_traffic *traffic);

// Loads only the weights, from an open checkpoint.
CY_MUST_CHECK cy_status cy_state_load_weights(cy_engine *engine, const cy_rank *rank,
    cy_checkpoint *checkpoint, cy_checkpoint_traffic *traffic);

// Fails with CY_ERR_NOT_FINITE where a weight, a moment or a residual is not finite, or a weight
// would not be finite in the dtype of the model. All ranks name the first such tensor of the model.
// Collective; reads everything that a save writes, once.
CY_MUST_CHECK cy_status cy_state_check_finite(cy_engine *engine, const cy_rank *rank, int64_t step);

// What a checkpoint contains about the data of its run.
typedef struct cy_state_data {
    const cy_tokenizer *tokenizer; // borrowed; NULL: none
    const cy_identity *identity;   // borrowed; NULL: none
} cy_state_data;

// Writes a checkpoint, after cy_replicas_check and cy_state_check_finite. Collective. `data` may be
// NULL. *report, unless NULL, gets the bytes and times of this rank.
CY_MUST_CHECK cy_status cy_state_save(cy_engine *engine, const cy_rank *rank, cy_saver *saver,
    cy_run_position position, const cy_state_data *data, cy_save_report *report);

// ---- the residual of top-k compression
//
// The residual of a rank is the part of its own gradients that it has not sent yet. Unlike all
// other state in a checkpoint it belongs to a mesh: there is a vector for each rank, in the order
// of the rank's flat range, under a name with the rank's coordinates, the sizes of the mesh and a
// hash of the order. A run on the same mesh loads it and continues bit for bit. A run on another
// mesh drops it, which loses these gradients, and notes that. Collective calls by the rank's
// thread.

#define CY_RESIDUAL_NAME_BYTES 96

typedef struct cy_residual_state {
    char (*names)[CY_RESIDUAL_NAME_BYTES]; // owned, [count]
    cy_global_tensor *tensors;             // owned, [count]: one a rank of the world
    int count;                             // 0 without top-k compression
    cy_tensor_shard piece;                 // of this rank; `tensor` is an index into `tensors`
} cy_residual_state;

// Start from a zeroed struct; free with cy_residual_state_close.
CY_MUST_CHECK cy_status cy_residual_state_list(
    cy_residual_state *list, cy_engine *engine, const cy_rank *rank);
void cy_residual_state_close(cy_residual_state *list);

// True where the checkpoint has the residuals of all ranks of this mesh; the same on every rank.
// *residual_dropped is true where it has residuals of another mesh.
bool cy_residual_state_is_complete(
    const cy_residual_state *list, const cy_checkpoint *checkpoint, bool *residual_dropped);

#endif
