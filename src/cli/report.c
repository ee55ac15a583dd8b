// Prints the program's errors, warnings and hints, and chooses its exit status.

#define _GNU_SOURCE
#include "cli/report.h"

#include "base/file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cy_report_progress(void *context, const char *text, size_t length)
{
    (void)context;
    fwrite(text, 1, length, stderr);
    fflush(stderr);
}

bool cy_colours(FILE *stream)
{
    const char *no_colour = getenv("NO_COLOR");
    if (no_colour != NULL && no_colour[0] != '\0') return false;
    return isatty(fileno(stream)) == 1;
}

// Prints a line in one write, so that lines of several ranks do not mix.
static void say(const char *colour, const char *label, const char *text, size_t length)
{
    if (cy_colours(stderr)) {
        fprintf(stderr, "\033[%sm%s\033[0m%.*s\n", colour, label, (int)length, text);
    } else {
        fprintf(stderr, "%s%.*s\n", label, (int)length, text);
    }
}

static const char error_label[] = "cyclotron: error: ";
static const char error_colour[] = "1;31";
static const char hint_label[] = "  hint: ";
static const char hint_colour[] = "36";

// Prints each line of the text behind the label. Within an error, a line that begins with "  - " is
// an item of a list, and another line that begins with two spaces is advice.
static void say_lines(const char *colour, const char *label, const char *text)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, "\n");
        if (label == error_label && strncmp(text, "  - ", 4) == 0) {
            say("0", "", text, length);
        } else if (label == error_label && strncmp(text, "  ", 2) == 0) {
            say(hint_colour, hint_label, text + 2, length - 2);
        } else {
            say(colour, label, text, length);
        }
        text += length;
        if (*text == '\n') text++;
    }
}

__attribute__((format(printf, 3, 0))) static void say_formatted(
    const char *colour, const char *label, const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0) {
        say_lines(colour, label, "out of memory while reporting");
        return;
    }
    say_lines(colour, label, text);
    free(text);
}

void cy_report_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_formatted(error_colour, error_label, format, arguments);
    va_end(arguments);
}

void cy_report_warning(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_formatted("1;33", "cyclotron: warning: ", format, arguments);
    va_end(arguments);
}

void cy_report_hint(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_formatted(hint_colour, hint_label, format, arguments);
    va_end(arguments);
}

int cy_report_status(cy_status status)
{
    if (status == CY_OK) return CY_EXIT_DONE;
    cy_report_error("%s", cy_error_text());
    if (cy_error_hint()[0] != '\0') cy_report_hint("%s", cy_error_hint());
    if (status == CY_ERR_REQUEST) return CY_EXIT_REQUEST;
    return status == CY_ERR_STOPPED ? CY_EXIT_INTERRUPTED : CY_EXIT_FAILED;
}

bool cy_report_missing(const char *const *paths, int count)
{
    bool missing = false;
    for (int i = 0; i < count; i++) {
        if (strcmp(paths[i], "-") == 0 || cy_path_exists(paths[i])) continue;
        cy_report_error("%s: %s", paths[i], strerror(errno));
        missing = true;
    }
    return missing;
}

int cy_report_output(int exit_status)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return exit_status;
    cy_report_error("standard output: %s",
        errno != 0 ? strerror(errno) : "some of what was printed did not arrive");
    return exit_status == CY_EXIT_DONE ? CY_EXIT_FAILED : exit_status;
}

int cy_report_text(cy_status status, cy_text *text)
{
    int exit_status = cy_report_status(status);
    if (status == CY_OK) {
        fputs(text->bytes, stdout);
        exit_status = cy_report_output(CY_EXIT_DONE);
    }
    cy_text_free(text);
    return exit_status;
}

cy_status cy_report_json(json_t *value, size_t flags)
{
    cy_text text = {0};
    const cy_status status = cy_json_add(&text, value, flags);
    if (status == CY_OK) puts(text.bytes);
    cy_text_free(&text);
    return status;
}
