// cli/job.h: the job that this process is part of, and the configuration that a command was given.
//
// Nothing here keeps state: what the launcher says stands in the environment.

#ifndef CY_CLI_JOB_H
#define CY_CLI_JOB_H

#include "cli/options.h"
#include "config/config.h"

// What this process was given: cores, and ranks where mpirun or srun started several. Reads the
// environment.
cy_config_machine cy_machine_found(void);

// When this process began, in the seconds of cy_clock_s(), to a hundredth; the present where the
// system does not tell.
double cy_process_start_s(void);

// Reads arguments->positional[0] with the overrides. Returns CY_RUN_COMMAND, or the exit status
// after every fault was reported.
int cy_load_config(cy_config *config, const cy_arguments *arguments, cy_config_purpose purpose);

// Reports all faults of a configuration, or the failure itself; returns the exit status.
int cy_report_config(cy_status status, const cy_config_errors *errors);

// A failure before the processes of a job have met mostly occurs in all of them, and one report is
// enough. In ranks other than 0 this sleeps for some seconds, in which rank 0 reports the failure
// and the launcher ends the job. It returns where the rank is alone with its failure, and in rank
// 0.
void cy_report_leave_to_rank_zero(void);

// As cy_report_status, and then ends the other processes of an MPI job; one report for all of them.
int cy_report_ranks(cy_status status);

// As cy_report_ranks, and then ends the process: for a failure while a rank still uses the memory
// of this process.
void cy_report_left_behind(cy_status status);

#endif
