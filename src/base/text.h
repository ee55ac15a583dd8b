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

// Makes the decimal mark of a locale a point, in what printf made of a finite number.
void cy_number_set_point(char *printed);

// A number as JSON has it, for printf's %s: cy_json_number(x, 6).bytes. The decimal mark is a
// point, whatever the locale; what is not finite is `null`, because JSON has no word for it.
typedef struct cy_json_text {
    char bytes[32];
} cy_json_text;

// At most `digits` significant digits, 1 to 17. With 17, reading gives the same bits.
cy_json_text cy_json_number(double value, int digits);

// The fewest digits that read back as the same bits: 0.0003, not 0.00029999999999999997. Whole
// numbers below 10^15 have no exponent.
cy_json_text cy_json_number_shortest(double value);

// What follows the colon of a message: a list of lines that begin with "\n  - " as it is, the one
// line of a list of one without them.
const char *cy_list_items(const cy_text *lines, int count);

// ---- the nearest name
//
// "did you mean": the known name that is closest to one that is not known.
//
// Pure; any thread. Letters' case and the difference between `-` and `_` do not count.

// How many letters must be put in, taken out, replaced or swapped with the next to make one of the
// other. Names longer than 63 letters are far from everything but themselves.
int cy_edit_distance(const char *a, const char *b);

// Of the `count` names, the closest to `name`, or NULL when even that shares too little with it to
// be what was meant. The first of several that are equally close.
const char *cy_nearest(const char *name, const char *const *names, size_t count);

#endif
