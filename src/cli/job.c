// Finds what the launcher gave this process, reads its configuration, and reports failures for all
// of a job.

#define _GNU_SOURCE
#include "cli/job.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/platform.h"
#include "cli/report.h"
#include "comm/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- what this process was given

// The first of these variables that holds a count above 0; 0 where none does.
static int count_from(const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        const char *text = getenv(names[i]);
        const long value = text != NULL ? strtol(text, NULL, 10) : 0;
        if (value > 0 && value < 1 << 24) return (int)value;
    }
    return 0;
}

// The value of the first of these variables that is set; NULL where none is.
static const char *variable_from(const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (getenv(names[i]) != NULL) return getenv(names[i]);
    }
    return NULL;
}

cy_config_machine cy_machine_found(void)
{
    static const char *const sizes[] = {
        "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"};
    static const char *const ranks[] = {
        "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    static const char *const neighbours[] = {
        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"};
    cy_config_machine machine = {.cores = cy_cores_allowed(), .left_behind = cy_report_left_behind};
    // A batch script of Slurm has a SLURM_PROCID too, but is no step: srun did not start it.
    const int launchers = getenv("SLURM_STEP_ID") != NULL ? CY_COUNT(ranks) : CY_COUNT(ranks) - 1;
    machine.under_mpi = variable_from(ranks, launchers) != NULL;
    if (!machine.under_mpi) return machine;
    machine.world = count_from(sizes, CY_COUNT(sizes));
    machine.rank = count_from(ranks, launchers);
    // The last name is Slurm's own. Where it is the only one set, no launcher has connected the
    // tasks.
    machine.unwired = variable_from(ranks, CY_COUNT(ranks) - 1) == NULL;
    if (machine.unwired && machine.world == 1) {
        // A single task that no launcher connects is a process like any other.
        return (cy_config_machine){.cores = machine.cores, .left_behind = machine.left_behind};
    }
    // A launcher that binds gives each rank cores of its own.
    const bool bound = machine.cores < sysconf(_SC_NPROCESSORS_ONLN);
    machine.sharing = bound ? 1 : count_from(neighbours, CY_COUNT(neighbours));
    return machine;
}

// ---- when this process began

// Field 22 of /proc/self/stat: clock ticks since the system booted.
#define START_FIELD 22

// The field after the process's name, which may hold spaces, is number 3.
static double start_since_boot_s(const char *stat)
{
    const char *at = strrchr(stat, ')');
    if (at == NULL) return -1;
    for (int field = 2; field < START_FIELD; field++) {
        at = strchr(at + 1, ' ');
        if (at == NULL) return -1;
    }
    return strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
}

double cy_process_start_s(void)
{
    const double now = cy_clock_s();
    struct timespec boot;
    cy_text stat = {0};
    if (cy_file_read(&stat, "/proc/self/stat", 4096) != CY_OK) return now;
    const double start = start_since_boot_s(stat.bytes);
    cy_text_free(&stat);
    if (start < 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return now;
    const double age = (double)boot.tv_sec + (double)boot.tv_nsec * 1e-9 - start;
    return age > 0 ? now - age : now;
}

// ---- failures of a job

// How long a rank waits for rank 0 to report what both have met.
#define RANK_ZERO_S 5

// How long a rank that ends the job waits for its launcher to read the reason.
#define LAUNCHER_MS 5000

void cy_report_leave_to_rank_zero(void)
{
    if (cy_machine_found().rank > 0 && !cy_world_has_begun()) sleep(RANK_ZERO_S);
}

// Waits until the launcher has read all of standard error from its pipe, or until the time is over:
// the launcher drops what it has not read when the job ends.
static void await_launcher(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct stat info;
    int unread = 0;
    fflush(stderr);
    if (cy_io_fstat(STDERR_FILENO, &info) != 0 || !S_ISFIFO(info.st_mode)) return;
    for (int ms = 0; ms < LAUNCHER_MS; ms++) {
        if (ioctl(STDERR_FILENO, FIONREAD, &unread) != 0 || unread == 0) return;
        nanosleep(&pause, NULL);
    }
}

int cy_report_ranks(cy_status status)
{
    if (status != CY_OK && !cy_world_has_begun()) {
        cy_report_leave_to_rank_zero();
        const int rank = cy_machine_found().rank;
        if (rank > 0) cy_error_prefix("rank %d: ", rank);
    }
    const int exit_status = cy_report_status(status);
    if (status == CY_OK) return exit_status;
    if (cy_world_has_begun()) await_launcher();
    cy_world_end_job(exit_status);
    return exit_status;
}

void cy_report_left_behind(cy_status status)
{
    const int exit_status = cy_report_ranks(status);
    fflush(stdout);
    _exit(exit_status); // no destructor runs beside the rank
}

// ---- the configuration

int cy_report_config(cy_status status, const cy_config_errors *errors)
{
    if (status != CY_ERR_REQUEST || errors->count == 0) return cy_report_status(status);
    cy_report_error("%s", errors->lines.bytes);
    return CY_EXIT_REQUEST;
}

int cy_load_config(cy_config *config, const cy_arguments *arguments, cy_config_purpose purpose)
{
    const cy_config_machine machine = cy_machine_found();
    cy_config_errors errors = {0};
    const cy_status status = cy_config_load(config, &errors, arguments->positional[0],
        arguments->overrides, arguments->override_count, purpose, &machine);
    int exit_status = CY_RUN_COMMAND;
    if (status != CY_OK) {
        cy_report_leave_to_rank_zero();
        exit_status = cy_report_config(status, &errors);
    }
    cy_config_errors_free(&errors);
    return exit_status;
}
