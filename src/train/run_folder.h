// train/run_folder.h: the run folder, logging.run_dir: the resolved configuration, metrics.jsonl
// and TensorBoard's events.
//
// A lock makes sure that one run at a time uses a folder. Rank zero opens and closes it. Where the
// folder is deleted or moved away during the run, the next line makes it again, with config.json
// and the lock. Where another run has taken its place, lines wait.

#ifndef CY_TRAIN_RUN_FOLDER_H
#define CY_TRAIN_RUN_FOLDER_H

#include "observe/sinks.h"
#include "config/config.h"

typedef struct cy_run_folder_keeper cy_run_folder_keeper;

typedef struct cy_run_folder {
    cy_async_writer *writer;      // owned: writes all files that grow with the run
    cy_run_folder_keeper *keeper; // owned by the writer: the lock, and what is made again
    int rotated; // metrics of an earlier run are in metrics.jsonl.N; 0: there were none
    bool open;   // false: the rest has no meaning
} cy_run_folder;

// Makes logging.run_dir, locks it, writes config.json into it, and adds to *sinks the file
// metrics.jsonl, continued after `last_step`, and TensorBoard's file where logging.tensorboard asks
// for it. Metrics of an earlier run, which are not continued, are renamed. The folder outlives the
// last record that is written to these sinks. CY_ERR_REQUEST, before anything is changed, where
// another run writes there or config.json is not that of a run.
CY_MUST_CHECK cy_status cy_run_folder_open(
    cy_run_folder *folder, cy_sinks *sinks, const cy_config *config, int64_t last_step);

// Whether the folder was deleted or moved away, and made again, since the last call.
bool cy_run_folder_was_remade(cy_run_folder *folder);

// Waits at most `seconds` for lines that are not yet written, and adds a report to `lost`, which
// must be zeroed, if lines were lost. Closes the folder. A zeroed folder is closed already.
void cy_run_folder_close(cy_run_folder *folder, double seconds, cy_text *lost);

#endif
