// base/text.h: a text that grows. Used for messages, JSON lines and pictures, never inside a step.

#ifndef CY_BASE_TEXT_H
#define CY_BASE_TEXT_H

#include "base/status.h"

#include <stddef.h>

// Start from a zeroed struct; free with cy_text_free.
typedef struct cy_text {
    char *bytes; // owned, always terminated by a zero once something was added; NULL before
    size_t length;
    size_t capacity;
} cy_text;

CY_MUST_CHECK cy_status cy_text_add(cy_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
CY_MUST_CHECK cy_status cy_text_add_bytes(cy_text *text, const void *bytes, size_t count);

// Adds bytes [count] as a JSON string, quotes included; what is not UTF-8 becomes U+FFFD.
CY_MUST_CHECK cy_status cy_text_add_json_string(cy_text *text, const char *bytes, size_t count);
void cy_text_free(cy_text *text);

// What follows the colon of a message: a list of lines that begin with "\n  - " as it is, the one
// line of a list of one without them.
const char *cy_list_items(const cy_text *lines, int count);

#endif
