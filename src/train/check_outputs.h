// train/check_outputs.h: the folders that a run writes to, looked at before one is made, and named
// by their keys where one cannot be.
//
// Not collective: rank zero makes these folders, on its machine they have to be writable.

#ifndef CY_TRAIN_CHECK_OUTPUTS_H
#define CY_TRAIN_CHECK_OUTPUTS_H

#include "config/config.h"

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
