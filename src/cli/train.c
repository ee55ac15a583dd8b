// cyclotron train: trains as a configuration says.
#define _POSIX_C_SOURCE 200809L

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/load_config.h"
#include "cli/report.h"
#include "cli/stop.h"
#include "observe/progress.h"
#include "train/trainer.h"

#include <stdio.h>
#include <unistd.h>

static const cy_usage usage = {
    .name = "train",
    .positional = "CONFIG",
    .least = 1,
    .most = 1,
    .doc = "Trains as a configuration says; ranks are threads unless mpirun or srun started them.",
    .more = "Ctrl-C and SIGTERM end the run after the step that is under way, with a save where\n"
            "checkpoint.save_dir is set; a second one ends it at once.",
    .overrides = true,
};

typedef struct console {
    cy_progress progress;
    int64_t last_step;
    cy_stop stop;
    bool drawn; // stderr is a terminal: lines on it are drawn over
} console;

static void begin(void *context, const char *overview, int64_t first_step, int64_t last_step)
{
    console *shown = context;
    fputs(overview, stderr);
    shown->last_step = last_step;
    const cy_progress_writer writer = {.write = cy_report_progress, .terminal = shown->drawn};
    cy_progress_open(&shown->progress, &writer, "train", "steps", last_step, cy_clock_s());
    cy_progress_skip(&shown->progress, first_step - 1);
    cy_progress_update(&shown->progress, first_step - 1, cy_clock_s());
}

static void show_line(console *to, const cy_step_metrics *metrics)
{
    cy_text line = {0};
    if (to->drawn) cy_progress_clear(&to->progress);
    if (cy_metrics_add_console(&line, metrics) == CY_OK) puts(line.bytes);
    fflush(stdout);
    cy_text_free(&line);
}

// Between the lines of steps: a bar on a terminal, elsewhere a plain line each ten seconds.
static void step(void *context, const cy_step_metrics *metrics, bool shown)
{
    console *to = context;
    if (shown) show_line(to, metrics);
    cy_progress_update(&to->progress, metrics->step, cy_clock_s());
}

static void note(void *context, const char *line)
{
    console *shown = context;
    if (shown->drawn) cy_progress_clear(&shown->progress);
    fprintf(stderr, "cyclotron: %s\n", line);
}

static int should_stop(void *context)
{
    console *shown = context;
    return cy_stop_asked(&shown->stop) != 0;
}

int cy_command_train(int argc, char **argv)
{
    cy_arguments arguments;
    char nothing = 0;
    int status = cy_options_parse(&arguments, &nothing, &usage, argc, argv);
    cy_config config;
    if (status == CY_GO_ON) status = cy_load_config(&config, &arguments, CY_CONFIG_FOR_TRAIN);
    if (status == CY_GO_ON) {
        console shown = {.drawn = isatty(STDERR_FILENO) != 0};
        const cy_trainer_events events = {
            .context = &shown,
            .begin = begin,
            .step = step,
            .note = note,
            .should_stop = should_stop,
        };
        cy_train_summary summary;
        cy_stop_open(&shown.stop);
        const cy_config_machine machine = cy_machine_found();
        status = cy_report_ranks(cy_trainer_run(&config, &machine, &events, &summary));
        if (shown.drawn) cy_progress_clear(&shown.progress);
        if (status == CY_EXIT_DONE) status = cy_report_output(status);
        if (status == CY_EXIT_DONE && summary.stopped) status = 128 + cy_stop_asked(&shown.stop);
        cy_stop_close(&shown.stop);
    }
    cy_arguments_free(&arguments);
    return status;
}
