// cli/console.h: writes a run's standard output and standard error without ever blocking the run.
//
// A terminal that is stopped, a pipe that nobody reads and a full disk delay lines or lose them;
// the run goes on (observe/async_writer.h). One thread uses a console.

#ifndef CY_CLI_CONSOLE_H
#define CY_CLI_CONSOLE_H

#include "observe/async_writer.h"

typedef struct cy_console {
    // Owned. A thread for each stream, so that none waits for the other's reader; one for both
    // where they are the same terminal, pipe or file, and lines keep their order there.
    cy_async_writer *out_writer, *err_writer;
    int out, err;  // their targets
    bool terminal; // standard output is one
} cy_console;

// Starts the threads that write: call it once the signals are blocked that no such thread may get.
// SIGPIPE is ignored from then on.
CY_MUST_CHECK cy_status cy_console_open(cy_console *console);

void cy_console_out(cy_console *console, const char *text, size_t length);
void cy_console_err(cy_console *console, const char *text, size_t length);

// The signal that says that standard output has no reader any more: SIGHUP where it was a terminal,
// SIGPIPE where it was a pipe. 0 while it may have a reader.
int cy_console_broken_by(const cy_console *console);

// Writes the remaining lines, within some seconds, and reports lost lines on standard error. Where
// nobody reads standard error, later writes to it are discarded, since they would wait. Returns
// `exit_status`; where that is CY_EXIT_DONE and standard output failed, 141 or 129 for a reader
// that has gone, or CY_EXIT_FAILED for lines that could not be written.
int cy_console_close(cy_console *console, int exit_status);

#endif
