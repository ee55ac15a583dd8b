// base/log.h: the one place where the library says something that is not a result or an error.
//
// A log is opened by the program (or by whoever embeds the library) and handed down; a NULL log
// swallows what it is told. Any thread may write; lines do not mix.

#ifndef CY_BASE_LOG_H
#define CY_BASE_LOG_H

typedef enum cy_log_level {
    CY_LOG_INFO,
    CY_LOG_WARNING,
} cy_log_level;

typedef struct cy_log {
    void (*write)(void *context, cy_log_level level, const char *line);
    void *context; // borrowed
} cy_log;

void cy_log_add(const cy_log *log, cy_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
