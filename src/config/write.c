// A configuration as JSON that starts the same run again.

#include "base/assert.h"
#include "config/rope.h"
#include "config/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cy_status cy_config_json_number(cy_text *json, double number)
{
    return cy_text_add(json, "%s", cy_json_number_shortest(number).bytes);
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
            CY_TRY(cy_config_json_number(json, dataset->sources[i].weight));
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
        return cy_config_json_number(json, number);
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
        return cy_key_write_rope(json, &config->model.rope_scaling);
    case CY_KEY_IGNORED:
        break;
    }
    return cy_text_add(json, "null");
}

// picotron's files begin alike and have fewer keys.
const cy_output_kind cy_config_kind = {
    .name = "a configuration",
    .marks = {{.begins = "{\n    \"distributed\": {\n        \"tp_size\": ",
        .holds = ",\n        \"bucket_mb\": ",
        .ends = "\n    }\n}\n"}},
};

cy_status cy_config_to_json(cy_text *json, const cy_config *config)
{
    int count;
    const cy_key *keys = cy_config_keys(&count);
    const char *section = "";
    CY_TRY(cy_text_add(json, "{"));
    for (int i = 0; i < count; i++) {
        const cy_key *key = &keys[i];
        if (key->hidden) continue;
        if (strcmp(section, key->section) != 0) {
            CY_TRY(cy_text_add(
                json, "%s\n    \"%s\": {", section[0] != '\0' ? "\n    }," : "", key->section));
            section = key->section;
        } else {
            CY_TRY(cy_text_add(json, ","));
        }
        CY_TRY(cy_text_add(json, "\n        \"%s\": ", key->name));
        // The batch of the run was fixed by global_batch_size: the accumulation that it came to
        // would contradict it as soon as the mesh is another.
        const bool follows = config->training.global_batch_size > 0 &&
            key->offset == offsetof(cy_config, training.gradient_accumulation_steps);
        CY_TRY(follows ? cy_text_add(json, "null") : cy_key_write(json, config, key));
    }
    return cy_text_add(json, "\n    }\n}\n");
}
