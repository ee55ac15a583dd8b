// config/value.h: one value of a configuration: from JSON into its field and back.

#ifndef CY_CONFIG_VALUE_H
#define CY_CONFIG_VALUE_H

#include "config/table.h"

#include <jansson.h>

// Reads a value into the key's field; null leaves it absent, or at its default. Faults are noted.
void cy_key_read(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const json_t *value);

// The same for the text behind --section.key=, which is JSON, or a plain text where the key takes
// one. `text` need not be UTF-8.
void cy_key_read_text(
    cy_config *config, cy_config_errors *errors, const cy_key *key, const char *text);

// Sets the field to the default.
void cy_key_set_default(cy_config *config, const cy_key *key);

// Appends the field as JSON: "null" where it is absent.
CY_MUST_CHECK cy_status cy_key_write(cy_text *json, const cy_config *config, const cy_key *key);

// Appends a number so that it reads back as the same double.
CY_MUST_CHECK cy_status cy_config_json_number(cy_text *json, double number);

// The position of `word` in "a|b|c", or -1.
int cy_key_choice(const char *values, const char *word);

#endif
