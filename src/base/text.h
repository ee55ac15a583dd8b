// base/text.h: texts that grow, numbers as JSON has them, and the nearest of several names.
//
// Messages, JSON lines and pictures are made of texts, never inside a training step. Each text has
// one owner and one thread; the other functions are pure.

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

// Adds bytes [count] as a JSON string with its quotes. A byte that is not UTF-8 becomes U+FFFD.
CY_MUST_CHECK cy_status cy_text_add_json_string(cy_text *text, const char *bytes, size_t count);
void cy_text_free(cy_text *text);

// Replaces the decimal mark of a locale by a point in a finite number that printf printed.
void cy_number_set_point(char *printed);

// A number as JSON has it, for printf's %s: cy_json_number(x, 6).bytes. The decimal mark is a point
// in every locale. A number that is not finite is `null`, because JSON has no text for it.
typedef struct cy_json_text {
    char bytes[32];
} cy_json_text;

// At most `digits` significant digits, 1 to 17. With 17, reading gives the same bits.
cy_json_text cy_json_number(double value, int digits);

// The fewest digits that read back as the same bits: 0.0003, not 0.00029999999999999997. Whole
// numbers below 10^15 have no exponent.
cy_json_text cy_json_number_shortest(double value);

// The text behind the colon of a message. `lines` is a list whose lines begin with "\n  - ": a list
// of several is returned as it is, the line of a list of one without that beginning.
const char *cy_list_items(const cy_text *lines, int count);

// ---- the nearest name, for "did you mean". Case and the difference between `-` and `_` do not
// count.

// The number of letters that must be inserted, deleted, replaced or swapped with the next to turn
// one name into the other. A name of more than 63 letters is far from all names but itself.
int cy_edit_distance(const char *a, const char *b);

// The name among names [count] that is closest to `name`, the first of several that are equally
// close; NULL where all are too different from it.
const char *cy_nearest(const char *name, const char *const *names, size_t count);

#endif
