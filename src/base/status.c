// Records the text of a failure for each thread, aborts at a programmer error, and writes to logs.
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 4096
#define HINT_BYTES 1024

// The only mutable globals of the library. They are per thread, because a rank may be a thread. An
// error object as an argument would lengthen every signature for a value that is read in one place.
static _Thread_local char error_text[TEXT_BYTES];
static _Thread_local char error_hint[HINT_BYTES];

const char *cy_error_text(void)
{
    return error_text;
}

const char *cy_error_hint(void)
{
    return error_hint;
}

const char *cy_status_name(cy_status status)
{
    switch (status) {
    case CY_OK:
        return "ok";
    case CY_ERR_REQUEST:
        return "request";
    case CY_ERR_IO:
        return "io";
    case CY_ERR_CORRUPT:
        return "corrupt";
    case CY_ERR_MEMORY:
        return "memory";
    case CY_ERR_UNSUPPORTED:
        return "unsupported";
    case CY_ERR_TIMEOUT:
        return "timeout";
    case CY_ERR_PEER:
        return "peer";
    case CY_ERR_NOT_FINITE:
        return "not finite";
    case CY_ERR_STOPPED:
        return "stopped";
    }
    return "unknown";
}

void cy_error_set(const char *format, ...)
{
    char text[TEXT_BYTES]; // the arguments may point into the old text
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    memcpy(error_text, text, sizeof(text));
    error_hint[0] = '\0';
}

void cy_error_set_errno(const char *format, ...)
{
    const int number = errno;
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof(text)) {
        snprintf(text + length, sizeof(text) - (size_t)length, ": %s", strerror(number));
    }
    memcpy(error_text, text, sizeof(text));
    error_hint[0] = '\0';
}

void cy_error_set_hint(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error_hint, sizeof(error_hint), format, arguments);
    va_end(arguments);
}

void cy_error_prefix(const char *format, ...)
{
    char old[TEXT_BYTES];
    memcpy(old, error_text, sizeof(old));
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(error_text, sizeof(error_text), format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof(error_text)) {
        snprintf(error_text + length, sizeof(error_text) - (size_t)length, "%s", old);
    }
}

// ---- programmer errors

void cy_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "cyclotron: error: %s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}

// ---- log

void cy_log_add(const cy_log *log, cy_log_level level, const char *format, ...)
{
    if (log == NULL || log->write == NULL) return;
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    log->write(log->context, level, line);
}
