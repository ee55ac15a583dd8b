// config/option_table.h: the table of configuration keys, and the value of one key.
//
// The table drives the reader of files, the command line, the resolved copy that is saved with each
// run, and docs/configuration.md. It has static storage; any thread may read it.

#ifndef CY_CONFIG_OPTION_TABLE_H
#define CY_CONFIG_OPTION_TABLE_H

#include "config/config.h"

#include <jansson.h>

typedef enum cy_key_kind {
    CY_KEY_INT,     // int
    CY_KEY_COUNT,   // int64_t
    CY_KEY_NUMBER,  // double
    CY_KEY_BOOL,    // bool
    CY_KEY_FLAG,    // cy_config_flag
    CY_KEY_CHOICE,  // an enum of `choices` values from 0, in the order of `values`
    CY_KEY_TEXT,    // char [bytes]
    CY_KEY_PATH,    // char [bytes]; "" is the same as absent
    CY_KEY_DTYPE,   // cy_dtype: one of the four floating-point types of models
    CY_KEY_STAGES,  // pp_layers with pp_layer_count
    CY_KEY_SOURCES, // dataset.sources with source_count
    CY_KEY_ROPE,    // model.rope_scaling with has_rope_scaling
    CY_KEY_IGNORED, // read and dropped
} cy_key_kind;

typedef struct cy_key {
    const char *section;
    const char *name;
    size_t offset;       // in cy_config
    size_t bytes;        // of the char array
    const char *initial; // the default, as --section.key= takes it; NULL: absent
    double low, high;    // the range, ends included; no upper limit if high <= low
    const char *values;  // CHOICE: "afab|1f1b"
    int choices;         // CHOICE: the values of its enum
    const char *others;  // PATH: names that it also accepts, "a, b"; NULL: none
    const char *doc;
    cy_key_kind kind;
    bool above, below; // the range excludes its lower, its upper end
    bool accepts_text; // numbers may be strings, as in environment variables
    bool hidden;       // an alias: read, never written
} cy_key;

// All keys, section by section, in the order of a written file.
const cy_key *cy_config_keys(int *count);

// NULL if no key has this name.
const cy_key *cy_config_key(const char *section, const char *name);

// The names of the sections, in order.
const char *const *cy_config_sections(int *count);

// The value of an integer field whose key is absent: one less than the least allowed value.
int64_t cy_key_absent(const cy_key *key);

// ---- the value of one key

// Reads a value into the key's field; null sets the default, or makes the key absent. Adds an error
// where the value is not accepted.
void cy_key_read(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value);

// The same for the text behind --section.key=: JSON, or plain text if the key accepts it. `text`
// need not be UTF-8.
void cy_key_read_text(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const char *text);

// Sets the field to the default.
void cy_key_set_default(cy_config *config, const cy_key *key);

// Appends the field as JSON: "null" if it is absent.
CY_MUST_CHECK cy_status cy_key_write(cy_text *json, const cy_config *config, const cy_key *key);

#endif
