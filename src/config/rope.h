// config/rope.h: model.rope_scaling, the one key whose value is an object of its own.

#ifndef CY_CONFIG_ROPE_H
#define CY_CONFIG_ROPE_H

#include "config/value.h"

void cy_key_read_rope(cy_config *config, cy_config_errors *errors, const json_t *value);
CY_MUST_CHECK cy_status cy_key_write_rope(cy_text *json, const cy_rope_shape *rope);

#endif
