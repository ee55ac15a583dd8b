// base/json.h: JSON for output, built and printed by jansson.
//
// jansson's values are built with json_pack and the functions below. A value that is NULL stands
// for memory that ran out: it can be passed on like any other and fails in cy_json_add, so building
// needs no checks. Fields are printed in the order in which they were set. Not for objects that
// several threads change.

#ifndef CY_BASE_JSON_H
#define CY_BASE_JSON_H

#include "base/text.h"

#include <jansson.h>

// A number; null where it is not finite, because JSON has no word for that. A whole number has no
// fraction and, below 1e17, no exponent.
json_t *cy_json_real(double value);

// A string of bytes [count]; each byte that is not UTF-8 becomes U+FFFD.
json_t *cy_json_string(const char *bytes, size_t count);

// Set a field, append an element; both take over `value`.
void cy_json_set(json_t **object, const char *key, json_t *value);
void cy_json_append(json_t **array, json_t *value);

// Appends a value to *text and releases it. `flags` are those of json_dumps. Without
// JSON_REAL_PRECISION numbers have up to 17 significant digits, which read back as the same bits.
// The decimal mark is a point, whatever the locale.
CY_MUST_CHECK cy_status cy_json_add(cy_text *text, json_t *value, size_t flags);

#endif
