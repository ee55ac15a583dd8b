#include "config/value.h"

#include "base/assert.h"
#include "base/nearest.h"
#include "config/errors.h"
#include "config/rope.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(cy_config_flag) == sizeof(int) && sizeof(cy_dtype) == sizeof(int) &&
        sizeof(cy_pipeline_engine) == sizeof(int),
    "choices are written through int");

static void *field_of(cy_config *config, const cy_key *key)
{
    return (char *)config + key->offset;
}

int cy_key_choice(const char *values, const char *word)
{
    const size_t length = strlen(word);
    int index = 0;
    for (const char *choice = values; choice != NULL; index++) {
        const size_t width = strcspn(choice, "|");
        if (width == length && memcmp(choice, word, length) == 0) return index;
        choice = choice[width] == '|' ? choice + width + 1 : NULL;
    }
    return -1;
}

#define WEIGHT_MAX 1e30 // sums of weights stay finite

// What is wanted, in words: "a whole number from 1 to 64".
static void describe_range(char *text, size_t bytes, const cy_key *key)
{
    const char *what = key->kind == CY_KEY_NUMBER ? "a number" : "a whole number";
    if (key->high > key->low) {
        snprintf(text, bytes, "%s %s %.15g to %s%.15g is wanted", what,
            key->above ? "from above" : "from", key->low, key->below ? "below " : "", key->high);
    } else {
        snprintf(text, bytes, "%s %s %.15g is wanted", what, key->above ? "above" : "of at least",
            key->low);
    }
}

// Notes that the value is not what the key takes. The value is shown as JSON, cut where long.
static void wrong_value(
    cy_config_errors *errors, const cy_key *key, const json_t *value, const char *wanted)
{
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
    const size_t length = shown != NULL ? strlen(shown) : 0;
    cy_config_add_error(errors, "%s.%s = %.*s%s: %s", key->section, key->name,
        (int)(length > 120 ? 120 : length), shown != NULL ? shown : "?", length > 120 ? "..." : "",
        wanted);
    free(shown);
}

static bool number_in_range(const cy_key *key, double number)
{
    if (!isfinite(number)) return false;
    if (key->above ? number <= key->low : number < key->low) return false;
    if (key->high <= key->low) return true;
    return key->below ? number < key->high : number <= key->high;
}

// The number that a value is; a text only where the key takes numbers as texts.
static bool number_of(double *number, const cy_key *key, const json_t *value)
{
    if (json_is_number(value)) {
        *number = json_number_value(value);
        return true;
    }
    if (!key->accepts_text || !json_is_string(value)) return false;
    const char *text = json_string_value(value);
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && !isspace((unsigned char)text[0]);
}

static void read_whole(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    char wanted[128];
    describe_range(wanted, sizeof(wanted), key);
    double number = 0;
    // 2^53: beyond it a JSON number such as 1e30 is no longer a certain integer.
    const bool is_whole = number_of(&number, key, value) && number == nearbyint(number) &&
        (json_is_integer(value) || fabs(number) <= 0x1p53);
    if (!is_whole || !number_in_range(key, number)) {
        wrong_value(errors, key, value, wanted);
        return;
    }
    const int64_t whole = json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
    if (key->kind == CY_KEY_INT) {
        const int narrow = (int)whole; // the table's range fits
        memcpy(field_of(config, key), &narrow, sizeof(narrow));
    } else {
        memcpy(field_of(config, key), &whole, sizeof(whole));
    }
}

static void read_number(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    char wanted[128];
    describe_range(wanted, sizeof(wanted), key);
    double number = 0;
    if (!number_of(&number, key, value) || !number_in_range(key, number)) {
        wrong_value(errors, key, value, wanted);
        return;
    }
    memcpy(field_of(config, key), &number, sizeof(number));
}

static void read_flag(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    bool is_true = json_is_true(value);
    bool is_right = json_is_boolean(value);
    double number = 0;
    if (!is_right && key->accepts_text && number_of(&number, key, value)) {
        is_right = number == 0 || number == 1;
        is_true = number == 1;
    }
    if (!is_right) {
        wrong_value(
            errors, key, value, key->accepts_text ? "0 or 1 is wanted" : "true or false is wanted");
        return;
    }
    if (key->kind == CY_KEY_BOOL) {
        memcpy(field_of(config, key), &is_true, sizeof(is_true));
    } else {
        const cy_config_flag flag = is_true ? CY_CONFIG_TRUE : CY_CONFIG_FALSE;
        memcpy(field_of(config, key), &flag, sizeof(flag));
    }
}

// The nearest of "a|b|c" in *nearest, which has room for 32 bytes; false where none is near.
static bool nearest_choice(char *nearest, const char *values, const char *word)
{
    char copy[128];
    const char *names[16];
    size_t count = 0;
    snprintf(copy, sizeof(copy), "%s", values);
    for (char *choice = copy; choice != NULL && count < 16;) {
        names[count++] = choice;
        choice = strchr(choice, '|');
        if (choice != NULL) *choice++ = '\0';
    }
    const char *found = cy_nearest(word, names, count);
    if (found != NULL) snprintf(nearest, 32, "%s", found);
    return found != NULL;
}

static void read_choice(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    const char *word = json_is_string(value) ? json_string_value(value) : "";
    const int choice = cy_key_choice(key->values, word);
    if (choice >= 0) {
        CY_ASSERT(choice < key->choices); // the enum has this word too
        memcpy(field_of(config, key), &choice, sizeof(choice));
        return;
    }
    char wanted[160] = "one of ";
    size_t length = strlen(wanted);
    for (const char *c = key->values; *c != '\0' && length + 32 < sizeof(wanted); c++) {
        if (*c == '|') {
            wanted[length++] = ',';
            wanted[length++] = ' ';
        } else {
            wanted[length++] = *c;
        }
    }
    snprintf(wanted + length, sizeof(wanted) - length, " is wanted");
    wrong_value(errors, key, value, wanted);
    char nearest[32];
    if (nearest_choice(nearest, key->values, word)) {
        cy_config_add_hint(errors, "did you mean %s?", nearest);
    }
}

static void read_dtype(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    cy_dtype dtype;
    const bool is_known =
        json_is_string(value) && cy_dtype_from_name(&dtype, json_string_value(value)) != 0;
    if (!is_known || (dtype != CY_BF16 && dtype != CY_F16 && dtype != CY_F32 && dtype != CY_F64)) {
        wrong_value(errors, key, value, "one of bf16, fp16, fp32, fp64 is wanted");
        return;
    }
    memcpy(field_of(config, key), &dtype, sizeof(dtype));
}

// Copies a text into a char array of `bytes`; notes a fault and returns false when it is too long.
static bool copy_text(
    cy_config_errors *errors, const cy_key *key, char *field, size_t bytes, const char *text)
{
    const size_t length = strlen(text);
    if (length >= bytes) {
        cy_config_add_error(errors, "%s.%s = \"%.60s...\": %zu bytes, at most %zu are taken",
            key->section, key->name, text, length, bytes - 1);
        return false;
    }
    memcpy(field, text, length + 1);
    return true;
}

static void read_stages(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    const size_t count = json_array_size(value);
    bool is_right = json_is_array(value) && count >= 1 && count <= CY_CONFIG_STAGES_MAX;
    for (size_t i = 0; i < count && is_right; i++) {
        const json_t *layers = json_array_get(value, i);
        is_right = json_is_integer(layers) && json_integer_value(layers) >= 0 &&
            json_integer_value(layers) <= 65536;
    }
    if (!is_right) {
        wrong_value(errors, key, value, "a list of 1 to 256 whole numbers is wanted");
        if (!json_is_array(value)) {
            cy_config_add_hint(errors, "as in --%s.%s='[3,1]'", key->section, key->name);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        config->distributed.pp_layers[i] = (int)json_integer_value(json_array_get(value, i));
    }
    config->distributed.pp_layer_count = (int)count;
}

static bool read_source(
    cy_config_source *source, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    const json_t *path = json_is_object(value) ? json_object_get(value, "path") : value;
    const json_t *weight = json_is_object(value) ? json_object_get(value, "weight") : NULL;
    const size_t wanted_size = weight != NULL ? 2 : 1;
    if (json_is_null(weight)) weight = NULL; // the same as absent
    if (!json_is_string(path) || (weight != NULL && !json_is_number(weight)) ||
        (json_is_object(value) && json_object_size(value) != wanted_size)) {
        wrong_value(errors, key, value, "{\"path\": text, \"weight\": number} is wanted");
        return false;
    }
    source->weight = weight != NULL ? json_number_value(weight) : 1;
    if (!(source->weight > 0 && source->weight <= WEIGHT_MAX)) {
        wrong_value(errors, key, value, "a weight from above 0 to 1e30 is wanted");
        return false;
    }
    return copy_text(errors, key, source->path, sizeof(source->path), json_string_value(path));
}

static void read_sources(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    cy_config_dataset *dataset = &config->dataset;
    dataset->source_count = 0;
    if (json_is_string(value)) {
        if (json_string_length(value) == 0) return;
        if (read_source(&dataset->sources[0], errors, key, value)) dataset->source_count = 1;
        return;
    }
    const size_t count = json_array_size(value);
    if (!json_is_array(value) || count < 1 || count > CY_CONFIG_SOURCES_MAX) {
        wrong_value(
            errors, key, value, "a path, or a list of 1 to 64 {\"path\", \"weight\"}, is wanted");
        return;
    }
    bool weighted = false;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(value, i);
        cy_config_source *source = &dataset->sources[dataset->source_count];
        const json_t *weight = json_object_get(entry, "weight");
        weighted = weighted || (weight != NULL && !json_is_null(weight));
        if (read_source(source, errors, key, entry)) dataset->source_count++;
    }
    for (int i = 0; i < dataset->source_count && !weighted; i++)
        dataset->sources[i].weight = 0;
}

void cy_key_read(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value)
{
    if (json_is_null(value)) {
        cy_key_set_default(config, key);
        return;
    }
    switch (key->kind) {
    case CY_KEY_INT:
    case CY_KEY_COUNT:
        read_whole(config, errors, key, value);
        return;
    case CY_KEY_NUMBER:
        read_number(config, errors, key, value);
        return;
    case CY_KEY_BOOL:
    case CY_KEY_FLAG:
        read_flag(config, errors, key, value);
        return;
    case CY_KEY_CHOICE:
        read_choice(config, errors, key, value);
        return;
    case CY_KEY_TEXT:
    case CY_KEY_PATH:
        if (!json_is_string(value)) {
            wrong_value(errors, key, value, "a text is wanted");
        } else {
            copy_text(errors, key, field_of(config, key), key->bytes, json_string_value(value));
        }
        return;
    case CY_KEY_DTYPE:
        read_dtype(config, errors, key, value);
        return;
    case CY_KEY_STAGES:
        read_stages(config, errors, key, value);
        return;
    case CY_KEY_SOURCES:
        read_sources(config, errors, key, value);
        return;
    case CY_KEY_ROPE:
        cy_key_read_rope(config, errors, value);
        return;
    case CY_KEY_IGNORED:
        return;
    }
}

void cy_key_read_text(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const char *text)
{
    const bool takes_text = key->kind == CY_KEY_TEXT || key->kind == CY_KEY_PATH ||
        key->kind == CY_KEY_CHOICE || key->kind == CY_KEY_DTYPE || key->accepts_text ||
        (key->kind == CY_KEY_SOURCES && text[0] != '[');
    json_t *value = NULL;
    if (!takes_text || strcmp(text, "null") == 0) {
        value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    }
    if (value == NULL) value = json_string(text);
    if (value == NULL) {
        cy_config_add_error(errors, "%s.%s: the value is not UTF-8", key->section, key->name);
        return;
    }
    cy_key_read(config, errors, key, value);
    json_decref(value);
}

void cy_key_set_default(cy_config *config, const cy_key *key)
{
    if (key->kind == CY_KEY_IGNORED) return;
    if (key->initial != NULL) {
        cy_config_errors none = {0};
        cy_key_read_text(config, &none, key, key->initial);
        CY_ASSERT(none.count == 0);
        cy_config_errors_free(&none);
        return;
    }
    void *field = field_of(config, key);
    const int64_t absent = cy_key_absent(key);
    switch (key->kind) {
    case CY_KEY_INT:
        memcpy(field, &(int){(int)absent}, sizeof(int));
        return;
    case CY_KEY_COUNT:
        memcpy(field, &absent, sizeof(absent));
        return;
    case CY_KEY_NUMBER:
        memcpy(field, &(double){0}, sizeof(double));
        return;
    case CY_KEY_FLAG:
        memcpy(field, &(cy_config_flag){CY_CONFIG_ABSENT}, sizeof(cy_config_flag));
        return;
    case CY_KEY_TEXT:
    case CY_KEY_PATH:
        memset(field, 0, key->bytes);
        return;
    case CY_KEY_STAGES:
        config->distributed.pp_layer_count = 0;
        return;
    case CY_KEY_SOURCES:
        config->dataset.source_count = 0;
        return;
    case CY_KEY_ROPE:
        config->model.has_rope_scaling = false;
        return;
    case CY_KEY_BOOL:
    case CY_KEY_CHOICE:
    case CY_KEY_DTYPE:
    case CY_KEY_IGNORED:
        return; // these have a default in the table
    }
}

// ---- levels of instructions

static const char *const isa_names[CY_CONFIG_ISAS] = {
    "auto", "ref", "avx2", "avx512", "avx512_bf16", "amx", "neon"};

const char *cy_config_isa_name(cy_config_isa isa)
{
    return isa_names[isa];
}

cy_config_isa cy_config_isa_named(const char *name)
{
    int isa = 0;
    while (isa < CY_CONFIG_ISAS && strcmp(isa_names[isa], name) != 0)
        isa++;
    return (cy_config_isa)isa;
}
