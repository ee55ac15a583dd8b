// support/configs.h: configurations that are taken, or refused with an exact text.
//
// What is given is written with ' instead of ", which no configuration of a test needs itself.
// These fail the running test.

#ifndef CY_TESTS_CONFIGS_H
#define CY_TESTS_CONFIGS_H

#include "config/config.h"

// What is done with what is given.
typedef enum cy_test_reading {
    CY_TEST_OPTION,   // one --section.key=value, read
    CY_TEST_FILE,     // the text of a file, read
    CY_TEST_RESOLVED, // the text of a file, read and resolved
    CY_TEST_CHECKED,  // the same and checked, as for a plan
} cy_test_reading;

typedef struct cy_test_refusal {
    const char *given;
    const char *faults; // all lines, advice included; NULL: it is taken
} cy_test_refusal;

// Reads the text of a file (NULL: none) and options into *config and takes it further where
// `reading` says so, on this machine. The faults must be `faults`, NULL for none.
void cy_test_read_config_on(cy_config *config, const char *text, const char *const *options,
    int count, cy_test_reading reading, cy_config_machine machine, const char *faults);

// The same on a machine of two cores where one process was started.
void cy_test_read_config(cy_config *config, const char *text, const char *const *options, int count,
    cy_test_reading reading, const char *faults);

// Each of these.
void cy_test_refusals(const cy_test_refusal *cases, size_t count, cy_test_reading reading);

#endif
