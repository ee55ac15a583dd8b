// Fills a configuration from its JSON file and from --section.key=value, and collects all errors.

#include "base/file.h"
#include "base/text.h"
#include "config/option_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- errors and hints

// Longer than any message. Longer text of a user is cut.
#define LINE_BYTES 1536

__attribute__((format(printf, 3, 0))) static void add_line(
    cy_config_errors *errors, const char *before, const char *format, va_list args)
{
    char line[LINE_BYTES];
    vsnprintf(line, sizeof(line), format, args);
    // A value with a line break in it must not look like two faults.
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r') *c = ' ';
    }
    const cy_status status = cy_text_add(&errors->lines, "%s%s\n", before, line);
    if (status != CY_OK) errors->broken = status;
}

void cy_config_add_error(cy_config_errors *errors, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_line(errors, "", format, arguments);
    va_end(arguments);
    errors->count++;
}

void cy_config_add_hint(cy_config_errors *errors, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_line(errors, "  ", format, arguments);
    va_end(arguments);
}

void cy_config_add_error_of(cy_config_errors *errors, cy_status status, const char *format, ...)
{
    if (status == CY_ERR_MEMORY) { // not an error of the user
        errors->broken = status;
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    add_line(errors, "", format, arguments);
    va_end(arguments);
    errors->count++;
    if (cy_error_hint()[0] != '\0') cy_config_add_hint(errors, "%s", cy_error_hint());
}

cy_status cy_config_errors_status(const cy_config_errors *errors)
{
    if (errors->broken != CY_OK) {
        return CY_FAIL(errors->broken, "configuration: no memory to read and check it");
    }
    if (errors->count == 0) return CY_OK;
    // The text ends without the last line break.
    return CY_FAIL(CY_ERR_REQUEST, "%.*s", (int)(errors->lines.length - 1), errors->lines.bytes);
}

void cy_config_errors_free(cy_config_errors *errors)
{
    cy_text_free(&errors->lines);
    *errors = (cy_config_errors){0};
}

// ---- the file and the overrides

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define KEYS_MAX       128

void cy_config_defaults(cy_config *config)
{
    *config = (cy_config){0};
    int count;
    const cy_key *keys = cy_config_keys(&count);
    for (int i = 0; i < count; i++)
        cy_key_set_default(config, &keys[i]);
}

static bool is_section(const char *name)
{
    int count;
    const char *const *sections = cy_config_sections(&count);
    for (int i = 0; i < count; i++) {
        if (strcmp(sections[i], name) == 0) return true;
    }
    return false;
}

static void unknown_section(cy_config_errors *errors, const char *name)
{
    int count;
    const char *const *sections = cy_config_sections(&count);
    const char *nearest = cy_nearest(name, sections, (size_t)count);
    cy_config_add_error(errors, "%.100s: no such section", name);
    if (nearest != NULL) {
        cy_config_add_hint(errors, "did you mean %s?", nearest);
    } else {
        cy_config_add_hint(errors,
            "the sections are distributed, model, training, dataset, checkpoint, logging, "
            "environment");
    }
}

static void unknown_key(cy_config_errors *errors, const char *section, const char *name)
{
    int count;
    const cy_key *keys = cy_config_keys(&count);
    cy_config_add_error(errors, "%s.%.100s: no such key", section, name);
    // First look for the same name in other sections: that is likelier than a wrong name.
    const char *names[KEYS_MAX];
    size_t name_count = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            cy_config_add_hint(errors, "did you mean %s.%s?", keys[i].section, name);
            return;
        }
        if (strcmp(keys[i].section, section) == 0 && name_count < KEYS_MAX) {
            names[name_count++] = keys[i].name;
        }
    }
    const char *nearest = cy_nearest(name, names, name_count);
    if (nearest != NULL) {
        cy_config_add_hint(errors, "did you mean %s.%s?", section, nearest);
        return;
    }
    for (name_count = 0; name_count < (size_t)count && name_count < KEYS_MAX; name_count++) {
        names[name_count] = keys[name_count].name;
    }
    nearest = cy_nearest(name, names, name_count);
    for (int i = 0; i < count && nearest != NULL; i++) {
        if (keys[i].name == nearest) {
            cy_config_add_hint(errors, "did you mean %s.%s?", keys[i].section, nearest);
        }
    }
    if (nearest == NULL) {
        cy_config_add_hint(errors, "'cyclotron config show --keys' lists what there is");
    }
}

static void read_section(
    cy_config *config, cy_config_errors *errors, const char *section, json_t *object)
{
    if (!is_section(section)) {
        unknown_section(errors, section);
        return;
    }
    if (json_is_null(object)) return;
    if (!json_is_object(object)) {
        cy_config_add_error(errors, "%s: an object of keys is wanted", section);
        return;
    }
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const cy_key *key = cy_config_key(section, name);
        if (key == NULL) {
            unknown_key(errors, section, name);
        } else {
            cy_key_read(config, errors, key, value);
        }
    }
}

static void read_text(
    cy_config *config, cy_config_errors *errors, const char *text, size_t length, const char *name)
{
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { // some editors begin with a mark
        text += 3;
        length -= 3;
    }
    json_error_t fault;
    json_t *file = json_loadb(text, length, JSON_REJECT_DUPLICATES, &fault);
    if (file == NULL) {
        errors->unreadable = true;
        cy_config_add_error(
            errors, "%s: line %d, column %d: %s", name, fault.line, fault.column, fault.text);
        return;
    }
    if (!json_is_object(file)) {
        cy_config_add_error(errors, "%s: an object of sections is wanted", name);
    } else {
        const char *section;
        json_t *object;
        json_object_foreach(file, section, object)
        {
            read_section(config, errors, section, object);
        }
    }
    json_decref(file);
}

// An override in its parts: "section.some-key=value" is section, some_key and value.
typedef struct override {
    char section[64];
    char name[64];
    const char *value; // borrowed
} override;

static bool split_override(override *parts, const char *text)
{
    const size_t section_length = strcspn(text, ".=");
    const size_t key_length =
        text[section_length] == '.' ? strcspn(text + section_length + 1, "=") : 0;
    const char *after = text + section_length + 1 + key_length;
    if (key_length == 0 || *after != '=' || section_length >= sizeof(parts->section) ||
        key_length >= sizeof(parts->name)) {
        return false;
    }
    *parts = (override){.value = after + 1};
    memcpy(parts->section, text, section_length);
    memcpy(parts->name, text + section_length + 1, key_length);
    for (char *c = parts->name; *c != '\0'; c++) {
        if (*c == '-') *c = '_';
    }
    return true;
}

// Some settings have two keys. Where the command line sets one of them, this drops the value of the
// other key that the file gave. null sets nothing.
static void discard_file_value(cy_config *config, const char *text)
{
    static const struct {
        const char *section, *name;             // of the option
        const char *other_section, *other_name; // of the file
    } pairs[] = {
        {"distributed", "threads_per_rank", "environment", "OMP_NUM_THREADS"},
        {"environment", "OMP_NUM_THREADS", "distributed", "threads_per_rank"},
        {"model", "use_flash_attention", "environment", "FLASH_ATTEN"},
        {"model", "hidden_size", "model", "head_dim"},
        {"model", "num_attention_heads", "model", "head_dim"},
        {"training", "global_batch_size", "training", "gradient_accumulation_steps"},
        {"training", "gradient_accumulation_steps", "training", "global_batch_size"},
    };
    override parts;
    if (!split_override(&parts, text) || strcmp(parts.value, "null") == 0) return;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (strcmp(pairs[i].section, parts.section) == 0 &&
            strcmp(pairs[i].name, parts.name) == 0) {
            cy_key_set_default(config, cy_config_key(pairs[i].other_section, pairs[i].other_name));
        }
    }
}

static void read_override(cy_config *config, cy_config_errors *errors, const char *text)
{
    override parts;
    if (!split_override(&parts, text)) {
        cy_config_add_error(errors, "--%.100s: --section.key=value is wanted", text);
        return;
    }
    const cy_key *key = cy_config_key(parts.section, parts.name);
    if (key != NULL) {
        cy_key_read_text(config, errors, key, parts.value);
    } else if (is_section(parts.section)) {
        unknown_key(errors, parts.section, parts.name);
    } else {
        unknown_section(errors, parts.section);
    }
}

cy_status cy_config_read(cy_config *config, cy_config_errors *errors, const char *text,
    size_t length, const char *name, const char *const *overrides, int override_count)
{
    cy_config_defaults(config);
    if (text != NULL) read_text(config, errors, text, length, name);
    for (int i = 0; i < override_count; i++)
        discard_file_value(config, overrides[i]);
    for (int i = 0; i < override_count; i++)
        read_override(config, errors, overrides[i]);
    return cy_config_errors_status(errors);
}

// Whether the next step runs, to find more errors of the request.
static bool goes_on(cy_status status, const cy_config_errors *errors)
{
    return status == CY_OK || (status == CY_ERR_REQUEST && !errors->unreadable);
}

cy_status cy_config_load(cy_config *config, cy_config_errors *errors, const char *path,
    const char *const *overrides, int override_count, cy_config_purpose purpose,
    const cy_config_machine *machine)
{
    cy_text text = {0};
    cy_status status = cy_file_read(&text, path, FILE_BYTES_MAX);
    if (status != CY_OK) {
        cy_config_add_error_of(errors, status, "configuration: %s", cy_error_text());
        return cy_config_errors_status(errors);
    }
    status =
        cy_config_read(config, errors, text.bytes, text.length, path, overrides, override_count);
    cy_text_free(&text);
    if (goes_on(status, errors)) status = cy_config_resolve(config, errors);
    if (goes_on(status, errors)) status = cy_config_check(config, errors, purpose, machine);
    return status;
}
