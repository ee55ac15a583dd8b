// Builds values of jansson for output and prints them into a text.

#include "base/json.h"

#include <math.h>
#include <stdbool.h>

json_t *cy_json_real(double value)
{
    if (!isfinite(value)) return json_null();
    const bool whole = value == nearbyint(value) && fabs(value) < 1e17;
    if (whole && !(value == 0 && signbit(value))) return json_integer((json_int_t)value);
    return json_real(value);
}

json_t *cy_json_string(const char *bytes, size_t count)
{
    json_t *string = json_stringn(bytes, count);
    if (string != NULL) return string; // else not UTF-8, or no memory
    cy_text text = {0};
    if (cy_text_add_json_string(&text, bytes, count) == CY_OK) {
        string = json_loadb(text.bytes, text.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    }
    cy_text_free(&text);
    return string;
}

void cy_json_set(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new(*object, key, value) == 0) return;
    json_decref(*object);
    *object = NULL;
}

void cy_json_append(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value) == 0) return;
    json_decref(*array);
    *array = NULL;
}

static int take_bytes(const char *bytes, size_t count, void *text)
{
    return cy_text_add_bytes(text, bytes, count) == CY_OK ? 0 : -1;
}

cy_status cy_json_add(cy_text *text, json_t *value, size_t flags)
{
    const bool made =
        value != NULL && json_dump_callback(value, take_bytes, text, flags | JSON_ENCODE_ANY) == 0;
    json_decref(value);
    return made ? CY_OK : CY_FAIL(CY_ERR_MEMORY, "no memory for JSON");
}
