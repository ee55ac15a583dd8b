// config/check.h: the parts of cy_config_check.

#ifndef CY_CONFIG_CHECK_H
#define CY_CONFIG_CHECK_H

#include "config/errors.h"

// Mesh, model and batch: what must divide what.
void cy_config_check_sizes(
    const cy_config *config, cy_config_errors *errors, const cy_config_machine *machine);

// What strict mode asks of sizes, of a configuration that has them.
void cy_config_check_strict(const cy_config *config, cy_config_errors *errors);

// Data, folders, learning rate and logging: what a training run needs; of a file that is only made,
// without what is looked for on the disk.
void cy_config_check_run(
    const cy_config *config, cy_config_errors *errors, cy_config_purpose purpose);

// What this build cannot do.
void cy_config_check_build(
    const cy_config *config, cy_config_errors *errors, const cy_config_machine *machine);

#endif
