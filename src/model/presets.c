#include "model/presets.h"

#include <string.h>
#include <strings.h>

// What Llama-like models without a word on it have.
#define PLAIN                                                                                      \
    .architecture = "llama", .norm_eps = 1e-5, .init_std = 0.02, .rope = {.theta = 1e4}, .bos = 0, \
    .eos = 0

static const struct {
    const char *name;
    const char *hub; // an id on the hub, with or without "-Instruct"
    cy_model_shape shape;
} presets[] = {
    {"tiny", NULL,
        {PLAIN, .layers = 2, .hidden = 64, .ffn = 160, .heads = 4, .kv_heads = 2, .head_dim = 16,
            .vocab = 512, .max_positions = 128, .tied = true}},
    {"demo", NULL,
        {PLAIN, .layers = 4, .hidden = 256, .ffn = 704, .heads = 4, .kv_heads = 2, .head_dim = 64,
            .vocab = 8192, .max_positions = 512, .tied = true}},
    {"smollm-135m", "HuggingFaceTB/SmolLM-135M",
        {PLAIN, .layers = 30, .hidden = 576, .ffn = 1536, .heads = 9, .kv_heads = 3, .head_dim = 64,
            .vocab = 49152, .max_positions = 2048, .tied = true}},
    {"smollm-360m", "HuggingFaceTB/SmolLM-360M",
        {PLAIN, .layers = 32, .hidden = 960, .ffn = 2560, .heads = 15, .kv_heads = 5,
            .head_dim = 64, .vocab = 49152, .max_positions = 2048, .tied = true}},
    {"smollm-1.7b", "HuggingFaceTB/SmolLM-1.7B",
        {PLAIN, .layers = 24, .hidden = 2048, .ffn = 8192, .heads = 32, .kv_heads = 32,
            .head_dim = 64, .vocab = 49152, .max_positions = 2048, .tied = true}},
    {"llama-3.2-1b", "meta-llama/Llama-3.2-1B",
        {.architecture = "llama",
            .norm_eps = 1e-5,
            .init_std = 0.02,
            .layers = 16,
            .hidden = 2048,
            .ffn = 8192,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 64,
            .vocab = 128256,
            .max_positions = 131072,
            .tied = true,
            .bos = 128000,
            .eos = 128001,
            .rope = {.theta = 5e5,
                .scaling = CY_ROPE_LLAMA3,
                .factor = 32,
                .low_freq_factor = 1,
                .high_freq_factor = 4,
                .original_length = 8192}}},
    {"llama-2-7b", "meta-llama/Llama-2-7b-hf",
        {.architecture = "llama",
            .norm_eps = 1e-5,
            .init_std = 0.02,
            .layers = 32,
            .hidden = 4096,
            .ffn = 11008,
            .heads = 32,
            .kv_heads = 32,
            .head_dim = 128,
            .vocab = 32000,
            .max_positions = 4096,
            .bos = 1,
            .eos = 2,
            .rope = {.theta = 1e4}}},
    {"llama-3-8b", "meta-llama/Meta-Llama-3-8B",
        {.architecture = "llama",
            .norm_eps = 1e-5,
            .init_std = 0.02,
            .layers = 32,
            .hidden = 4096,
            .ffn = 14336,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 128,
            .vocab = 128256,
            .max_positions = 8192,
            .bos = 128000,
            .eos = 128001,
            .rope = {.theta = 5e5}}},
};

#define PRESET_COUNT (sizeof(presets) / sizeof(presets[0]))

static bool is_hub_id(const char *name, const char *hub)
{
    if (hub == NULL) return false;
    const size_t length = strlen(hub);
    if (strncasecmp(name, hub, length) != 0) return false;
    return name[length] == '\0' || strcasecmp(name + length, "-Instruct") == 0;
}

bool cy_preset_find(cy_model_shape *shape, const char *name)
{
    for (size_t i = 0; i < PRESET_COUNT; i++) {
        if (strcasecmp(presets[i].name, name) == 0 || is_hub_id(name, presets[i].hub)) {
            *shape = presets[i].shape;
            return true;
        }
    }
    return false;
}

const char *cy_preset_name(size_t index)
{
    return index < PRESET_COUNT ? presets[index].name : NULL;
}
