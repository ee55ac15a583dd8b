// tests/support/support.h: what many tests need.

#ifndef CY_TESTS_SUPPORT_H
#define CY_TESTS_SUPPORT_H

// cmocka wants these four first.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>

#include "base/status.h"

// Whether a sanitizer is built in: code is slow, and memory is not only the program's.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CY_TEST_SANITIZED 1
#else
#define CY_TEST_SANITIZED 0
#endif

#define CY_TEST_COUNT(array) (sizeof(array) / sizeof((array)[0]))

// Fails the test with the text of the error when a call did not return CY_OK.
#define CY_CHECK_OK(call) cy_check_ok((call), #call, __FILE__, __LINE__)

// Fails unless the call failed with this status and its text holds these words.
#define CY_CHECK_FAILS(call, status, words)                                                        \
    cy_check_fails((call), (status), (words), #call, __FILE__, __LINE__)

void cy_check_ok(cy_status status, const char *call, const char *file, int line);
void cy_check_fails(cy_status status, cy_status wanted, const char *words, const char *call,
    const char *file, int line);

// Makes *most the larger of the two. What is no number is larger than all, and stays.
void cy_test_worse(double *most, double difference);

// A new empty folder that is removed, with what is in it, when the test program ends. The text
// belongs to the caller's buffer.
void cy_test_folder(char *path, size_t bytes);

// Makes every ' of a text a ", so that JSON can be written in C without escapes. Returns the text.
char *cy_test_quotes(char *text);

// Turns the bits of `mask` in one byte of a file; a negative offset counts from its end.
void cy_test_flip(const char *path, long offset, int mask);

// Makes the allocation number `at` of jansson from now on fail, counted from 1; 0: none. Parsing is
// the first that happens to a text and takes as many as cy_test_json_allocations says: what jansson
// makes of a text when one of these fails is not the program's.
void cy_test_json_fails_at(int at);
int cy_test_json_allocations(const char *text, size_t length);

// Whether that allocation was asked for, and failed.
bool cy_test_json_has_failed(void);

// Whether a call, in a process of its own, ends it by an assertion.
bool cy_test_aborts(void (*call)(void));

// The level of instructions that stands for "auto" here: TEST_ISA of the environment, which
// at_level.sh sets, or "auto". Other names stay. NULL where the name is a level beyond that one.
const char *cy_test_isa(const char *isa);

// The path of the program under test, from the environment that CTest sets.
const char *cy_test_program(void);

#endif
