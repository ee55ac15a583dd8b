#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

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
