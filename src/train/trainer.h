// train/trainer.h: a whole run: the loop around the step, with evaluation, checkpoints, metrics.

#ifndef CY_TRAIN_TRAINER_H
#define CY_TRAIN_TRAINER_H

#include <cyclotron/train.h>

#include "observe/metrics.h"
#include "config/config.h"

// What the run tells whoever started it, from rank zero's thread. All functions are set.
typedef struct cy_trainer_callbacks {
    void *context; // borrowed
    void (*begin)(void *context, const char *overview, int64_t first_step, int64_t last_step);
    // Each step; `shown`: it is one of those that log_frequency asks for, or the last.
    void (*step)(void *context, const cy_step_metrics *metrics, bool shown);
    void (*note)(void *context, const char *line); // also what a validation comes to
    // Asked after each step, in every process of the run and from one rank's thread: not 0 (a
    // signal's number, say) ends the run after a save. The largest answer is the run's.
    int (*should_stop)(void *context);
    // Likewise: not 0 saves and goes on.
    int (*should_save)(void *context);
    void (*saving)(void *context); // a save that should_save of some process asked for begins
} cy_trainer_callbacks;

// Runs a resolved and checked configuration on a machine; returns when it has ended. Of several
// processes that MPI started, rank zero's fills in the summary and is told of events.
CY_MUST_CHECK cy_status cy_trainer_run(const cy_config *config, const cy_config_machine *machine,
    const cy_trainer_callbacks *events, cy_train_summary *summary);

#endif
