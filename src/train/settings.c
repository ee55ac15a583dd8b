// Compares the settings of a run with those that its checkpoint was trained with.
#include "train/settings.h"

#include "base/memory.h"
#include "config/option_table.h"

#include <string.h>

// When a difference matters.
typedef enum relevance {
    ALWAYS,
    TOPK,     // gradients are compressed by top-k now
    RATE_END, // the learning rate falls towards the end of the run
} relevance;

static const struct {
    const char *section, *name;
    relevance when;
} settings[] = {
    {"model", "dtype", ALWAYS},
    {"training", "learning_rate", ALWAYS},
    {"training", "min_learning_rate", ALWAYS},
    {"training", "lr_schedule", ALWAYS},
    {"training", "warmup_steps", ALWAYS},
    {"training", "lr_decay_steps", ALWAYS},
    {"training", "total_train_steps", RATE_END},
    {"training", "max_tokens", RATE_END},
    {"training", "weight_decay", ALWAYS},
    {"training", "adam_beta1", ALWAYS},
    {"training", "adam_beta2", ALWAYS},
    {"training", "adam_eps", ALWAYS},
    {"training", "grad_clip", ALWAYS},
    {"training", "strict", ALWAYS},
    {"distributed", "compression", ALWAYS},
    {"distributed", "topk_ratio", TOPK},
    {"distributed", "topk_warmup_steps", TOPK},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static bool matters(const cy_config *config, relevance when)
{
    const cy_config_training *training = &config->training;
    switch (when) {
    case TOPK:
        return config->distributed.compression == CY_COMPRESSION_TOPK;
    case RATE_END:
        if (training->lr_schedule == CY_LR_WSD) return true;
        return training->lr_schedule != CY_LR_CONSTANT && training->lr_decay_steps == 0;
    case ALWAYS:
        break;
    }
    return true;
}

static cy_status compare_key(cy_text *lines, const cy_config *now, const cy_config *then,
    const cy_key *key, const char *path)
{
    cy_text here = {0}, there = {0};
    cy_status status = cy_key_write(&here, now, key);
    if (status == CY_OK) status = cy_key_write(&there, then, key);
    if (status == CY_OK && strcmp(here.bytes, there.bytes) != 0) {
        status = cy_text_add(lines, "%s.%s is %s, %s was trained with %s\n", key->section,
            key->name, here.bytes, path, there.bytes);
    }
    cy_text_free(&here);
    cy_text_free(&there);
    return status;
}

static cy_status compare(
    cy_text *lines, const cy_config *now, const cy_config *then, const char *path)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        const cy_key *key = cy_config_key(settings[i].section, settings[i].name);
        if (!matters(now, settings[i].when)) continue;
        CY_TRY(compare_key(lines, now, then, key, path));
    }
    return CY_OK;
}

cy_status cy_settings_compare(
    cy_text *lines, const cy_config *config, const cy_checkpoint *checkpoint)
{
    const char *json = checkpoint->config_json;
    if (json == NULL) return CY_OK;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_config)));
    cy_config *then = block;
    cy_config_errors errors = {0};
    cy_status status = cy_config_read(then, &errors, json, strlen(json), checkpoint->path, NULL, 0);
    if (status == CY_OK) {
        status = compare(lines, config, then, checkpoint->path);
    } else if (status != CY_ERR_MEMORY) {
        status = cy_text_add(lines,
            "%s keeps a configuration that this program does not read: its settings are not "
            "compared\n",
            checkpoint->path);
    }
    cy_config_errors_free(&errors);
    cy_memory_free(then);
    return status;
}
