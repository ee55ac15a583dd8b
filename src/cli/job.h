// cli/job.h: a command's CONFIG and its --section.key=value, read and checked.

#ifndef CY_CLI_JOB_H
#define CY_CLI_JOB_H

#include "cli/options.h"
#include "config/config.h"

// What this process was given: cores, and ranks where mpirun or srun started several. Reads the
// environment.
cy_config_machine cy_machine_found(void);

// Reads arguments->positional[0] with the overrides. Returns CY_RUN_COMMAND, or the exit status
// after every fault was reported.
int cy_load_config(cy_config *config, const cy_arguments *arguments, cy_config_purpose purpose);

// Reports all faults, or the failure itself; returns the exit status.
int cy_report_config(cy_status status, const cy_config_errors *errors);

#endif
