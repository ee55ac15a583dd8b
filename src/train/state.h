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
    bool residual_dropped; // the checkpoint has gradients kept back on another mesh
                           // (residual_state.h)
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

#endif
