// Reads the value of one key from JSON, or from the text behind --section.key=, into its field, and
// writes the field as JSON.

#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/option_table.h"

#include <ctype.h>
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

// The position of `word` in "a|b|c", or -1.
static int choice_of(const char *values, const char *word)
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

// Describes the accepted values: "a whole number from 1 to 64".
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

// Adds the error that a key does not take this value, which is shown as JSON and cut if long.
static void wrong_value(
    cy_config_errors *errors, const cy_key *key, const json_t *value, const char *wanted)
{
    cy_text shown = {0};
    const cy_status status =
        cy_json_add(&shown, json_deep_copy(value), JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (status == CY_OK) {
        cy_config_add_error(errors, "%s.%s = %.120s%s: %s", key->section, key->name, shown.bytes,
            shown.length > 120 ? "..." : "", wanted);
    } else {
        cy_config_add_error_of(errors, status, "%s", cy_error_text());
    }
    cy_text_free(&shown);
}

static bool number_in_range(const cy_key *key, double number)
{
    if (!isfinite(number)) return false;
    if (key->above ? number <= key->low : number < key->low) return false;
    if (key->high <= key->low) return true;
    return key->below ? number < key->high : number <= key->high;
}

// Reads the number of a value. Only keys that accept texts take it from a text.
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
        const int narrow = (int)whole; // the range in the table is that of an int
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
    const int choice = choice_of(key->values, word);
    if (choice >= 0) {
        CY_ASSERT(choice < key->choices); // the enum has a value for this word
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

// Copies a text into a char array of `bytes`; adds an error and returns false if it is too long.
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

// ---- model.rope_scaling

// The numbers of rope_scaling, with the names that config.json gives them.
static const struct {
    const char *name;
    size_t offset;
    unsigned takes; // bit 1 << cy_rope_scaling for each kind that has it
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

// Reads one entry into the shape; adds an error where it is not a valid one.
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

static void read_rope(cy_config *config, cy_config_errors *errors, const json_t *value)
{
    const json_t *kind = json_object_get(value, "rope_type");
    if (kind == NULL) kind = json_object_get(value, "type"); // the older name
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
    // Numbers that a kind does not have stay 0, as in the shape of a checkpoint.
    cy_rope_shape rope = {.scaling = (cy_rope_scaling)scaling};
    if (rope.scaling == CY_ROPE_YARN) {
        rope.beta_fast = 32;
        rope.beta_slow = 1;
    }
    const int before = errors->count;
    const char *name;
    json_t *entry;
    // jansson's loop needs an object without const. It does not change it.
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

// ---- any key

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
        read_rope(config, errors, value);
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

// ---- writing

static cy_status write_number(cy_text *json, double number)
{
    return cy_text_add(json, "%s", cy_json_number_shortest(number).bytes);
}

static cy_status write_rope(cy_text *json, const cy_rope_shape *rope)
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
        CY_TRY(write_number(json, number));
    }
    return cy_text_add(json, "}");
}

static cy_status write_sources(cy_text *json, const cy_config_dataset *dataset)
{
    if (dataset->source_count == 0) return cy_text_add(json, "null");
    if (dataset->source_count == 1 &&
        (dataset->sources[0].weight == 0 || dataset->sources[0].weight == 1)) {
        return cy_text_add_json_string(
            json, dataset->sources[0].path, strlen(dataset->sources[0].path));
    }
    for (int i = 0; i < dataset->source_count; i++) {
        CY_TRY(cy_text_add(json, i == 0 ? "[{\"path\": " : ", {\"path\": "));
        CY_TRY(cy_text_add_json_string(
            json, dataset->sources[i].path, strlen(dataset->sources[i].path)));
        if (dataset->sources[i].weight > 0) {
            CY_TRY(cy_text_add(json, ", \"weight\": "));
            CY_TRY(write_number(json, dataset->sources[i].weight));
        }
        CY_TRY(cy_text_add(json, "}"));
    }
    return cy_text_add(json, "]");
}

static cy_status write_stages(cy_text *json, const cy_config_distributed *distributed)
{
    if (distributed->pp_layer_count == 0) return cy_text_add(json, "null");
    for (int i = 0; i < distributed->pp_layer_count; i++) {
        CY_TRY(cy_text_add(json, "%s%d", i == 0 ? "[" : ", ", distributed->pp_layers[i]));
    }
    return cy_text_add(json, "]");
}

// The word at position `choice` of "a|b|c".
static cy_status write_choice(cy_text *json, const char *values, int choice)
{
    for (int i = 0; i < choice; i++)
        values = strchr(values, '|') + 1;
    return cy_text_add(json, "\"%.*s\"", (int)strcspn(values, "|"), values);
}

static cy_status write_whole(cy_text *json, const cy_key *key, const char *field)
{
    int64_t whole;
    if (key->kind == CY_KEY_INT) {
        int narrow;
        memcpy(&narrow, field, sizeof(narrow));
        whole = narrow;
    } else {
        memcpy(&whole, field, sizeof(whole));
    }
    if (key->initial == NULL && whole == cy_key_absent(key)) return cy_text_add(json, "null");
    return cy_text_add(json, "%lld", (long long)whole);
}

cy_status cy_key_write(cy_text *json, const cy_config *config, const cy_key *key)
{
    const char *field = (const char *)config + key->offset;
    int choice;
    double number;
    switch (key->kind) {
    case CY_KEY_INT:
    case CY_KEY_COUNT:
        return write_whole(json, key, field);
    case CY_KEY_NUMBER:
        memcpy(&number, field, sizeof(number));
        if (key->initial == NULL && number == 0) return cy_text_add(json, "null");
        return write_number(json, number);
    case CY_KEY_BOOL:
        return cy_text_add(json, *(const bool *)field ? "true" : "false");
    case CY_KEY_FLAG:
        memcpy(&choice, field, sizeof(choice));
        return choice == CY_CONFIG_ABSENT ? cy_text_add(json, "null")
                                          : cy_text_add(json, choice ? "true" : "false");
    case CY_KEY_CHOICE:
        memcpy(&choice, field, sizeof(choice));
        CY_ASSERT(0 <= choice && choice < key->choices);
        return write_choice(json, key->values, choice);
    case CY_KEY_TEXT:
    case CY_KEY_PATH:
        return field[0] == '\0' ? cy_text_add(json, "null")
                                : cy_text_add_json_string(json, field, strlen(field));
    case CY_KEY_DTYPE:
        return cy_text_add(json, "\"%s\"", cy_dtype_name(config->model.dtype));
    case CY_KEY_STAGES:
        return write_stages(json, &config->distributed);
    case CY_KEY_SOURCES:
        return write_sources(json, &config->dataset);
    case CY_KEY_ROPE:
        if (!config->model.has_rope_scaling) return cy_text_add(json, "null");
        return write_rope(json, &config->model.rope_scaling);
    case CY_KEY_IGNORED:
        break;
    }
    return cy_text_add(json, "null");
}
