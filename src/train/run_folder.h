// train/run_folder.h: what a run leaves in its folder besides checkpoints: the resolved
// configuration and the metrics.

#ifndef CY_TRAIN_RUN_FOLDER_H
#define CY_TRAIN_RUN_FOLDER_H

#include "observe/metrics.h"
#include "optim/rate.h"
#include "train/config.h"

// Makes logging.run_dir, writes config.json into it and opens metrics.jsonl behind `last_step`.
CY_MUST_CHECK cy_status cy_run_folder_open(
    cy_metrics_file *metrics, const cy_config *config, int64_t last_step);

// The learning-rate schedule that a configuration asks for.
cy_rate_spec cy_config_rate(const cy_config *config);

#endif
