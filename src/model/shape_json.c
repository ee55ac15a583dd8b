// Reads and writes the shape of a model as Hugging Face's config.json, and compares two shapes.

#define _GNU_SOURCE
#include "model/shape.h"

#include "base/file.h"
#include "base/memory.h"
#include "kernel/strict/math.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- families of models, and the keys of their config.json

static const cy_model_family families[] = {
    {
        .model_type = "llama",
        .architecture = "LlamaForCausalLM",
        .bias_key = true,
        .max_positions = 2048,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
        .bos = 1,
        .eos = 2,
    },
    {
        .model_type = "mistral",
        .architecture = "MistralForCausalLM",
        .window = CY_WINDOW_DIRECT,
        .window_default = 4096,
        .kv_heads = 8,
        .max_positions = 131072,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
        .bos = 1,
        .eos = 2,
    },
    {
        .model_type = "qwen2",
        .architecture = "Qwen2ForCausalLM",
        .qkv_bias = true,
        .window = CY_WINDOW_OPTIONAL,
        .kv_heads = 32,
        .max_positions = 32768,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
        .bos = -1,
        .eos = -1,
    },
    {
        .model_type = "qwen3",
        .architecture = "Qwen3ForCausalLM",
        .bias_key = true,
        .qk_norm = true,
        .window = CY_WINDOW_OPTIONAL,
        .kv_heads = 32,
        .head_dim = 128,
        .max_positions = 32768,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
        .bos = -1,
        .eos = -1,
    },
    {
        .model_type = "mixtral",
        .architecture = "MixtralForCausalLM",
        .experts = true,
        .window = CY_WINDOW_DIRECT,
        .kv_heads = 8,
        .max_positions = 131072,
        .norm_eps = 1e-5,
        .rope_theta = 1e6,
        .bos = 1,
        .eos = 2,
    },
    {
        .model_type = "qwen3_moe",
        .architecture = "Qwen3MoeForCausalLM",
        .bias_key = true,
        .qk_norm = true,
        .experts = true,
        .window = CY_WINDOW_OPTIONAL,
        .kv_heads = 4,
        .max_positions = 32768,
        .norm_eps = 1e-6,
        .rope_theta = 10000,
        .bos = -1,
        .eos = -1,
    },
};
#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

const cy_model_family *cy_family_find(const char *model_type)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    }
    return NULL;
}

static bool expresses(const cy_model_family *family, const cy_model_shape *shape)
{
    if (family->qk_norm != shape->qk_norm || family->experts != (shape->experts > 0)) return false;
    if (shape->window > 0 && family->window == CY_WINDOW_NONE) return false;
    if (family->qkv_bias) return shape->qkv_bias && !shape->out_bias;
    if (family->bias_key) return shape->qkv_bias == shape->out_bias;
    return !shape->qkv_bias && !shape->out_bias;
}

const cy_model_family *cy_family_for_shape(const cy_model_shape *shape)
{
    const cy_model_family *own = cy_family_find(shape->architecture);
    if (own != NULL && expresses(own, shape)) return own;
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (expresses(&families[i], shape)) return &families[i];
    }
    return NULL;
}

static const char *const read_keys[] = {
    "attention_bias",
    "bos_token_id",
    "cyclotron",
    "eos_token_id",
    "head_dim",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "model_type",
    "moe_intermediate_size",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_local_experts",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "use_sliding_window",
    "vocab_size",
};

// Names, dtypes, and what belongs to generation or to a training library.
static const char *const passed_keys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

static const struct {
    const char *key;
    const char *wanted;
} fixed_keys[] = {
    {"add_cross_attention", "false"},
    {"attention_dropout", "0"},
    {"cross_attention_hidden_size", "null"},
    {"decoder_sparse_step", "1"},
    {"embd_pdrop", "0"},
    {"hidden_act", "\"silu\""},
    {"is_encoder_decoder", "false"},
    {"mlp_bias", "false"},
    {"mlp_only_layers", "[]"},
    {"norm_topk_prob", "true"},
    {"partial_rotary_factor", "1"},
    {"pruned_heads", "{}"},
    {"quantization_config", "null"},
    {"resid_pdrop", "0"},
    {"rope_interleaved", "false"},
    {"router_jitter_noise", "0"},
    {"tie_encoder_decoder", "false"},
};

static bool listed(const char *const *keys, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i], key) == 0) return true;
    }
    return false;
}

typedef enum key_kind {
    KEY_READ,   // becomes part of the shape
    KEY_PASSED, // does not change the mathematics
    KEY_FIXED,  // must have the value *wanted, a JSON text, or be null
    KEY_UNKNOWN,
} key_kind;

static key_kind kind_of_key(const char *key, const char **wanted)
{
    if (listed(read_keys, sizeof(read_keys) / sizeof(read_keys[0]), key)) return KEY_READ;
    if (listed(passed_keys, sizeof(passed_keys) / sizeof(passed_keys[0]), key)) {
        return KEY_PASSED;
    }
    for (size_t i = 0; i < sizeof(fixed_keys) / sizeof(fixed_keys[0]); i++) {
        if (strcmp(fixed_keys[i].key, key) != 0) continue;
        *wanted = fixed_keys[i].wanted;
        return KEY_FIXED;
    }
    return KEY_UNKNOWN;
}

// ---- reading: single values

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

// The state of reading one config.json. Errors are collected, so that one failure reports them all.
typedef struct reader {
    json_t *root;
    cy_text wrong;
    int wrong_count;
    cy_status status; // of collecting the errors
} reader;

__attribute__((format(printf, 2, 3))) static void add_wrong(reader *in, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    in->wrong_count++;
    if (in->status == CY_OK) in->status = cy_text_add(&in->wrong, "\n  - %s", line);
}

// A member that is there and not null, or NULL.
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bool is_true(const json_t *value)
{
    return value != NULL && json_is_true(value);
}

static int64_t take_count(reader *in, const char *key, int64_t least, int64_t otherwise)
{
    const json_t *value = member(in->root, key);
    if (value == NULL) {
        if (otherwise < 0) add_wrong(in, "%s is missing", key);
        return otherwise;
    }
    const json_int_t count = json_integer_value(value);
    if (!json_is_integer(value) || count < least || count > INT32_MAX) {
        add_wrong(in, "%s must be a whole number from %" PRId64 " to %d", key, least, INT32_MAX);
        return least;
    }
    return count;
}

static double take_number(
    reader *in, const json_t *object, const char *prefix, const char *key, double otherwise)
{
    const json_t *value = member(object, key);
    if (value == NULL) {
        if (otherwise < 0) add_wrong(in, "%s%s is missing", prefix, key);
        return otherwise;
    }
    const double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number) || number < 0) {
        add_wrong(in, "%s%s must be a number of at least 0", prefix, key);
        return 1;
    }
    return number;
}

static bool take_flag(reader *in, const char *key, bool otherwise)
{
    const json_t *value = member(in->root, key);
    if (value == NULL) return otherwise;
    if (!json_is_boolean(value)) add_wrong(in, "%s must be true or false", key);
    return json_is_true(value);
}

// A token id; of a list the first. -1 where there is none.
static int64_t take_token(reader *in, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(in->root, key);
    if (value == NULL) return otherwise;
    if (json_is_array(value)) value = json_array_get(value, 0);
    if (value == NULL || json_is_null(value)) return -1;
    // Some files say -1 for none.
    if (!json_is_integer(value) || json_integer_value(value) < -1) {
        add_wrong(in, "%s must be a token id or a list of them", key);
        return -1;
    }
    return json_integer_value(value);
}

// ---- rotary embedding

static const struct {
    const char *name;
    const char *keys; // that its object may have, with a space around each
} ropes[] = {
    [CY_ROPE_PLAIN] = {"default", " "},
    [CY_ROPE_LINEAR] = {"linear", " factor "},
    [CY_ROPE_DYNAMIC] = {"dynamic", " factor original_max_position_embeddings "},
    [CY_ROPE_LLAMA3] = {"llama3",
        " factor low_freq_factor high_freq_factor original_max_position_embeddings "},
    [CY_ROPE_YARN] = {"yarn",
        " factor beta_fast beta_slow attention_factor mscale mscale_all_dim truncate finetuned "
        "original_max_position_embeddings "},
};
#define ROPE_COUNT (sizeof(ropes) / sizeof(ropes[0]))

static void check_rope_keys(reader *in, const json_t *object, const char *prefix, size_t which)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)cy_memory_writable(object), key, value)
    {
        char spaced[80];
        if (strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0) continue;
        if (strcmp(key, "rope_theta") == 0 || json_is_null(value)) continue;
        if (strcmp(key, "partial_rotary_factor") == 0 && json_number_value(value) == 1) continue;
        snprintf(spaced, sizeof(spaced), " %s ", key);
        if (strstr(ropes[which].keys, spaced) != NULL) continue;
        add_wrong(in, "%s%s is not known for the scaling %s", prefix, key, ropes[which].name);
    }
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * cy_strict_log(factor) + 1.0;
}

static void take_yarn(reader *in, cy_model_shape *shape, const json_t *object, const char *prefix)
{
    cy_rope_shape *rope = &shape->rope;
    rope->beta_fast = take_number(in, object, prefix, "beta_fast", 32);
    rope->beta_slow = take_number(in, object, prefix, "beta_slow", 1);
    rope->attention_factor = take_number(in, object, prefix, "attention_factor", 0);
    const double mscale = take_number(in, object, prefix, "mscale", 0);
    const double mscale_all = take_number(in, object, prefix, "mscale_all_dim", 0);
    if (rope->attention_factor <= 0 && mscale > 0 && mscale_all > 0) {
        rope->attention_factor =
            yarn_scale(rope->factor, mscale) / yarn_scale(rope->factor, mscale_all);
    }
    const json_t *truncate = member(object, "truncate");
    if (truncate != NULL && !json_is_true(truncate)) {
        add_wrong(in, "%struncate must be true: nothing else is known here", prefix);
    }
}

static void take_scaling(
    reader *in, cy_model_shape *shape, const json_t *object, const char *prefix)
{
    const json_t *type = member(object, "rope_type");
    if (type == NULL) type = member(object, "type");
    const char *name = type == NULL ? "default" : json_string_value(type);
    size_t which = 0;
    while (which < ROPE_COUNT && (name == NULL || strcmp(ropes[which].name, name) != 0))
        which++;
    if (which == ROPE_COUNT) {
        add_wrong(in, "%srope_type %s is not known: default, linear, dynamic, llama3 and yarn are",
            prefix, name != NULL ? name : "that is not a text");
        return;
    }
    check_rope_keys(in, object, prefix, which);
    cy_rope_shape *rope = &shape->rope;
    rope->scaling = (cy_rope_scaling)which;
    if (rope->scaling == CY_ROPE_PLAIN) return;
    const double original = take_number(
        in, object, prefix, "original_max_position_embeddings", (double)shape->max_positions);
    const bool free_factor = rope->scaling == CY_ROPE_YARN && original > 0;
    rope->factor = take_number(
        in, object, prefix, "factor", free_factor ? (double)shape->max_positions / original : -1);
    if (rope->factor == 0) add_wrong(in, "%sfactor must be above 0", prefix);
    if (rope->scaling == CY_ROPE_LINEAR) return;
    rope->original_length = original >= 1 && original < 0x1p53 ? (int64_t)original : 0;
    if ((double)rope->original_length != original || original < 1) {
        add_wrong(
            in, "%soriginal_max_position_embeddings must be a whole number of at least 1", prefix);
    }
    if (rope->scaling == CY_ROPE_DYNAMIC && rope->original_length != shape->max_positions) {
        add_wrong(in,
            "%soriginal_max_position_embeddings %" PRId64
            " differs from max_position_embeddings %" PRId64,
            prefix, rope->original_length, shape->max_positions);
    }
    if (rope->scaling == CY_ROPE_LLAMA3) {
        rope->low_freq_factor = take_number(in, object, prefix, "low_freq_factor", -1);
        rope->high_freq_factor = take_number(in, object, prefix, "high_freq_factor", -1);
        const bool both = rope->low_freq_factor >= 0 && rope->high_freq_factor >= 0;
        if (both && rope->high_freq_factor <= rope->low_freq_factor) {
            add_wrong(in, "%shigh_freq_factor must be above low_freq_factor", prefix);
        }
    }
    if (rope->scaling == CY_ROPE_YARN) take_yarn(in, shape, object, prefix);
}

static void take_rope(reader *in, cy_model_shape *shape, const cy_model_family *family)
{
    shape->rope.theta = take_number(in, in->root, "", "rope_theta", family->rope_theta);
    const char *prefix = "rope_scaling.";
    const json_t *object = member(in->root, "rope_scaling");
    if (object == NULL) {
        prefix = "rope_parameters.";
        object = member(in->root, "rope_parameters");
    }
    if (object != NULL && !json_is_object(object)) {
        add_wrong(in, "%.*s must be an object", (int)strlen(prefix) - 1, prefix);
    } else if (object != NULL) {
        shape->rope.theta = take_number(in, object, prefix, "rope_theta", shape->rope.theta);
        take_scaling(in, shape, object, prefix);
    }
    if (shape->rope.theta == 0) add_wrong(in, "rope_theta must be above 0");
}

// ---- attention windows and experts

// Families that let only the layers from max_window_layers on slide.
static void take_optional_window(reader *in, cy_model_shape *shape)
{
    if (!take_flag(in, "use_sliding_window", false)) return;
    const int64_t window = take_count(in, "sliding_window", 1, 4096);
    const int64_t first = take_count(in, "max_window_layers", 0, 28);
    if (first >= shape->layers) return;
    if (first > 0) {
        add_wrong(in,
            "max_window_layers %" PRId64 " of %d layers: a window on some layers only is not known",
            first, shape->layers);
        return;
    }
    shape->window = window;
}

static void take_window(reader *in, cy_model_shape *shape, const cy_model_family *family)
{
    if (family->window == CY_WINDOW_OPTIONAL) take_optional_window(in, shape);
    if (family->window == CY_WINDOW_DIRECT) {
        const json_t *value = json_object_get(in->root, "sliding_window");
        if (value == NULL) {
            shape->window = family->window_default;
        } else if (!json_is_null(value)) {
            shape->window = take_count(in, "sliding_window", 1, 1);
        }
    }
    const json_t *types = member(in->root, "layer_types");
    const char *wanted = shape->window > 0 ? "sliding_attention" : "full_attention";
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type != NULL && strcmp(type, wanted) == 0) continue;
        add_wrong(in, "layer_types: layer %zu is %s, the other keys say %s", i,
            type != NULL ? type : "not a text", wanted);
        break;
    }
}

static void take_experts(reader *in, cy_model_shape *shape, const cy_model_family *family)
{
    if (!family->experts) return;
    const char *key = member(in->root, "num_experts") != NULL ? "num_experts" : "num_local_experts";
    shape->experts = (int)take_count(in, key, 1, -1);
    shape->experts_per_token = (int)take_count(in, "num_experts_per_tok", 1, -1);
    shape->expert_ffn = take_count(in, "moe_intermediate_size", 1, shape->ffn);
    if (shape->experts_per_token > shape->experts) {
        add_wrong(in, "num_experts_per_tok %d is more than the %d experts",
            shape->experts_per_token, shape->experts);
    }
}

// ---- keys

static bool value_is(const json_t *value, const char *wanted)
{
    json_t *other = json_loads(wanted, JSON_DECODE_ANY, NULL);
    const bool same = json_is_number(value) && json_is_number(other)
        ? json_number_value(value) == json_number_value(other)
        : json_equal(value, other) == 1;
    json_decref(other);
    return same;
}

static void check_keys(reader *in)
{
    const char *key;
    json_t *value;
    json_object_foreach(in->root, key, value)
    {
        const char *wanted = NULL;
        switch (kind_of_key(key, &wanted)) {
        case KEY_READ:
        case KEY_PASSED:
            break;
        case KEY_FIXED:
            if (json_is_null(value) || value_is(value, wanted)) break;
            add_wrong(in, "%s must be %s: nothing else is known here", key, wanted);
            break;
        case KEY_UNKNOWN:
            if (json_is_null(value)) break;
            add_wrong(in, "%s is not known: it may change the mathematics", key);
            break;
        }
    }
}

// What no family's own keys express; see cy_model_shape_to_json.
static void take_exact(reader *in, cy_model_shape *shape)
{
    const json_t *exact = member(in->root, "cyclotron");
    if (exact == NULL) return;
    if (!json_is_object(exact)) {
        add_wrong(in, "cyclotron must be an object");
        return;
    }
    shape->qkv_bias = is_true(member(exact, "qkv_bias"));
    shape->out_bias = is_true(member(exact, "out_bias"));
    shape->qk_norm = is_true(member(exact, "qk_norm"));
    const json_int_t window = json_integer_value(json_object_get(exact, "window"));
    if (window < 0 || window > INT32_MAX) add_wrong(in, "cyclotron.window is out of range");
    shape->window = window;
}

static void take_shape(reader *in, cy_model_shape *shape, const cy_model_family *family)
{
    snprintf(shape->architecture, sizeof(shape->architecture), "%s", family->model_type);
    shape->layers = (int)take_count(in, "num_hidden_layers", 1, -1);
    shape->hidden = take_count(in, "hidden_size", 1, -1);
    shape->ffn = take_count(in, "intermediate_size", 1, -1);
    shape->heads = (int)take_count(in, "num_attention_heads", 1, -1);
    const int64_t kv_default = family->kv_heads > 0 ? family->kv_heads : shape->heads;
    shape->kv_heads = (int)take_count(in, "num_key_value_heads", 1, kv_default);
    const int64_t even_share = shape->heads > 0 ? shape->hidden / shape->heads : 0;
    const int64_t head_dim = family->head_dim > 0 ? family->head_dim : even_share;
    shape->head_dim = take_count(in, "head_dim", 1, head_dim < 0 ? 0 : head_dim);
    shape->vocab = take_count(in, "vocab_size", 1, -1);
    shape->max_positions = take_count(in, "max_position_embeddings", 1, family->max_positions);
    shape->norm_eps = take_number(in, in->root, "", "rms_norm_eps", family->norm_eps);
    shape->tied = take_flag(in, "tie_word_embeddings", false);
    const bool bias = family->bias_key && take_flag(in, "attention_bias", false);
    shape->qkv_bias = bias || family->qkv_bias;
    shape->out_bias = bias;
    shape->qk_norm = family->qk_norm;
    shape->init_std = take_number(in, in->root, "", "initializer_range", 0.02);
    shape->bos = take_token(in, "bos_token_id", family->bos);
    shape->eos = take_token(in, "eos_token_id", family->eos);
    if (!family->bias_key && is_true(member(in->root, "attention_bias"))) {
        add_wrong(in, "attention_bias must be false for %s", family->model_type);
    }
    take_rope(in, shape, family);
    take_window(in, shape, family);
    take_experts(in, shape, family);
    take_exact(in, shape);
}

static cy_status read_root(cy_model_shape *out, json_t *root, const char *where)
{
    const json_t *type = member(root, "model_type");
    if (!json_is_string(type)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: model_type is missing or not a text", where);
    }
    const cy_model_family *family = cy_family_find(json_string_value(type));
    if (family == NULL) {
        return CY_FAIL(CY_ERR_UNSUPPORTED,
            "%s: the architecture %.60s is not known: " CY_FAMILY_NAMES " are", where,
            json_string_value(type));
    }
    reader in = {.root = root};
    cy_model_shape shape = {0};
    take_shape(&in, &shape, family);
    check_keys(&in);
    cy_status status = in.status;
    if (status == CY_OK && in.wrong_count > 0) {
        status = CY_FAIL(CY_ERR_UNSUPPORTED, "%s: %d of its keys cannot be followed:%s", where,
            in.wrong_count, cy_list_items(&in.wrong, in.wrong_count));
    }
    cy_text_free(&in.wrong);
    if (status == CY_OK) {
        status = cy_model_shape_check(&shape);
        if (status != CY_OK) cy_error_prefix("%s: ", where);
    }
    if (status == CY_OK) *out = shape;
    return status;
}

cy_status cy_model_shape_from_json(
    cy_model_shape *shape, const char *json, size_t length, const char *where)
{
    json_error_t error;
    json_t *root = json_loadb(json, length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: line %d, column %d: %s", where, error.line,
            error.column, error.text);
    }
    const cy_status status = json_is_object(root)
        ? read_root(shape, root, where)
        : CY_FAIL(CY_ERR_CORRUPT, "%s: not a JSON object", where);
    json_decref(root);
    return status;
}

cy_status cy_model_shape_read(cy_model_shape *shape, const char *path)
{
    cy_text text = {0};
    CY_TRY(cy_file_read(&text, path, CONFIG_BYTES_MAX));
    const cy_status status = cy_model_shape_from_json(shape, text.bytes, text.length, path);
    cy_text_free(&text);
    return status;
}

// ---- writing

static cy_status add_number(cy_text *json, const char *key, double number)
{
    const cy_json_text text = cy_json_number_shortest(number);
    // transformers distinguishes 1 from 1.0.
    const bool whole = strpbrk(text.bytes, ".en") == NULL;
    return cy_text_add(json, ",\n  \"%s\": %s%s", key, text.bytes, whole ? ".0" : "");
}

static cy_status add_count(cy_text *json, const char *key, int64_t count)
{
    return cy_text_add(json, ",\n  \"%s\": %" PRId64, key, count);
}

static cy_status add_flag(cy_text *json, const char *key, bool flag)
{
    return cy_text_add(json, ",\n  \"%s\": %s", key, flag ? "true" : "false");
}

static cy_status add_token(cy_text *json, const char *key, int64_t token)
{
    if (token < 0) return cy_text_add(json, ",\n  \"%s\": null", key);
    return add_count(json, key, token);
}

static cy_status add_member(cy_text *json, const char *key, double number)
{
    const cy_json_text text = cy_json_number_shortest(number);
    const bool whole = strpbrk(text.bytes, ".en") == NULL;
    return cy_text_add(json, ", \"%s\": %s%s", key, text.bytes, whole ? ".0" : "");
}

static cy_status add_rope(cy_text *json, const cy_rope_shape *rope)
{
    CY_TRY(add_number(json, "rope_theta", rope->theta));
    if (rope->scaling == CY_ROPE_PLAIN) return cy_text_add(json, ",\n  \"rope_scaling\": null");
    CY_TRY(cy_text_add(
        json, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"", ropes[rope->scaling].name));
    CY_TRY(add_member(json, "factor", rope->factor));
    if (rope->scaling == CY_ROPE_LLAMA3) {
        CY_TRY(add_member(json, "low_freq_factor", rope->low_freq_factor));
        CY_TRY(add_member(json, "high_freq_factor", rope->high_freq_factor));
    }
    if (rope->scaling == CY_ROPE_YARN) {
        CY_TRY(add_member(json, "beta_fast", rope->beta_fast));
        CY_TRY(add_member(json, "beta_slow", rope->beta_slow));
        if (rope->attention_factor > 0) {
            CY_TRY(add_member(json, "attention_factor", rope->attention_factor));
        }
    }
    if (rope->scaling == CY_ROPE_LLAMA3 || rope->scaling == CY_ROPE_YARN) {
        CY_TRY(cy_text_add(
            json, ", \"original_max_position_embeddings\": %" PRId64, rope->original_length));
    }
    return cy_text_add(json, "}");
}

static cy_status add_window(
    cy_text *json, const cy_model_family *family, const cy_model_shape *shape)
{
    if (family->window == CY_WINDOW_NONE) return CY_OK;
    if (family->window == CY_WINDOW_OPTIONAL) {
        CY_TRY(add_flag(json, "use_sliding_window", shape->window > 0));
        CY_TRY(add_count(json, "max_window_layers", shape->window > 0 ? 0 : shape->layers));
    }
    if (shape->window > 0) return add_count(json, "sliding_window", shape->window);
    return cy_text_add(json, ",\n  \"sliding_window\": null");
}

static cy_status add_experts(
    cy_text *json, const cy_model_family *family, const cy_model_shape *shape)
{
    if (!family->experts) return CY_OK;
    const bool qwen = family->qk_norm;
    CY_TRY(add_count(json, qwen ? "num_experts" : "num_local_experts", shape->experts));
    CY_TRY(add_count(json, "num_experts_per_tok", shape->experts_per_token));
    if (!qwen) return CY_OK;
    CY_TRY(add_count(json, "moe_intermediate_size", shape->expert_ffn));
    return add_flag(json, "norm_topk_prob", true);
}

static cy_status add_sizes(cy_text *json, const cy_model_shape *shape)
{
    CY_TRY(add_count(json, "num_hidden_layers", shape->layers));
    CY_TRY(add_count(json, "hidden_size", shape->hidden));
    CY_TRY(add_count(json, "intermediate_size", shape->ffn));
    CY_TRY(add_count(json, "num_attention_heads", shape->heads));
    CY_TRY(add_count(json, "num_key_value_heads", shape->kv_heads));
    CY_TRY(add_count(json, "head_dim", shape->head_dim));
    CY_TRY(add_count(json, "vocab_size", shape->vocab));
    return add_count(json, "max_position_embeddings", shape->max_positions);
}

// All members but the braces.
static cy_status add_members(
    cy_text *json, const cy_model_family *family, const cy_model_shape *shape)
{
    CY_TRY(cy_text_add(json, "\n  \"model_type\": \"%s\"", family->model_type));
    CY_TRY(cy_text_add(json, ",\n  \"architectures\": [\"%s\"]", family->architecture));
    CY_TRY(add_sizes(json, shape));
    CY_TRY(add_number(json, "rms_norm_eps", shape->norm_eps));
    CY_TRY(add_number(json, "initializer_range", shape->init_std));
    CY_TRY(add_flag(json, "tie_word_embeddings", shape->tied));
    CY_TRY(cy_text_add(json, ",\n  \"hidden_act\": \"silu\""));
    CY_TRY(add_number(json, "attention_dropout", 0));
    if (family->bias_key) CY_TRY(add_flag(json, "attention_bias", shape->out_bias));
    if (strcmp(family->model_type, "llama") == 0) CY_TRY(add_flag(json, "mlp_bias", false));
    CY_TRY(add_rope(json, &shape->rope));
    CY_TRY(add_window(json, family, shape));
    CY_TRY(add_experts(json, family, shape));
    CY_TRY(add_token(json, "bos_token_id", shape->bos));
    return add_token(json, "eos_token_id", shape->eos);
}

cy_status cy_model_shape_to_config(cy_text *json, const cy_model_shape *shape, cy_dtype dtype)
{
    const cy_model_family *family = cy_family_for_shape(shape);
    const char *name = dtype == CY_BF16 ? "bfloat16"
        : dtype == CY_F16               ? "float16"
        : dtype == CY_F64               ? "float64"
                                        : "float32";
    if (family == NULL) {
        return CY_FAIL(CY_ERR_UNSUPPORTED,
            "no published family has this attention: bias of q, k, v %s, bias of the output %s, "
            "norm of q and k %s, window %" PRId64 ", %d experts",
            shape->qkv_bias ? "yes" : "no", shape->out_bias ? "yes" : "no",
            shape->qk_norm ? "yes" : "no", shape->window, shape->experts);
    }
    CY_TRY(cy_text_add(json, "{"));
    CY_TRY(add_members(json, family, shape));
    CY_TRY(cy_text_add(json, ",\n  \"torch_dtype\": \"%s\"", name));
    return cy_text_add(json, ",\n  \"use_cache\": true\n}\n");
}

cy_status cy_model_shape_to_json(cy_text *json, const cy_model_shape *shape)
{
    const cy_model_family *family = cy_family_find(shape->architecture);
    if (family == NULL || family->experts != (shape->experts > 0)) {
        family = cy_family_for_shape(shape);
    }
    if (family == NULL) family = cy_family_find(shape->experts > 0 ? "mixtral" : "llama");
    CY_TRY(cy_text_add(json, "{"));
    CY_TRY(add_members(json, family, shape));
    // mixtral's expert size is intermediate_size; a shape may have both.
    if (shape->experts > 0 && !family->qk_norm) {
        CY_TRY(add_count(json, "moe_intermediate_size", shape->expert_ffn));
    }
    return cy_text_add(json,
        ",\n  \"cyclotron\": {\"qkv_bias\": %s, \"out_bias\": %s, \"qk_norm\": %s, \"window\": "
        "%" PRId64 "}\n}\n",
        shape->qkv_bias ? "true" : "false", shape->out_bias ? "true" : "false",
        shape->qk_norm ? "true" : "false", shape->window);
}

// ---- comparing

typedef struct difference {
    cy_text *lines;
    int count;
} difference;

static cy_status compare(difference *out, const char *key, double there, double here)
{
    if (there == here) return CY_OK;
    out->count++;
    return cy_text_add(out->lines, "\n  - %s: there %s, here %s", key,
        cy_json_number_shortest(there).bytes, cy_json_number_shortest(here).bytes);
}

static cy_status compare_choice(difference *out, const char *key, bool there, bool here)
{
    if (there == here) return CY_OK;
    out->count++;
    return cy_text_add(out->lines, "\n  - %s: there %s, here %s", key, there ? "true" : "false",
        here ? "true" : "false");
}

cy_status cy_model_shape_differences(
    cy_text *lines, int *count, const cy_model_shape *there, const cy_model_shape *here)
{
    const struct {
        const char *key;
        double there, here;
    } keys[] = {
        {"num_hidden_layers", there->layers, here->layers},
        {"hidden_size", (double)there->hidden, (double)here->hidden},
        {"intermediate_size", (double)there->ffn, (double)here->ffn},
        {"num_attention_heads", there->heads, here->heads},
        {"num_key_value_heads", there->kv_heads, here->kv_heads},
        {"head_dim", (double)there->head_dim, (double)here->head_dim},
        {"vocab_size", (double)there->vocab, (double)here->vocab},
        {"rms_norm_eps", there->norm_eps, here->norm_eps},
        {"rope_theta", there->rope.theta, here->rope.theta},
        {"rope_scaling.factor", there->rope.factor, here->rope.factor},
        {"rope_scaling.low_freq_factor", there->rope.low_freq_factor, here->rope.low_freq_factor},
        {"rope_scaling.high_freq_factor", there->rope.high_freq_factor,
            here->rope.high_freq_factor},
        {"rope_scaling.beta_fast", there->rope.beta_fast, here->rope.beta_fast},
        {"rope_scaling.beta_slow", there->rope.beta_slow, here->rope.beta_slow},
        {"rope_scaling.attention_factor", there->rope.attention_factor,
            here->rope.attention_factor},
        {"rope_scaling.original_max_position_embeddings", (double)there->rope.original_length,
            (double)here->rope.original_length},
        {"sliding_window", (double)there->window, (double)here->window},
        {"num_experts", there->experts, here->experts},
        {"num_experts_per_tok", there->experts_per_token, here->experts_per_token},
        {"moe_intermediate_size", (double)there->expert_ffn, (double)here->expert_ffn},
    };
    const struct {
        const char *key;
        bool there, here;
    } choices[] = {
        {"tie_word_embeddings", there->tied, here->tied},
        {"bias of q, k, v", there->qkv_bias, here->qkv_bias},
        {"bias of the output projection", there->out_bias, here->out_bias},
        {"norm of q and k", there->qk_norm, here->qk_norm},
    };
    difference out = {.lines = lines};
    if (there->rope.scaling != here->rope.scaling) {
        out.count++;
        CY_TRY(cy_text_add(lines, "\n  - rope_type: there %s, here %s",
            ropes[there->rope.scaling].name, ropes[here->rope.scaling].name));
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        CY_TRY(compare(&out, keys[i].key, keys[i].there, keys[i].here));
    }
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        CY_TRY(compare_choice(&out, choices[i].key, choices[i].there, choices[i].here));
    }
    *count = out.count;
    return CY_OK;
}
