// train/checks.h: checks what a configuration reads and writes, before a run starts.
//
// Not collective. The folders that a run writes to have to be writable on the machine of rank zero,
// which makes them; their failures name the key.

#ifndef CY_TRAIN_CHECKS_H
#define CY_TRAIN_CHECKS_H

#include "config/config.h"

// Opens the tokenizer, the data and the checkpoint with which a run of this valid configuration
// would begin, as training opens them, and closes them again. Finds files that cannot be read, data
// that is too short for one sample, a vocabulary larger than the model's, and a checkpoint of
// another model, tokenizer or data. Encodes texts on `threads` threads. Adds at most one error for
// the data and one for the checkpoint to *errors. CY_ERR_REQUEST, with the lines of all errors,
// where *errors has any.
CY_MUST_CHECK cy_status cy_check_inputs(
    const cy_config *config, cy_config_errors *errors, int threads);

// Checks the folder of a key ("logging.run_dir") and makes nothing. CY_ERR_IO where the folder may
// not be written; where it does not exist, the nearest existing path above it counts, which also
// has to be a folder.
CY_MUST_CHECK cy_status cy_check_output(const char *key, const char *folder);

// CY_ERR_REQUEST where logging.run_dir holds a config.json that no run has written, such as that of
// a model: a run would have to replace it.
CY_MUST_CHECK cy_status cy_check_run_config(const char *run_dir);

// Checks the save_dir and the run_dir of a valid configuration and adds an error for each that
// fails.
void cy_check_outputs(const cy_config *config, cy_config_errors *errors);

// Explains the status of opening the folder of a key. A CY_ERR_IO gets the text of cy_check_output,
// or, where that finds no fault, the key before its own text.
CY_MUST_CHECK cy_status cy_output_status(cy_status status, const char *key, const char *folder);

#endif
