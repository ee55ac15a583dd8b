#include "model/shape_family.h"

#include <string.h>

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

cy_family_key_kind cy_family_key(const char *key, const char **wanted)
{
    if (listed(read_keys, sizeof(read_keys) / sizeof(read_keys[0]), key)) return CY_KEY_READ;
    if (listed(passed_keys, sizeof(passed_keys) / sizeof(passed_keys[0]), key)) {
        return CY_KEY_PASSED;
    }
    for (size_t i = 0; i < sizeof(fixed_keys) / sizeof(fixed_keys[0]); i++) {
        if (strcmp(fixed_keys[i].key, key) != 0) continue;
        *wanted = fixed_keys[i].wanted;
        return CY_KEY_FIXED;
    }
    return CY_KEY_UNKNOWN;
}
