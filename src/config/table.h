// config/table.h: the one table of configuration keys.
//
// The file's reader, the command line, the resolved dump and docs/configuration.md are all made
// from it. Static storage; any thread.

#ifndef CY_CONFIG_TABLE_H
#define CY_CONFIG_TABLE_H

#include "config/config.h"

typedef enum cy_key_kind {
    CY_KEY_INT,     // int
    CY_KEY_COUNT,   // int64_t
    CY_KEY_NUMBER,  // double
    CY_KEY_BOOL,    // bool
    CY_KEY_FLAG,    // cy_config_flag
    CY_KEY_CHOICE,  // an enum of `choices` values from 0, in the order of `values`
    CY_KEY_TEXT,    // char [bytes]
    CY_KEY_PATH,    // char [bytes]; "" is the same as absent
    CY_KEY_DTYPE,   // cy_dtype, one of the four floating ones that models compute in
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
    double low, high;    // the range, ends included; no upper limit where high <= low
    const char *values;  // CHOICE: "afab|1f1b"
    int choices;         // CHOICE: the values of its enum
    const char *others;  // PATH: names that it takes too, "a, b"; NULL: none
    const char *doc;
    cy_key_kind kind;
    bool above, below; // the lower, the upper end is itself left out
    bool accepts_text; // numbers may be written as texts, as environment variables are
    bool hidden;       // another name of a key: read, never written
} cy_key;

// All keys, section by section, in the order in which they are written.
const cy_key *cy_config_keys(int *count);

// NULL when there is none of that name.
const cy_key *cy_config_key(const char *section, const char *name);

// The names of the sections, in order.
const char *const *cy_config_sections(int *count);

// What an integer field holds where its key is absent: one less than the least value allowed.
int64_t cy_key_absent(const cy_key *key);

#endif
