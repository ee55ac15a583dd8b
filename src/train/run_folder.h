// train/run_folder.h: what a run leaves in its folder besides checkpoints: the resolved
// configuration and the metrics.
//
// A folder belongs to one run at a time. Rank zero opens it and closes it.

#ifndef CY_TRAIN_RUN_FOLDER_H
#define CY_TRAIN_RUN_FOLDER_H

#include "observe/metrics.h"
#include "train/config.h"

typedef struct cy_run_folder {
    cy_metrics_file metrics;
    int set_aside; // metrics of an earlier run are in metrics.jsonl.N; 0: there were none
    int lock;      // owned: a descriptor
    bool open;     // false: the rest has no meaning
} cy_run_folder;

// Makes logging.run_dir, holds it, writes config.json into it and opens metrics.jsonl behind
// `last_step`; a run that begins (0) sets an earlier one's metrics aside. CY_ERR_REQUEST where
// another run writes there: nothing of its is touched then.
CY_MUST_CHECK cy_status cy_run_folder_open(
    cy_run_folder *folder, const cy_config *config, int64_t last_step);

// One that is all zeros is closed.
void cy_run_folder_close(cy_run_folder *folder);

#endif
