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

#endif
