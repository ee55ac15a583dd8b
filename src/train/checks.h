// train/checks.h: checks what a configuration reads and writes, before a run starts.
//
// Not collective. The folders that a run writes to have to be writable on the machine of rank zero,
// which makes them; their failures name the key.

#ifndef CY_TRAIN_CHECKS_H
#define CY_TRAIN_CHECKS_H

#include "config/config.h"

// Opens tokenizer, data and the checkpoint that a run of this configuration, which has no faults of
// its own, would begin with, and closes them again: what cannot be read, data too short for one
// sample, a vocabulary larger than the model's, a checkpoint of another model, tokenizer or data.
// Text is cut into tokens for that, on `threads` threads. Adds a fault each of data and checkpoint
// to those that there may be; CY_ERR_REQUEST with all lines where there is one. Not collective.
CY_MUST_CHECK cy_status cy_check_inputs(
    const cy_config *config, cy_config_errors *errors, int threads);

// CY_ERR_IO where the folder of a key ("logging.run_dir") is there and may not be written, or is
// not and the nearest one above it that is may not, or is no folder. Makes nothing.
CY_MUST_CHECK cy_status cy_check_output(const char *key, const char *folder);

// CY_ERR_REQUEST where logging.run_dir holds a config.json that is no run's, such as a model's: a
// run would write its own there.
CY_MUST_CHECK cy_status cy_check_run_config(const char *run_dir);

// Adds a fault for each folder of both kinds that a configuration, which has no faults of its own,
// names.
void cy_check_outputs(const cy_config *config, cy_config_errors *errors);

// The status that opening the folder of a key ended with. A CY_ERR_IO gets the words that
// cy_check_output has for it, or the key in front of its own where that finds nothing.
CY_MUST_CHECK cy_status cy_output_status(cy_status status, const char *key, const char *folder);

#endif
