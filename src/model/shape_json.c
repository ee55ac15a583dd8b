#define _GNU_SOURCE
#include "model/shape_json.h"

#include "base/file.h"
#include "base/memory.h"
#include "kernel/strict/math.h"
#include "model/shape_family.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

// One reading of a config.json: what is wrong is collected, so that it is told in one go.
typedef struct reader {
    json_t *root;
    cy_text wrong;
    int wrong_count;
    cy_status status; // of the collecting itself
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
    cy_rope_scaling scaling;
    const char *keys; // that it may have, with a space around each
} ropes[] = {
    {"default", CY_ROPE_PLAIN, " "},
    {"linear", CY_ROPE_LINEAR, " factor "},
    {"dynamic", CY_ROPE_DYNAMIC, " factor original_max_position_embeddings "},
    {"llama3", CY_ROPE_LLAMA3,
        " factor low_freq_factor high_freq_factor original_max_position_embeddings "},
    {"yarn", CY_ROPE_YARN,
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
    rope->scaling = ropes[which].scaling;
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
        switch (cy_family_key(key, &wanted)) {
        case CY_KEY_READ:
        case CY_KEY_PASSED:
            break;
        case CY_KEY_FIXED:
            if (json_is_null(value) || value_is(value, wanted)) break;
            add_wrong(in, "%s must be %s: nothing else is known here", key, wanted);
            break;
        case CY_KEY_UNKNOWN:
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
