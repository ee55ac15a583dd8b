// tests/support/support.h: what many tests need.

#ifndef CY_TESTS_SUPPORT_H
#define CY_TESTS_SUPPORT_H

// cmocka wants these four first.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

// Fails the test with the text of the error when a call did not return CY_OK.
#define CY_CHECK_OK(call) cy_check_ok((call), #call, __FILE__, __LINE__)

// Fails unless the call failed with this status and its text holds these words.
#define CY_CHECK_FAILS(call, status, words)                                                        \
    cy_check_fails((call), (status), (words), #call, __FILE__, __LINE__)

void cy_check_ok(cy_status status, const char *call, const char *file, int line);
void cy_check_fails(cy_status status, cy_status wanted, const char *words, const char *call,
    const char *file, int line);

// A new empty folder that is removed, with what is in it, when the test program ends. The text
// belongs to the caller's buffer.
void cy_test_folder(char *path, size_t bytes);

// Turns the bits of `mask` in one byte of a file; a negative offset counts from its end.
void cy_test_flip(const char *path, long offset, int mask);

// The path of the program under test, from the environment that CTest sets.
const char *cy_test_program(void);

#endif
