#include "model/shape_family.h"
#include "model/shape_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cy_status add_number(cy_text *json, const char *key, double number)
{
    const cy_json_text text = cy_json_number_shortest(number);
    // transformers insists on the difference between 1 and 1.0.
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

static const char *const rope_names[] = {
    [CY_ROPE_PLAIN] = "default",
    [CY_ROPE_LINEAR] = "linear",
    [CY_ROPE_DYNAMIC] = "dynamic",
    [CY_ROPE_LLAMA3] = "llama3",
    [CY_ROPE_YARN] = "yarn",
};

static cy_status add_rope(cy_text *json, const cy_rope_shape *rope)
{
    CY_TRY(add_number(json, "rope_theta", rope->theta));
    if (rope->scaling == CY_ROPE_PLAIN) return cy_text_add(json, ",\n  \"rope_scaling\": null");
    CY_TRY(cy_text_add(
        json, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"", rope_names[rope->scaling]));
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
            rope_names[there->rope.scaling], rope_names[here->rope.scaling]));
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
