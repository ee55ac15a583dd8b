// cli/console.h: standard output and standard error of a run, written without ever holding it up.
//
// A terminal that is stopped, a pipe that nobody reads and a full disk delay lines or lose them;
// the run goes on (observe/async_writer.h). One thread uses a console.

#ifndef CY_CLI_CONSOLE_H
#define CY_CLI_CONSOLE_H

#include "observe/async_writer.h"

typedef struct cy_console {
    cy_async_writer *writer; // owned
    int out, err;            // its targets
} cy_console;

// Starts the writer's thread: call it once the signals are blocked that no such thread may get.
// SIGPIPE is ignored from then on.
CY_MUST_CHECK cy_status cy_console_open(cy_console *console);

void cy_console_out(cy_console *console, const char *text, size_t length);
void cy_console_err(cy_console *console, const char *text, size_t length);

// Whether whoever read standard output has closed it.
bool cy_console_is_broken(const cy_console *console);

// Writes what is left, within some seconds, and reports on standard error what was lost. Returns
// `exit_status`, or where that is CY_EXIT_DONE the status of what befell standard output: 141 for a
// reader that has gone, CY_EXIT_FAILED for lines that could not be written.
int cy_console_close(cy_console *console, int exit_status);

#endif
