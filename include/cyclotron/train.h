// cyclotron/train.h: training from a configuration, for programs that embed the library.
//
// cy_train runs all ranks of the configuration as threads of this process and returns when the run
// has ended. Callbacks come from rank zero's thread, which is the caller's where there is one rank;
// they must not block for long, and what they are given is borrowed for the call. One run at a time
// uses a run folder or a folder of checkpoints.
//
// Where mpirun or srun started this process as one of several, say so in the request: every process
// calls cy_train and runs its ranks; only rank zero's has callbacks called, but for should_stop,
// and a summary filled in, but for its member stopped. When all have returned, all may train again.
// A failure is returned in one process, which has to end with a status other than 0, and that ends
// the others; or, where the request says return_failures, in every process, and all may train
// again.

#ifndef CYCLOTRON_TRAIN_H
#define CYCLOTRON_TRAIN_H

#include <cyclotron/status.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What one optimizer step was like.
typedef struct cy_train_step {
    int64_t step;             // from 1
    int64_t tokens;           // trained on so far, in all runs of this model
    double loss;              // mean over the tokens of the global batch
    double grad_norm;         // of all parameters together, before clipping
    double learning_rate;     // that this step used
    double seconds;           // that it took
    double tokens_per_second; // of all ranks together
} cy_train_step;

// What to train, and whom to tell.
typedef struct cy_train_request {
    const char *config;           // borrowed: the path of the configuration
    const char *const *overrides; // borrowed: "section.key=value" each
    int override_count;           // how many of them
    int under_mpi;                // not 0: this process is one of several ranks
    void *context;                // borrowed: for the callbacks, each of which may be NULL
    void (*on_step)(void *context, const cy_train_step *step); // after each optimizer step
    // What the program prints on stdout: a line each logging.log_frequency steps.
    void (*on_line)(void *context, const char *line);
    void (*on_note)(void *context, const char *line); // what it prints on stderr
    // Asked once a step, in every process; where one returns more than 0 the run saves and ends.
    int (*should_stop)(void *context);
    int return_failures; // not 0: under MPI a failure is returned in every process
} cy_train_request;

// How far a run came.
typedef struct cy_train_summary {
    int64_t step;    // the last one done
    int64_t tokens;  // trained on, in all runs of this model
    double loss;     // of that step
    double val_loss; // of the last evaluation; NaN where there was none
    int stopped;     // 0, or what should_stop returned when it ended the run
} cy_train_summary;

// CY_ERR_REQUEST: every fault of the configuration, one a line. CY_ERR_NOT_FINITE: a loss or
// gradient that is no number, with the step and the first such tensor. CY_ERR_PEER: another rank
// failed. Files fail as files do (CY_ERR_IO, CY_ERR_CORRUPT), except that a save that the file
// system fails, also the last one, is told to on_note and the run goes on. On failure *summary
// tells how far it came.
CY_API CY_MUST_CHECK cy_status cy_train(const cy_train_request *request, cy_train_summary *summary);

#ifdef __cplusplus
}
#endif

#endif
