#include "config/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Longer than any message; what a user wrote may be longer and is then cut.
#define LINE_BYTES 1536

__attribute__((format(printf, 3, 0))) static void add_line(
    cy_config_errors *errors, const char *before, const char *format, va_list args)
{
    char line[LINE_BYTES];
    vsnprintf(line, sizeof(line), format, args);
    // A value with a line break in it must not look like two faults.
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r') *c = ' ';
    }
    const cy_status status = cy_text_add(&errors->lines, "%s%s\n", before, line);
    if (status != CY_OK) errors->broken = status;
}

void cy_config_add_error(cy_config_errors *errors, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_line(errors, "", format, arguments);
    va_end(arguments);
    errors->count++;
}

void cy_config_add_hint(cy_config_errors *errors, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_line(errors, "  ", format, arguments);
    va_end(arguments);
}

void cy_config_add_error_of(cy_config_errors *errors, cy_status status, const char *format, ...)
{
    if (status == CY_ERR_MEMORY) { // no fault of the request
        errors->broken = status;
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    add_line(errors, "", format, arguments);
    va_end(arguments);
    errors->count++;
    if (cy_error_hint()[0] != '\0') cy_config_add_hint(errors, "%s", cy_error_hint());
}

cy_status cy_config_errors_status(const cy_config_errors *errors)
{
    if (errors->broken != CY_OK) {
        return CY_FAIL(errors->broken, "configuration: no memory to read and check it");
    }
    if (errors->count == 0) return CY_OK;
    // The last line break would look like an empty line behind the text.
    return CY_FAIL(CY_ERR_REQUEST, "%.*s", (int)(errors->lines.length - 1), errors->lines.bytes);
}

void cy_config_errors_free(cy_config_errors *errors)
{
    cy_text_free(&errors->lines);
    *errors = (cy_config_errors){0};
}
