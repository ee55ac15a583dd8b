// cyclotron train: trains a model as a configuration says.
#define _POSIX_C_SOURCE 200809L

#include "base/clock.h"
#include "base/io.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "cli/signal_watch.h"
#include "observe/async_writer.h"
#include "observe/progress.h"
#include "train/ranks.h"
#include "train/trainer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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

// ---- the console: writes standard output and standard error without ever blocking the run
//
// A terminal that is stopped, a pipe that nobody reads and a full disk delay lines or lose them;
// the run goes on (observe/async_writer.h).

#define BACKLOG_BYTES ((size_t)256 << 10)
#define CLOSE_S       5

typedef struct console {
    // Owned. A thread for each stream, so that none waits for the other's reader; one for both
    // where they are the same terminal, pipe or file, and lines keep their order there.
    cy_async_writer *out_writer, *err_writer;
    int out, err;  // their targets
    bool terminal; // standard output is one
} console;

static bool is_same_file(int one, int other)
{
    struct stat of_one, of_other;
    return cy_io_fstat(one, &of_one) == 0 && cy_io_fstat(other, &of_other) == 0 &&
        of_one.st_dev == of_other.st_dev && of_one.st_ino == of_other.st_ino;
}

// False where a writer is still inside a write to standard error.
static bool finish(console *self)
{
    bool ended = true;
    if (self->err_writer != NULL) ended = cy_async_writer_finish(self->err_writer, CLOSE_S);
    if (self->out_writer != self->err_writer)
        (void)cy_async_writer_finish(self->out_writer, CLOSE_S);
    return ended;
}

static void close_writers(console *self)
{
    if (self->out_writer != self->err_writer) cy_async_writer_close(self->out_writer);
    cy_async_writer_close(self->err_writer);
}

// Starts the threads that write: call it once the signals are blocked that no such thread may get.
// SIGPIPE is ignored from then on.
CY_MUST_CHECK static cy_status console_open(console *self)
{
    const cy_async_target out = {
        .name = "standard output", .fd = STDOUT_FILENO, .backlog_bytes = BACKLOG_BYTES};
    const cy_async_target err = {
        .name = "standard error", .fd = STDERR_FILENO, .backlog_bytes = BACKLOG_BYTES};
    console opened = {.terminal = isatty(STDOUT_FILENO) == 1};
    CY_TRY(cy_async_writer_open(&opened.out_writer));
    cy_status status = CY_OK;
    if (is_same_file(STDOUT_FILENO, STDERR_FILENO)) {
        opened.err_writer = opened.out_writer;
    } else {
        status = cy_async_writer_open(&opened.err_writer);
    }
    if (status == CY_OK) status = cy_async_writer_add(opened.out_writer, &opened.out, &out);
    if (status == CY_OK) status = cy_async_writer_add(opened.err_writer, &opened.err, &err);
    if (status != CY_OK) {
        (void)finish(&opened);
        close_writers(&opened);
        return status;
    }
    fflush(stdout);
    fflush(stderr);
    signal(SIGPIPE, SIG_IGN);
    *self = opened;
    return CY_OK;
}

static void console_out(console *self, const char *text, size_t length)
{
    cy_async_write(self->out_writer, self->out, text, length);
}

static void console_err(console *self, const char *text, size_t length)
{
    cy_async_write(self->err_writer, self->err, text, length);
}

// The signal that says that standard output has no reader any more: SIGHUP where it was a terminal,
// SIGPIPE where it was a pipe. 0 while it may have a reader.
static int console_broken_by(const console *self)
{
    if (!cy_async_is_broken(self->out_writer, self->out)) return 0;
    return self->terminal ? SIGHUP : SIGPIPE;
}

static void report_lost(cy_async_writer *writer)
{
    cy_text reason = {0};
    while (cy_async_take_report(writer, &reason)) {
        cy_report_warning("%s", reason.bytes);
        reason.length = 0;
    }
    cy_text_free(&reason);
}

// A write would wait for a reader forever, and the run would never end.
static void drop_standard_error(void)
{
    const int nowhere = cy_io_open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    (void)dup2(nowhere, STDERR_FILENO);
    cy_io_close(nowhere);
}

// Writes the remaining lines, within some seconds, and reports lost lines on standard error. Where
// nobody reads standard error, later writes to it are discarded, since they would wait. Returns
// `exit_status`; where that is CY_EXIT_DONE and standard output failed, 141 or 129 for a reader
// that has gone, or CY_EXIT_FAILED for lines that could not be written.
static int console_close(console *self, int exit_status)
{
    if (!finish(self)) drop_standard_error();
    const int64_t dropped = cy_async_dropped(self->out_writer, self->out);
    const int broken_by = console_broken_by(self);
    const bool failed = cy_async_has_failed(self->out_writer, self->out);
    report_lost(self->out_writer);
    if (self->err_writer != self->out_writer) report_lost(self->err_writer);
    close_writers(self);
    if (exit_status != CY_EXIT_DONE || dropped == 0) return exit_status;
    if (broken_by != 0) return 128 + broken_by;
    if (!failed) return exit_status; // only the time to write them was over
    cy_report_error("standard output: %lld lines did not arrive", (long long)dropped);
    return CY_EXIT_FAILED;
}

// ---- the run

typedef struct shown_run {
    console console;
    cy_progress progress;
    cy_signal_watch stop;
    bool drawn; // stderr is a terminal: lines on it are drawn over
} shown_run;

static void write_progress(void *context, const char *text, size_t length)
{
    shown_run *run = context;
    console_err(&run->console, text, length);
}

static void begin(void *context, const char *overview, int64_t first_step, int64_t last_step)
{
    shown_run *run = context;
    console_err(&run->console, overview, strlen(overview));
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
        console_out(&run->console, line.bytes, line.length);
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
        console_err(&run->console, line.bytes, line.length);
    }
    cy_text_free(&line);
}

// Where standard output has no reader any more, the run stops as on the signal of that.
static int should_stop(void *context)
{
    shown_run *run = context;
    const int asked = cy_signal_watch_stop(&run->stop);
    return asked != 0 ? asked : console_broken_by(&run->console);
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
    const int shown = console_close(&run->console, CY_EXIT_DONE);
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
        if (opened == CY_OK) opened = console_open(&run.console);
        status = opened == CY_OK ? train(&config, &run) : cy_report_ranks(opened);
        cy_signal_watch_close(&run.stop);
    }
    cy_arguments_free(&arguments);
    return status;
}
