// base/status.h: how a failure is recorded and passed on.
//
// The one who detects a fault calls CY_FAIL with what, which and how many; callers forward it with
// CY_TRY, or go to a label that is named for what it undoes. The text lives in thread-local
// storage, so a rank that is a thread has its own.

#ifndef CY_BASE_STATUS_H
#define CY_BASE_STATUS_H

#include <cyclotron/status.h>

// Records the text and returns `code`: visibly, so that analysers know that it is no success.
#define CY_FAIL(code, ...) (cy_error_set(__VA_ARGS__), (code))

// The same, followed by ": " and the words for errno.
#define CY_FAIL_ERRNO(code, ...) (cy_error_set_errno(__VA_ARGS__), (code))

#define CY_TRY(call)                                                                               \
    do {                                                                                           \
        const cy_status cy_try_status = (call);                                                    \
        if (cy_try_status != CY_OK) return cy_try_status;                                          \
    } while (0)

void cy_error_set(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cy_error_set_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Adds advice to the failure that was just recorded.
void cy_error_set_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Puts words in front of the recorded text: "reading x: ..." Keeps code and hint.
void cy_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---- programmer errors
//
// programmer errors. On in release builds; never for input, configuration or what a
// peer sent.

// Prints the condition and its place on stderr and aborts.
_Noreturn void cy_assert_failed(const char *condition, const char *file, int line);

#define CY_ASSERT(condition)                                                                       \
    ((condition) ? (void)0 : cy_assert_failed(#condition, __FILE__, __LINE__))

// For inner loops: compiled in debug builds only.
#ifdef CY_DEBUG
#define CY_DEBUG_ASSERT(condition) CY_ASSERT(condition)
#else
#define CY_DEBUG_ASSERT(condition) ((void)0)
#endif

// ---- log
//
// the one place where the library says something that is not a result or an error.
//
// A log is opened by the program (or by whoever embeds the library) and handed down; a NULL log
// swallows what it is told. Any thread may write; lines do not mix.

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
