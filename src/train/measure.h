// train/measure.h: measures a step: the values of its metrics, over all ranks.
//
// Collective over the world: every rank makes each call, and every rank gets the same values.

#ifndef CY_TRAIN_MEASURE_H
#define CY_TRAIN_MEASURE_H

#include "data/loader.h"
#include "observe/metrics.h"
#include "train/state.h"

// A step, as one rank has seen it.
typedef struct cy_measured_step {
    cy_run_position position; // after the step
    cy_step_result result;
    double learning_rate;
    double seconds;          // of reading its microbatches and training on them
    cy_rank_traffic sent;    // by this rank
    cy_loader_counters read; // the microbatches of this rank
} cy_measured_step;

// Sets the metrics of a step. *peak_flop_s is the peak of the cores of all ranks; it is measured
// where it is 0, unless logging.measure_peak forbids it. Every logging.hash_frequency steps it also
// checks the replicas (replicas.h) and sets the hash of the parameters.
CY_MUST_CHECK cy_status cy_measure_step(cy_metrics *metrics, const cy_measured_step *step,
    cy_engine *engine, const cy_rank *rank, double *peak_flop_s);

// Sets the metrics of an evaluation after `position`: the mean loss over `tokens` tokens.
void cy_measure_evaluation(
    cy_metrics *metrics, const cy_run_position *position, double loss, int64_t tokens);

#endif
