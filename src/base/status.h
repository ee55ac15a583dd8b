// base/status.h: how a failure is recorded and passed on.
//
// The one who detects a fault calls CY_FAIL with what, which and how many; callers forward it with
// CY_TRY, or go to a label that is named for what it undoes. The text lives in thread-local
// storage, so a rank that is a thread has its own.

#ifndef CY_BASE_STATUS_H
#define CY_BASE_STATUS_H

#include <cyclotron/status.h>

// Records the text and returns `code`.
#define CY_FAIL(code, ...) cy_error_set((code), __VA_ARGS__)

// The same, followed by ": " and the words for errno.
#define CY_FAIL_ERRNO(code, ...) cy_error_set_errno((code), __VA_ARGS__)

#define CY_TRY(call)                                                                               \
    do {                                                                                           \
        const cy_status cy_try_status = (call);                                                    \
        if (cy_try_status != CY_OK) return cy_try_status;                                          \
    } while (0)

cy_status cy_error_set(cy_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
cy_status cy_error_set_errno(cy_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Adds advice to the failure that was just recorded.
void cy_error_set_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Puts words in front of the recorded text: "reading x: ..." Keeps code and hint.
void cy_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
