// cyclotron train: trains a model as a configuration says.
#define _POSIX_C_SOURCE 200809L

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/job.h"
#include "cli/report.h"
#include "cli/signal_watch.h"
#include "observe/progress.h"
#include "train/ranks.h"
#include "train/trainer.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const cy_usage usage = {
    .name = "train",
    .positional = "CONFIG",
    .least = 1,
    .most = 1,
    .doc = "Trains as a configuration says; ranks are threads unless mpirun or srun started them.",
    .more =
        "Ctrl-C, SIGTERM, SIGHUP, SIGUSR2 and SIGXCPU end the run after the step that is under\n"
        "way, with a save where checkpoint.save_dir is set; a second one of the first three ends\n"
        "it at once. SIGUSR1 saves and goes on. Any process of the run may get them.",
    .overrides = true,
};

typedef struct shown_run {
    cy_console console;
    cy_progress progress;
    cy_signal_watch stop;
    bool drawn; // stderr is a terminal: lines on it are drawn over
} shown_run;

static void write_progress(void *context, const char *text, size_t length)
{
    shown_run *run = context;
    cy_console_err(&run->console, text, length);
}

static void begin(void *context, const char *overview, int64_t first_step, int64_t last_step)
{
    shown_run *run = context;
    cy_console_err(&run->console, overview, strlen(overview));
    const cy_progress_writer writer = {
        .write = write_progress, .context = run, .terminal = run->drawn};
    cy_progress_open(&run->progress, &writer, "train", "steps", last_step, cy_clock_s());
    cy_progress_skip(&run->progress, first_step - 1);
    cy_progress_update(&run->progress, first_step - 1, cy_clock_s());
}

static void show_line(void *context, const char *text)
{
    shown_run *run = context;
    cy_text line = {0};
    if (run->drawn) cy_progress_clear(&run->progress);
    if (cy_text_add(&line, "%s\n", text) == CY_OK) {
        cy_console_out(&run->console, line.bytes, line.length);
    }
    cy_text_free(&line);
}

// Shows progress between the lines of steps: a bar on a terminal, elsewhere a line each ten
// seconds.
static void step(void *context, const cy_metrics *metrics)
{
    shown_run *run = context;
    cy_progress_update(&run->progress, cy_metrics_count(metrics, CY_METRIC_STEP), cy_clock_s());
}

static void note(void *context, const char *text)
{
    shown_run *run = context;
    cy_text line = {0};
    if (run->drawn) cy_progress_clear(&run->progress);
    if (cy_text_add(&line, "cyclotron: %s\n", text) == CY_OK) {
        cy_console_err(&run->console, line.bytes, line.length);
    }
    cy_text_free(&line);
}

// Where standard output has no reader any more, the run stops as on the signal of that.
static int should_stop(void *context)
{
    shown_run *run = context;
    const int asked = cy_signal_watch_stop(&run->stop);
    return asked != 0 ? asked : cy_console_broken_by(&run->console);
}

static int should_save(void *context)
{
    shown_run *run = context;
    return cy_signal_watch_save(&run->stop);
}

static void saving(void *context)
{
    shown_run *run = context;
    cy_signal_watch_saving(&run->stop);
}

static int train(const cy_config *config, shown_run *run)
{
    const cy_trainer_callbacks events = {
        .context = run,
        .begin = begin,
        .line = show_line,
        .step = step,
        .note = note,
        .should_stop = should_stop,
        .should_save = should_save,
        .saving = saving,
    };
    cy_train_summary summary;
    const cy_config_machine machine = cy_machine_found();
    const cy_status trained = cy_trainer_run(config, &machine, &events, &summary);
    if (run->drawn) cy_progress_clear(&run->progress);
    const int shown = cy_console_close(&run->console, CY_EXIT_DONE);
    const int status = cy_report_ranks(trained);
    if (status != CY_EXIT_DONE) return status;
    return summary.stopped > 0 ? 128 + summary.stopped : shown;
}

int cy_command_train(int argc, char **argv)
{
    cy_arguments arguments;
    char nothing = 0;
    int status = cy_options_parse(&arguments, &nothing, &usage, argc, argv);
    cy_config config;
    if (status == CY_RUN_COMMAND) status = cy_load_config(&config, &arguments, CY_CONFIG_FOR_TRAIN);
    if (status == CY_RUN_COMMAND) {
        shown_run run = {.drawn = isatty(STDERR_FILENO) != 0};
        const cy_config_machine machine = cy_machine_found();
        cy_signal_watch_open(&run.stop, true);
        cy_status opened = cy_ranks_check_room(&config, &machine); // before threads take of it
        if (opened == CY_OK) opened = cy_console_open(&run.console);
        status = opened == CY_OK ? train(&config, &run) : cy_report_ranks(opened);
        cy_signal_watch_close(&run.stop);
    }
    cy_arguments_free(&arguments);
    return status;
}
