// config/errors.h: how the faults of a configuration are noted.

#ifndef CY_CONFIG_ERRORS_H
#define CY_CONFIG_ERRORS_H

#include "config/config.h"

// A line of faults: key, value, what would do.
void cy_config_add_error(cy_config_errors *errors, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The fault that a call met which ended with `status`, with the advice that it gave; the format
// takes cy_error_text(). Missing memory is no fault: cy_config_errors_status returns it.
void cy_config_add_error_of(cy_config_errors *errors, cy_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Advice for the fault noted last.
void cy_config_add_hint(cy_config_errors *errors, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// CY_OK without faults, else CY_ERR_REQUEST with all lines as its text.
CY_MUST_CHECK cy_status cy_config_errors_status(const cy_config_errors *errors);

#endif
