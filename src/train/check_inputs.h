// train/check_inputs.h: what a configuration names, opened as training opens it, before anything
// is started.

#ifndef CY_TRAIN_CHECK_INPUTS_H
#define CY_TRAIN_CHECK_INPUTS_H

#include "config/config.h"

// Opens tokenizer, data and the checkpoint that a run of this configuration, which has no faults of
// its own, would begin with, and closes them again: what cannot be read, data too short for one
// sample, a vocabulary larger than the model's, a checkpoint of another model, tokenizer or data.
// Text is cut into tokens for that, on `threads` threads. Adds a fault each of data and checkpoint
// to those that there may be; CY_ERR_REQUEST with all lines where there is one. Not collective.
CY_MUST_CHECK cy_status cy_check_inputs(
    const cy_config *config, cy_config_errors *errors, int threads);

#endif
