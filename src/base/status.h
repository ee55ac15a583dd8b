// base/status.h: how a failure is recorded and passed on.
//
// The function that detects a fault calls CY_FAIL with what, which and how many. Callers forward
// the status with CY_TRY, or go to a label that is named for what it undoes. The text lives in
// thread-local storage, so a rank that is a thread has its own.

#ifndef CY_BASE_STATUS_H
#define CY_BASE_STATUS_H

#include <cyclotron/status.h>

// Records the text and returns `code`. A macro, so that analysers see that the result is not CY_OK.
#define CY_FAIL(code, ...) (cy_error_set(__VA_ARGS__), (code))

// The same with ": " and the text of errno behind the message.
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

// Puts a prefix before the recorded text, such as "reading x: ". The hint stays.
void cy_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---- programmer errors
//
// Assertions are on in release builds. They never check input, configuration or data of a peer.

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

// ---- log: messages of the library that are neither results nor errors
//
// The program, or another that embeds the library, makes a log and passes it down. A NULL log drops
// all messages. Any thread may write; lines do not mix.

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
