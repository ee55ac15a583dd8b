// train/trainer.h: runs a training: the loop over steps, with evaluation, checkpoints and metrics.

#ifndef CY_TRAIN_TRAINER_H
#define CY_TRAIN_TRAINER_H

#include <cyclotron/train.h>

#include "config/config.h"
#include "observe/metrics.h"

// Functions that a run calls. All of them are set, and none of them may block. Rank zero's thread
// calls the first four.
typedef struct cy_trainer_callbacks {
    void *context; // borrowed
    void (*begin)(void *context, const char *overview, int64_t first_step, int64_t last_step);
    void (*line)(void *context, const char *line); // of the steps that logging.log_frequency shows
    void (*step)(void *context, const cy_metrics *metrics); // after each step
    void (*note)(void *context, const char *line); // warnings, saves, results of evaluations
    // Called after each step, in every process of the run, by one rank's thread. A result that is
    // not 0 (a signal's number, say) ends the run after a save. The largest result counts.
    int (*should_stop)(void *context);
    // Likewise: a result that is not 0 saves, and the run goes on.
    int (*should_save)(void *context);
    void (*saving)(void *context); // a save begins that should_save of some process asked for
} cy_trainer_callbacks;

// Runs a resolved and checked configuration on a machine; returns when the run has ended. Of
// several processes that MPI started, that of rank zero fills in the summary.
CY_MUST_CHECK cy_status cy_trainer_run(const cy_config *config, const cy_config_machine *machine,
    const cy_trainer_callbacks *events, cy_train_summary *summary);

#endif
