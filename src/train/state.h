// train/state.h: the state of a run in and out of checkpoints: parameters, optimizer, loss scale,
// position.

#ifndef CY_TRAIN_STATE_H
#define CY_TRAIN_STATE_H

#include "checkpoint/save.h"
#include "train/ranks.h"

#include <cyclotron/tokenizer.h>

// How far a run has come.
typedef struct cy_run_position {
    int64_t step;   // updates done
    int64_t tokens; // trained on
    bool left_out;  // the checkpoint has gradients kept back on another mesh (kept_back.h)
} cy_run_position;

// How the ranks of a rank's world agree on a status. `rank` must outlive it.
cy_checkpoint_ranks cy_state_ranks(const cy_rank *rank, cy_engine *engine);

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

// Writes a checkpoint, where ranks that hold copies of a parameter hold the same
// (cy_replicas_check). Collective. `tokenizer` is that of the data, or NULL; *report is
// what this rank wrote and how long it took, and may be NULL.
CY_MUST_CHECK cy_status cy_state_save(cy_engine *engine, const cy_rank *rank, cy_saver *saver,
    cy_run_position position, const cy_tokenizer *tokenizer, cy_save_report *report);

#endif
