// tests/fuzz/fuzz.h: what a fuzz target defines, and a file for readers that want a path.

#ifndef CY_TESTS_FUZZ_H
#define CY_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

// Reads `size` bytes as the reader under test would; returns 0. A crash, a sanitizer's report or a
// failed assertion is a finding; an error status is not.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The path of a file in memory that holds these bytes; the same path for each call of a process.
// Borrowed.
const char *fuzz_file(const uint8_t *data, size_t size);

#endif
