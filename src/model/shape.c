// Checks the shape of a model; the shapes that are known by name; rotary frequencies.

#include "model/shape.h"

#include "base/text.h"
#include "kernel/kernel.h"
#include "kernel/strict/math.h"

#include <math.h>
#include <string.h>
#include <strings.h>

// ---- checking

// Adds a line to the list of contradictions when `wrong` holds.
#define COMPLAIN(text, wrong, ...)                                                                 \
    do {                                                                                           \
        if (wrong) CY_TRY(cy_text_add((text), __VA_ARGS__));                                       \
    } while (0)

static cy_status check_sizes(cy_text *text, const cy_model_shape *shape)
{
    COMPLAIN(
        text, shape->layers < 1, "num_hidden_layers is %d, at least 1 is needed\n", shape->layers);
    COMPLAIN(text, shape->layers > CY_LAYERS_MAX,
        "num_hidden_layers is %d, models have at most %d\n", shape->layers, CY_LAYERS_MAX);
    COMPLAIN(text, shape->hidden < 1, "hidden_size is %lld, at least 1 is needed\n",
        (long long)shape->hidden);
    COMPLAIN(text, shape->ffn < 1, "intermediate_size is %lld, at least 1 is needed\n",
        (long long)shape->ffn);
    COMPLAIN(text, shape->vocab < 1, "vocab_size is %lld, at least 1 is needed\n",
        (long long)shape->vocab);
    COMPLAIN(text, shape->head_dim < 2 || shape->head_dim % 2 != 0,
        "head_dim is %lld: rotary positions turn pairs, so it must be even\n",
        (long long)shape->head_dim);
    COMPLAIN(text, shape->head_dim > CY_HEAD_DIM_MAX, "head_dim is %lld, heads have at most %d\n",
        (long long)shape->head_dim, CY_HEAD_DIM_MAX);
    COMPLAIN(
        text, shape->norm_eps <= 0, "rms_norm_eps is %g, it must be above 0\n", shape->norm_eps);
    return CY_OK;
}

static cy_status check_heads(cy_text *text, const cy_model_shape *shape)
{
    COMPLAIN(
        text, shape->heads < 1, "num_attention_heads is %d, at least 1 is needed\n", shape->heads);
    COMPLAIN(text, shape->kv_heads < 1, "num_key_value_heads is %d, at least 1 is needed\n",
        shape->kv_heads);
    if (shape->heads < 1 || shape->kv_heads < 1) return CY_OK;
    COMPLAIN(text, shape->heads % shape->kv_heads != 0,
        "num_attention_heads %d is not a multiple of num_key_value_heads %d\n", shape->heads,
        shape->kv_heads);
    return CY_OK;
}

cy_status cy_model_shape_check(const cy_model_shape *shape)
{
    cy_text text = {0};
    cy_status status = check_sizes(&text, shape);
    if (status == CY_OK) status = check_heads(&text, shape);
    if (status == CY_OK && text.length > 0) {
        text.bytes[text.length - 1] = '\0';
        status = CY_FAIL(CY_ERR_REQUEST, "%s", text.bytes);
    }
    cy_text_free(&text);
    return status;
}

// ---- presets

// Values that most Llama-like models have.
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

// ---- rotary frequencies

#define PI 3.14159265358979323846

// x^y for x > 0. The system's pow is not used: strict mode promises the same bits on every
// processor and with every mathematics library.
static double power_of(double x, double y)
{
    return cy_strict_exp(y * cy_strict_log(x));
}

static void fill_unscaled(double *inv_freq, double theta, int64_t head_dim)
{
    for (int64_t i = 0; i < head_dim / 2; i++) {
        inv_freq[i] = power_of(theta, -2.0 * (double)i / (double)head_dim);
    }
}

// Wavelengths above the original length over low_freq_factor are stretched by the factor, those
// below the original length over high_freq_factor stay, and between them the two are mixed.
static void scale_llama3(double *inv_freq, const cy_rope_shape *rope, int64_t head_dim)
{
    const double length = (double)rope->original_length;
    const double long_wave = length / rope->low_freq_factor;
    const double short_wave = length / rope->high_freq_factor;
    for (int64_t i = 0; i < head_dim / 2; i++) {
        const double wave = 2.0 * PI / inv_freq[i];
        if (wave < short_wave) continue;
        const double stretched = inv_freq[i] / rope->factor;
        if (wave > long_wave) {
            inv_freq[i] = stretched;
            continue;
        }
        const double smooth = (length / wave - rope->low_freq_factor) /
            (rope->high_freq_factor - rope->low_freq_factor);
        inv_freq[i] = (1.0 - smooth) * stretched + smooth * inv_freq[i];
    }
}

// The pair whose wave turns `rotations` times within the original length.
static double yarn_pair(const cy_rope_shape *rope, int64_t head_dim, double rotations)
{
    return (double)head_dim *
        cy_strict_log((double)rope->original_length / (rotations * 2.0 * PI)) /
        (2.0 * cy_strict_log(rope->theta));
}

static double scale_yarn(double *inv_freq, const cy_rope_shape *rope, int64_t head_dim)
{
    const double last = (double)(head_dim - 1);
    const double low = fmax(floor(yarn_pair(rope, head_dim, rope->beta_fast)), 0.0);
    double high = fmin(ceil(yarn_pair(rope, head_dim, rope->beta_slow)), last);
    if (high <= low) high = low + 0.001; // a ramp of no width would divide by zero
    for (int64_t i = 0; i < head_dim / 2; i++) {
        const double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        inv_freq[i] = inv_freq[i] / rope->factor * ramp + inv_freq[i] * (1.0 - ramp);
    }
    if (rope->attention_factor > 0) return rope->attention_factor;
    return rope->factor > 1.0 ? 0.1 * cy_strict_log(rope->factor) + 1.0 : 1.0;
}

double cy_rope_frequencies(double *inv_freq, const cy_model_shape *shape, int64_t length)
{
    const cy_rope_shape *rope = &shape->rope;
    const int64_t head_dim = shape->head_dim;
    double theta = rope->theta;
    if (rope->scaling == CY_ROPE_DYNAMIC && length > rope->original_length) {
        const double grown =
            rope->factor * (double)length / (double)rope->original_length - (rope->factor - 1.0);
        theta *= power_of(grown, (double)head_dim / (double)(head_dim - 2));
    }
    fill_unscaled(inv_freq, theta, head_dim);
    switch (rope->scaling) {
    case CY_ROPE_PLAIN:
    case CY_ROPE_DYNAMIC:
        return 1.0;
    case CY_ROPE_LINEAR:
        for (int64_t i = 0; i < head_dim / 2; i++)
            inv_freq[i] /= rope->factor;
        return 1.0;
    case CY_ROPE_LLAMA3:
        scale_llama3(inv_freq, rope, head_dim);
        return 1.0;
    case CY_ROPE_YARN:
        return scale_yarn(inv_freq, rope, head_dim);
    }
    return 1.0;
}
