// Writes a run's standard output and standard error from threads of their own.
#define _POSIX_C_SOURCE 200809L
#include "cli/console.h"

#include "base/io.h"
#include "cli/report.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG_BYTES ((size_t)256 << 10)
#define CLOSE_S       5

static bool is_same_file(int one, int other)
{
    struct stat of_one, of_other;
    return cy_io_fstat(one, &of_one) == 0 && cy_io_fstat(other, &of_other) == 0 &&
        of_one.st_dev == of_other.st_dev && of_one.st_ino == of_other.st_ino;
}

// False where a writer is still inside a write to standard error.
static bool finish(cy_console *console)
{
    bool ended = true;
    if (console->err_writer != NULL) ended = cy_async_writer_finish(console->err_writer, CLOSE_S);
    if (console->out_writer != console->err_writer)
        (void)cy_async_writer_finish(console->out_writer, CLOSE_S);
    return ended;
}

static void close_writers(cy_console *console)
{
    if (console->out_writer != console->err_writer) cy_async_writer_close(console->out_writer);
    cy_async_writer_close(console->err_writer);
}

cy_status cy_console_open(cy_console *console)
{
    const cy_async_target out = {
        .name = "standard output", .fd = STDOUT_FILENO, .backlog_bytes = BACKLOG_BYTES};
    const cy_async_target err = {
        .name = "standard error", .fd = STDERR_FILENO, .backlog_bytes = BACKLOG_BYTES};
    cy_console opened = {.terminal = isatty(STDOUT_FILENO) == 1};
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
    *console = opened;
    return CY_OK;
}

void cy_console_out(cy_console *console, const char *text, size_t length)
{
    cy_async_write(console->out_writer, console->out, text, length);
}

void cy_console_err(cy_console *console, const char *text, size_t length)
{
    cy_async_write(console->err_writer, console->err, text, length);
}

int cy_console_broken_by(const cy_console *console)
{
    if (!cy_async_is_broken(console->out_writer, console->out)) return 0;
    return console->terminal ? SIGHUP : SIGPIPE;
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

int cy_console_close(cy_console *console, int exit_status)
{
    if (!finish(console)) drop_standard_error();
    const int64_t dropped = cy_async_dropped(console->out_writer, console->out);
    const int broken_by = cy_console_broken_by(console);
    const bool failed = cy_async_has_failed(console->out_writer, console->out);
    report_lost(console->out_writer);
    if (console->err_writer != console->out_writer) report_lost(console->err_writer);
    close_writers(console);
    if (exit_status != CY_EXIT_DONE || dropped == 0) return exit_status;
    if (broken_by != 0) return 128 + broken_by;
    if (!failed)
        return exit_status; // lines that were in nobody's way were dropped for want of time
    cy_report_error("standard output: %lld lines did not arrive", (long long)dropped);
    return CY_EXIT_FAILED;
}
