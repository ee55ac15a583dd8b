// train/run_folder.h: what a run leaves in its folder besides checkpoints: the resolved
// configuration and the metrics.
//
// A folder belongs to one run at a time. Rank zero opens it and closes it. Where it is deleted or
// moved away meanwhile, the next line makes it again, with config.json and the lock; lines wait
// where another run has taken its place.

#ifndef CY_TRAIN_RUN_FOLDER_H
#define CY_TRAIN_RUN_FOLDER_H

#include "observe/metrics.h"
#include "observe/tensorboard.h"
#include "config/config.h"

typedef struct cy_run_folder_keeper cy_run_folder_keeper;

typedef struct cy_run_folder {
    cy_async_writer *writer;      // owned: writes all files that grow with the run
    cy_run_folder_keeper *keeper; // owned by the writer: the lock, and what is made again
    cy_metrics_file metrics;
    cy_event_file events; // of TensorBoard; its writer is NULL where logging.tensorboard is false
    int rotated;          // metrics of an earlier run are in metrics.jsonl.N; 0: there were none
    bool open;            // false: the rest has no meaning
} cy_run_folder;

// Makes logging.run_dir, holds it, writes config.json into it and opens metrics.jsonl behind
// `last_step`, and TensorBoard's file; metrics that are not continued are set aside.
// CY_ERR_REQUEST where config.json is not a run's: nothing is touched then either.
// CY_ERR_REQUEST where another run writes there: nothing of its is touched then.
CY_MUST_CHECK cy_status cy_run_folder_open(
    cy_run_folder *folder, const cy_config *config, int64_t last_step);

// Whether the folder was deleted or moved away since the last call, and made again with all that
// belongs there.
bool cy_run_folder_was_remade(cy_run_folder *folder);

// Waits at most `seconds` for lines that are not yet written, and adds to `lost`, which must be
// zeroed, what was lost, if anything. Closes the folder; one that is all zeros is closed.
void cy_run_folder_close(cy_run_folder *folder, double seconds, cy_text *lost);

#endif
