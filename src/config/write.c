// Writes a configuration as JSON that starts the same run again, and the table of keys as a page.

#include "config/option_table.h"

#include <stdio.h>
#include <string.h>

// picotron's files have the same beginning and fewer keys.
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
        // With global_batch_size the accumulation follows from the mesh: its value would contradict
        // the batch size on another mesh.
        const bool follows = config->training.global_batch_size > 0 &&
            key->offset == offsetof(cy_config, training.gradient_accumulation_steps);
        CY_TRY(follows ? cy_text_add(json, "null") : cy_key_write(json, config, key));
    }
    return cy_text_add(json, "\n    }\n}\n");
}

// ---- the page

// Writes "a|b" as "a, b".
static void list_choices(char *text, size_t bytes, const char *values)
{
    size_t length = 0;
    for (const char *c = values; *c != '\0' && length + 3 < bytes; c++) {
        text[length++] = *c == '|' ? ',' : *c;
        if (*c == '|') text[length++] = ' ';
    }
    text[length] = '\0';
}

// Describes the values of a key: "1 to 65536", "afab, 1f1b", "text".
static void describe_values(char *text, size_t bytes, const cy_key *key)
{
    switch (key->kind) {
    case CY_KEY_INT:
    case CY_KEY_COUNT:
    case CY_KEY_NUMBER:
        if (key->high > key->low) {
            snprintf(text, bytes, "%s%.15g to %s%.15g", key->above ? "above " : "", key->low,
                key->below ? "below " : "", key->high);
        } else {
            snprintf(text, bytes, "%s %.15g", key->above ? "above" : "at least", key->low);
        }
        return;
    case CY_KEY_BOOL:
    case CY_KEY_FLAG:
        snprintf(text, bytes, key->accepts_text ? "0, 1" : "true, false");
        return;
    case CY_KEY_CHOICE:
        list_choices(text, bytes, key->values);
        return;
    case CY_KEY_DTYPE:
        snprintf(text, bytes, "bf16, fp16, fp32, fp64");
        return;
    case CY_KEY_PATH:
        snprintf(text, bytes, "path%s%s", key->others != NULL ? ", or one of " : "",
            key->others != NULL ? key->others : "");
        return;
    case CY_KEY_STAGES:
        snprintf(text, bytes, "list, as [3,1]");
        return;
    case CY_KEY_SOURCES:
        snprintf(text, bytes, "path, list");
        return;
    case CY_KEY_ROPE:
        snprintf(text, bytes, "object");
        return;
    case CY_KEY_TEXT:
    case CY_KEY_IGNORED:
        snprintf(text, bytes, "text");
        return;
    }
}

cy_status cy_config_doc_text(cy_text *page)
{
    int count;
    const cy_key *keys = cy_config_keys(&count);
    for (int i = 0; i < count; i++) {
        char name[96];
        char values[256];
        snprintf(name, sizeof(name), "%s.%s", keys[i].section, keys[i].name);
        describe_values(values, sizeof(values), &keys[i]);
        CY_TRY(cy_text_add(page, "%-42s %s\n", name, keys[i].doc));
        CY_TRY(cy_text_add(page, "%-42s   %s%s%s\n", "", values,
            keys[i].initial != NULL ? "; default " : "",
            keys[i].initial != NULL ? keys[i].initial : ""));
    }
    return CY_OK;
}

cy_status cy_config_doc_markdown(cy_text *page)
{
    int count;
    const cy_key *keys = cy_config_keys(&count);
    const char *section = "";
    CY_TRY(cy_text_add(page,
        "# Configuration\n\n"
        "This page is made by the program: `cyclotron config show --markdown`.\n\n"
        "A run is described by one JSON file of sections. Each key can also be given on the\n"
        "command line as `--section.key=value`, which wins over the file; lists and objects\n"
        "are JSON in quotes there: `--distributed.pp_layers='[3,1]'`. `null` is the same as\n"
        "leaving a key out, and so is an empty text for a path. Unknown sections and keys are\n"
        "errors; all errors are reported at once. `cyclotron config check CONFIG` looks for\n"
        "them, and where there are none opens the data and the checkpoint that training would\n"
        "begin with; `cyclotron config show CONFIG` prints what the configuration comes to.\n\n"
        "The global batch, in samples, is `micro_batch_size x gradient_accumulation_steps x\n"
        "dp_size`.\n"));
    for (int i = 0; i < count; i++) {
        const cy_key *key = &keys[i];
        if (strcmp(section, key->section) != 0) {
            section = key->section;
            CY_TRY(cy_text_add(
                page, "\n## %s\n\n| key | takes | default | |\n|---|---|---|---|\n", section));
        }
        char values[256];
        describe_values(values, sizeof(values), key);
        CY_TRY(cy_text_add(page, "| `%s` | %s | %s%s%s | %s |\n", key->name, values,
            key->initial != NULL ? "`" : "", key->initial != NULL ? key->initial : "",
            key->initial != NULL ? "`" : "", key->doc));
    }
    return CY_OK;
}

cy_status cy_config_doc_words(cy_text *page)
{
    int count;
    const cy_key *keys = cy_config_keys(&count);
    for (int i = 0; i < count; i++) {
        CY_TRY(cy_text_add(page, "--%s.%s=\n", keys[i].section, keys[i].name));
    }
    return CY_OK;
}
