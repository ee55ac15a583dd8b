#include "config/rope.h"

#include "base/memory.h"
#include "base/nearest.h"
#include "config/errors.h"

#include <math.h>
#include <string.h>

// The numbers of rope_scaling, in the words of config.json.
static const struct {
    const char *name;
    size_t offset;
    unsigned takes; // bit 1 << cy_rope_scaling: which kinds have it
    bool is_length; // int64_t instead of double
    bool required;
} numbers[] = {
#define KIND(kind) (1u << (kind))
#define ALL                                                                                        \
    (KIND(CY_ROPE_LINEAR) | KIND(CY_ROPE_DYNAMIC) | KIND(CY_ROPE_LLAMA3) | KIND(CY_ROPE_YARN))
    {"factor", offsetof(cy_rope_shape, factor), ALL, false, true},
    {"low_freq_factor", offsetof(cy_rope_shape, low_freq_factor), KIND(CY_ROPE_LLAMA3), false,
        true},
    {"high_freq_factor", offsetof(cy_rope_shape, high_freq_factor), KIND(CY_ROPE_LLAMA3), false,
        true},
    {"beta_fast", offsetof(cy_rope_shape, beta_fast), KIND(CY_ROPE_YARN), false, false},
    {"beta_slow", offsetof(cy_rope_shape, beta_slow), KIND(CY_ROPE_YARN), false, false},
    {"attention_factor", offsetof(cy_rope_shape, attention_factor), KIND(CY_ROPE_YARN), false,
        false},
    {"original_max_position_embeddings", offsetof(cy_rope_shape, original_length),
        ALL & ~KIND(CY_ROPE_LINEAR), true, false},
};

#define NUMBER_COUNT (sizeof(numbers) / sizeof(numbers[0]))

static const char *const kinds[] = {
    [CY_ROPE_PLAIN] = "default",
    [CY_ROPE_LINEAR] = "linear",
    [CY_ROPE_DYNAMIC] = "dynamic",
    [CY_ROPE_LLAMA3] = "llama3",
    [CY_ROPE_YARN] = "yarn",
};

static const char key_name[] = "model.rope_scaling";

// Reads one entry into the shape; notes a fault where it is not one.
static void read_entry(
    cy_rope_shape *rope, cy_config_errors *errors, const char *name, const json_t *value)
{
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        if (strcmp(numbers[i].name, name) != 0) continue;
        const double number = json_is_number(value) ? json_number_value(value) : -1;
        if (!(numbers[i].takes & KIND(rope->scaling))) {
            cy_config_add_error(errors, "%s.%s: rope_type %s has no such key", key_name, name,
                kinds[rope->scaling]);
        } else if (!(number > 0) || !isfinite(number) ||
            (numbers[i].is_length && (number != nearbyint(number) || number > 0x1p40))) {
            cy_config_add_error(errors, "%s.%s: a %s above 0 is wanted", key_name, name,
                numbers[i].is_length ? "whole number" : "number");
        } else if (numbers[i].is_length) {
            const int64_t length = (int64_t)number;
            memcpy((char *)rope + numbers[i].offset, &length, sizeof(length));
        } else {
            memcpy((char *)rope + numbers[i].offset, &number, sizeof(number));
        }
        return;
    }
    const char *names[NUMBER_COUNT];
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        names[i] = numbers[i].name;
    const char *nearest = cy_nearest(name, names, NUMBER_COUNT);
    cy_config_add_error(errors, "%s.%.100s: no such key", key_name, name);
    if (nearest != NULL) cy_config_add_hint(errors, "did you mean %s?", nearest);
}

void cy_key_read_rope(cy_config *config, cy_config_errors *errors, const json_t *value)
{
    const json_t *kind = json_object_get(value, "rope_type");
    if (kind == NULL) kind = json_object_get(value, "type"); // the older word
    int scaling = -1;
    for (int i = 0; i < (int)(sizeof(kinds) / sizeof(kinds[0])); i++) {
        if (json_is_string(kind) && strcmp(json_string_value(kind), kinds[i]) == 0) scaling = i;
    }
    if (scaling < 0) {
        cy_config_add_error(errors,
            "%s: an object whose rope_type is default, linear, dynamic, llama3 or yarn is wanted",
            key_name);
        return;
    }
    cy_rope_shape rope = {.scaling = (cy_rope_scaling)scaling, .factor = 1};
    if (rope.scaling == CY_ROPE_YARN) {
        rope.beta_fast = 32;
        rope.beta_slow = 1;
    }
    const int before = errors->count;
    const char *name;
    json_t *entry;
    // jansson's loop takes an object that it may change; this one is only read.
    json_object_foreach((json_t *)cy_memory_writable(value), name, entry)
    {
        if (strcmp(name, "rope_type") != 0 && strcmp(name, "type") != 0 && !json_is_null(entry)) {
            read_entry(&rope, errors, name, entry);
        }
    }
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        const json_t *given = json_object_get(value, numbers[i].name);
        const bool is_missing = numbers[i].required && (numbers[i].takes & KIND(rope.scaling)) &&
            (given == NULL || json_is_null(given));
        if (is_missing) {
            cy_config_add_error(
                errors, "%s: rope_type %s needs %s", key_name, kinds[scaling], numbers[i].name);
        }
    }
    if (errors->count != before) return;
    config->model.rope_scaling = rope;
    config->model.has_rope_scaling = true;
}

cy_status cy_key_write_rope(cy_text *json, const cy_rope_shape *rope)
{
    CY_TRY(cy_text_add(json, "{\"rope_type\": \"%s\"", kinds[rope->scaling]));
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        if (!(numbers[i].takes & KIND(rope->scaling))) continue;
        double number;
        const char *field = (const char *)rope + numbers[i].offset;
        if (numbers[i].is_length) {
            int64_t length;
            memcpy(&length, field, sizeof(length));
            number = (double)length;
        } else {
            memcpy(&number, field, sizeof(number));
        }
        if (number == 0) continue; // absent
        CY_TRY(cy_text_add(json, ", \"%s\": ", numbers[i].name));
        CY_TRY(cy_config_json_number(json, number));
    }
    return cy_text_add(json, "}");
}
