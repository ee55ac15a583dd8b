// Writes a run's standard output and standard error from a thread of its own (see console.h).
#define _POSIX_C_SOURCE 200809L
#include "cli/console.h"

#include "cli/report.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define BACKLOG_BYTES ((size_t)256 << 10)
#define CLOSE_S       5

cy_status cy_console_open(cy_console *console)
{
    const cy_async_target out = {
        .name = "standard output", .fd = STDOUT_FILENO, .backlog_bytes = BACKLOG_BYTES};
    const cy_async_target err = {
        .name = "standard error", .fd = STDERR_FILENO, .backlog_bytes = BACKLOG_BYTES};
    cy_console opened = {0};
    CY_TRY(cy_async_writer_open(&opened.writer));
    cy_status status = cy_async_writer_add(opened.writer, &opened.out, &out);
    if (status == CY_OK) status = cy_async_writer_add(opened.writer, &opened.err, &err);
    if (status != CY_OK) {
        cy_async_writer_finish(opened.writer, CLOSE_S);
        cy_async_writer_close(opened.writer);
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
    cy_async_write(console->writer, console->out, text, length);
}

void cy_console_err(cy_console *console, const char *text, size_t length)
{
    cy_async_write(console->writer, console->err, text, length);
}

bool cy_console_is_broken(const cy_console *console)
{
    return cy_async_is_broken(console->writer, console->out);
}

int cy_console_close(cy_console *console, int exit_status)
{
    cy_async_writer_finish(console->writer, CLOSE_S);
    const int64_t dropped = cy_async_dropped(console->writer, console->out);
    const bool broken = cy_console_is_broken(console);
    const bool failed = cy_async_has_failed(console->writer, console->out);
    cy_text reason = {0};
    while (cy_async_take_report(console->writer, &reason)) {
        cy_report_warning("%s", reason.bytes);
        reason.length = 0;
    }
    cy_text_free(&reason);
    cy_async_writer_close(console->writer);
    if (exit_status != CY_EXIT_DONE || dropped == 0) return exit_status;
    if (broken) return 128 + SIGPIPE;
    if (!failed)
        return exit_status; // lines that were in nobody's way were dropped for want of time
    cy_report_error("standard output: %lld lines did not arrive", (long long)dropped);
    return CY_EXIT_FAILED;
}
