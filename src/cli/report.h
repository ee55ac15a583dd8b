// cli/report.h: prints errors, warnings and hints on stderr, and maps failures to exit statuses.
//
// `cyclotron: error: <what, which, how many>`, and where there is advice a line `  hint: <what to
// do>`. Colours only on a terminal, and none where NO_COLOR is set.

#ifndef CY_CLI_REPORT_H
#define CY_CLI_REPORT_H

#include "base/json.h"

#include <stdbool.h>
#include <stdio.h>

// The exit statuses of the program.
enum {
    CY_EXIT_DONE = 0,
    CY_EXIT_FAILED = 1,  // while running
    CY_EXIT_REQUEST = 2, // the request itself was wrong
    CY_EXIT_INTERRUPTED = 130,
};

void cy_report_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cy_report_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cy_report_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Reports the failure that this thread recorded last, each line of its text as an error of its own,
// and returns its exit status. For CY_OK it prints nothing and returns CY_EXIT_DONE.
int cy_report_status(cy_status status);

// Reports each of these paths that does not exist, and returns true where there was one. "-" is
// stdin.
bool cy_report_missing(const char *const *paths, int count);

// A cy_progress_writer's function: to stderr, at once. The context is not read.
void cy_report_progress(void *context, const char *text, size_t length);

// Whether to print to this stream in colours.
bool cy_colours(FILE *stream);

// Flushes stdout and returns `exit_status`. Where the output could not be written (a full disk, a
// closed pipe), reports it and returns CY_EXIT_FAILED in place of CY_EXIT_DONE.
int cy_report_output(int exit_status);

// Prints the text where `status` is CY_OK, otherwise reports the failure. Frees the text and
// returns the exit status.
int cy_report_text(cy_status status, cy_text *text);

// Prints a value and a line end to stdout, as cy_json_add prints it, and releases it.
CY_MUST_CHECK cy_status cy_report_json(json_t *value, size_t flags);

#endif
