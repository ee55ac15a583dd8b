// Every reason for which a config.json is not followed, with its whole text and at the ends of its
// range; and the texts that are written.

#include "support/support.h"

#include "model/shape.h"

#include <stdio.h>
#include <string.h>

// What each file has unless it says otherwise.
static const char *const common[][2] = {{"hidden_size", "64"}, {"intermediate_size", "176"},
    {"num_hidden_layers", "2"}, {"num_attention_heads", "4"}, {"num_key_value_heads", "2"},
    {"vocab_size", "100"}};

// Reads a file of this type with more keys, which are written with ' instead of ".
static cy_status read(cy_model_shape *shape, const char *type, const char *more)
{
    char json[2048];
    int length = snprintf(json, sizeof(json), "{'model_type': '%s'", type);
    for (size_t i = 0; i < CY_TEST_COUNT(common); i++) {
        char key[64];
        snprintf(key, sizeof(key), "'%s'", common[i][0]);
        if (strstr(more, key) != NULL) continue;
        length +=
            snprintf(json + length, sizeof(json) - (size_t)length, ", %s: %s", key, common[i][1]);
    }
    length += snprintf(
        json + length, sizeof(json) - (size_t)length, "%s%s}", more[0] != '\0' ? ", " : "", more);
    return cy_model_shape_from_json(shape, cy_test_quotes(json), (size_t)length, "config.json");
}

#define ONE "config.json: 1 of its keys cannot be followed: "

static const struct {
    const char *type, *more;
    const char *wrong; // NULL: it is taken
    cy_status status;
} cases[] = {
    {"llama", "", NULL, CY_OK},
    {"llama", "'num_hidden_layers': 0",
        ONE "num_hidden_layers must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'num_hidden_layers': 1.0",
        ONE "num_hidden_layers must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'num_hidden_layers': null", ONE "num_hidden_layers is missing", CY_ERR_UNSUPPORTED},
    {"llama", "'hidden_size': 0", ONE "hidden_size must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'hidden_size': 1.0", ONE "hidden_size must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'hidden_size': null", ONE "hidden_size is missing", CY_ERR_UNSUPPORTED},
    {"llama", "'vocab_size': 0", ONE "vocab_size must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'vocab_size': 1.0", ONE "vocab_size must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'vocab_size': null", ONE "vocab_size is missing", CY_ERR_UNSUPPORTED},
    {"llama", "'intermediate_size': 0",
        ONE "intermediate_size must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'intermediate_size': 1.0",
        ONE "intermediate_size must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'intermediate_size': null", ONE "intermediate_size is missing", CY_ERR_UNSUPPORTED},
    {"llama", "'num_attention_heads': 0",
        ONE "num_attention_heads must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'num_attention_heads': 1.0",
        ONE "num_attention_heads must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'num_attention_heads': null", ONE "num_attention_heads is missing",
        CY_ERR_UNSUPPORTED},
    {"llama", "'num_key_value_heads': 0",
        ONE "num_key_value_heads must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'num_key_value_heads': 1.0",
        ONE "num_key_value_heads must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'num_key_value_heads': null", NULL, CY_OK},
    {"llama", "'head_dim': 0", ONE "head_dim must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'head_dim': 1",
        "config.json: head_dim is 1: rotary positions turn pairs, so it must be even",
        CY_ERR_REQUEST},
    {"llama", "'head_dim': 2", NULL, CY_OK},
    {"llama", "'head_dim': 3",
        "config.json: head_dim is 3: rotary positions turn pairs, so it must be even",
        CY_ERR_REQUEST},
    {"llama", "'head_dim': 1.5", ONE "head_dim must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'hidden_size': 4",
        "config.json: head_dim is 1: rotary positions turn pairs, so it must be even",
        CY_ERR_REQUEST},
    {"llama", "'hidden_size': 3",
        "config.json: head_dim is 0: rotary positions turn pairs, so it must be even",
        CY_ERR_REQUEST},
    {"llama", "'hidden_size': 12",
        "config.json: head_dim is 3: rotary positions turn pairs, so it must be even",
        CY_ERR_REQUEST},
    {"llama", "'vocab_size': 2147483647", NULL, CY_OK},
    {"llama", "'vocab_size': 2147483648",
        ONE "vocab_size must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'vocab_size': '100'", ONE "vocab_size must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'num_key_value_heads': 3",
        "config.json: num_attention_heads 4 is not a multiple of num_key_value_heads 3",
        CY_ERR_REQUEST},
    {"llama", "'num_key_value_heads': 8",
        "config.json: num_attention_heads 4 is not a multiple of num_key_value_heads 8",
        CY_ERR_REQUEST},
    {"llama", "'max_position_embeddings': 1", NULL, CY_OK},
    {"llama", "'max_position_embeddings': 0",
        ONE "max_position_embeddings must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rms_norm_eps': 0", "config.json: rms_norm_eps is 0, it must be above 0",
        CY_ERR_REQUEST},
    {"llama", "'rms_norm_eps': 1e-300", NULL, CY_OK},
    {"llama", "'rms_norm_eps': -1", ONE "rms_norm_eps must be a number of at least 0",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rms_norm_eps': '1'", ONE "rms_norm_eps must be a number of at least 0",
        CY_ERR_UNSUPPORTED},
    {"llama", "'initializer_range': 0", NULL, CY_OK},
    {"llama", "'initializer_range': -0.1", ONE "initializer_range must be a number of at least 0",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_theta': 0", ONE "rope_theta must be above 0", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_theta': 0, 'rope_scaling': {'rope_type': 'default', 'rope_theta': 5}", NULL,
        CY_OK},
    {"llama", "'rope_parameters': {'rope_type': 'default', 'rope_theta': 0}",
        ONE "rope_theta must be above 0", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_theta': 0.5", NULL, CY_OK},
    {"llama", "'rope_theta': -1", ONE "rope_theta must be a number of at least 0",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_theta': true", ONE "rope_theta must be a number of at least 0",
        CY_ERR_UNSUPPORTED},
    {"llama", "'tie_word_embeddings': 0", ONE "tie_word_embeddings must be true or false",
        CY_ERR_UNSUPPORTED},
    {"llama", "'attention_bias': 'no'", ONE "attention_bias must be true or false",
        CY_ERR_UNSUPPORTED},
    {"llama", "'bos_token_id': -1", NULL, CY_OK},
    {"llama", "'bos_token_id': -2", ONE "bos_token_id must be a token id or a list of them",
        CY_ERR_UNSUPPORTED},
    {"llama", "'bos_token_id': 1.0", ONE "bos_token_id must be a token id or a list of them",
        CY_ERR_UNSUPPORTED},
    {"llama", "'bos_token_id': [7, 8]", NULL, CY_OK},
    {"llama", "'bos_token_id': []", NULL, CY_OK},
    {"llama", "'bos_token_id': [null]", NULL, CY_OK},
    {"llama", "'eos_token_id': ['x']", ONE "eos_token_id must be a token id or a list of them",
        CY_ERR_UNSUPPORTED},
    {"llama", "'eos_token_id': [-2]", ONE "eos_token_id must be a token id or a list of them",
        CY_ERR_UNSUPPORTED},
    {"mistral", "'attention_bias': true", ONE "attention_bias must be false for mistral",
        CY_ERR_UNSUPPORTED},
    {"mistral", "'attention_bias': false", NULL, CY_OK},
    {"qwen2", "'attention_bias': true", ONE "attention_bias must be false for qwen2",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': []", ONE "rope_scaling must be an object", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_parameters': 3", ONE "rope_parameters must be an object", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': null}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 3}",
        ONE "rope_scaling.rope_type that is not a text is not known: default, linear, dynamic, "
            "llama3 and yarn are",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'su'}",
        ONE "rope_scaling.rope_type su is not known: default, linear, dynamic, llama3 and yarn are",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'default', 'factor': 2}",
        ONE "rope_scaling.factor is not known for the scaling default", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'default', 'factor': null}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'default', 'rope_theta': 5}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'default', 'partial_rotary_factor': 1}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'default', 'partial_rotary_factor': 1.0}", NULL,
        CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'default', 'partial_rotary_factor': 0.5}",
        ONE "rope_scaling.partial_rotary_factor is not known for the scaling default",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'default', 'partial_rotary_factor': '1'}",
        ONE "rope_scaling.partial_rotary_factor is not known for the scaling default",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'type': 'linear'}", ONE "rope_scaling.factor is missing",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'type': 'linear', 'factor': 0}",
        ONE "rope_scaling.factor must be above 0", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'type': 'linear', 'factor': 1e-9}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'type': 'linear', 'factor': -1}",
        ONE "rope_scaling.factor must be a number of at least 0", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'type': 'linear', 'factor': 'x'}",
        ONE "rope_scaling.factor must be a number of at least 0", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_parameters': {'rope_type': 'linear'}", ONE "rope_parameters.factor is missing",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'type': 'linear', 'factor': 2, 'original_max_position_embeddings': 64}",
        ONE "rope_scaling.original_max_position_embeddings is not known for the scaling linear",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'type': 'dynamic', 'factor': 2, 'original_max_position_embeddings': "
        "2047}",
        ONE "rope_scaling.original_max_position_embeddings 2047 differs from "
            "max_position_embeddings 2048",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'type': 'dynamic', 'factor': 2, 'original_max_position_embeddings': "
        "2048}",
        NULL, CY_OK},
    {"llama",
        "'rope_scaling': {'type': 'dynamic', 'factor': 2, 'original_max_position_embeddings': "
        "2049}",
        ONE "rope_scaling.original_max_position_embeddings 2049 differs from "
            "max_position_embeddings 2048",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'type': 'dynamic', 'original_max_position_embeddings': 2048}",
        ONE "rope_scaling.factor is missing", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'yarn'}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'original_max_position_embeddings': 1}", NULL,
        CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'original_max_position_embeddings': 0}",
        "config.json: 2 of its keys cannot be followed:\n"
        "  - rope_scaling.factor is missing\n"
        "  - rope_scaling.original_max_position_embeddings must be a whole number of at least 1",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'original_max_position_embeddings': 0}",
        ONE "rope_scaling.original_max_position_embeddings must be a whole number of at least 1",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'original_max_position_embeddings': "
        "0.5}",
        ONE "rope_scaling.original_max_position_embeddings must be a whole number of at least 1",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'original_max_position_embeddings': "
        "1.5}",
        ONE "rope_scaling.original_max_position_embeddings must be a whole number of at least 1",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'original_max_position_embeddings': "
        "64.0}",
        NULL, CY_OK},
    {"llama",
        "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'original_max_position_embeddings': "
        "9007199254740992.0}",
        ONE "rope_scaling.original_max_position_embeddings must be a whole number of at least 1",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'original_max_position_embeddings': "
        "9007199254740991}",
        NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'truncate': true}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'truncate': false}",
        ONE "rope_scaling.truncate must be true: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'truncate': null}", NULL, CY_OK},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'truncate': 1}",
        ONE "rope_scaling.truncate must be true: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'finetuned': true}", NULL, CY_OK},
    {"llama",
        "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'beta_fast': -1, 'beta_slow': 'x'}",
        "config.json: 2 of its keys cannot be followed:\n"
        "  - rope_scaling.beta_fast must be a number of at least 0\n"
        "  - rope_scaling.beta_slow must be a number of at least 0",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2, 'low_freq_factor': 1}",
        ONE "rope_scaling.low_freq_factor is not known for the scaling yarn", CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'llama3', 'factor': 2, 'low_freq_factor': 0, "
        "'high_freq_factor': 0}",
        ONE "rope_scaling.high_freq_factor must be above low_freq_factor", CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'llama3', 'factor': 2, 'low_freq_factor': 0.5, "
        "'high_freq_factor': 0.25}",
        ONE "rope_scaling.high_freq_factor must be above low_freq_factor", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'llama3', 'factor': 2, 'low_freq_factor': 1}",
        ONE "rope_scaling.high_freq_factor is missing", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'llama3', 'factor': 2, 'high_freq_factor': 1}",
        ONE "rope_scaling.low_freq_factor is missing", CY_ERR_UNSUPPORTED},
    {"llama", "'rope_scaling': {'rope_type': 'llama3', 'factor': 2}",
        "config.json: 2 of its keys cannot be followed:\n"
        "  - rope_scaling.low_freq_factor is missing\n"
        "  - rope_scaling.high_freq_factor is missing",
        CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'llama3', 'factor': 2, 'low_freq_factor': 4, "
        "'high_freq_factor': 4}",
        ONE "rope_scaling.high_freq_factor must be above low_freq_factor", CY_ERR_UNSUPPORTED},
    {"llama",
        "'rope_scaling': {'rope_type': 'llama3', 'factor': 2, 'low_freq_factor': 4, "
        "'high_freq_factor': 4.25}",
        NULL, CY_OK},
    {"llama",
        "'rope_scaling': {'rope_type': 'llama3', 'factor': 2, 'low_freq_factor': 4, "
        "'high_freq_factor': 3}",
        ONE "rope_scaling.high_freq_factor must be above low_freq_factor", CY_ERR_UNSUPPORTED},
    {"qwen2", "'use_sliding_window': true", NULL, CY_OK},
    {"qwen2", "'use_sliding_window': true, 'max_window_layers': 2", NULL, CY_OK},
    {"qwen2", "'use_sliding_window': true, 'max_window_layers': 1",
        ONE "max_window_layers 1 of 2 layers: a window on some layers only is not known",
        CY_ERR_UNSUPPORTED},
    {"qwen2", "'use_sliding_window': true, 'max_window_layers': 0, 'sliding_window': 0",
        ONE "sliding_window must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"qwen2", "'use_sliding_window': true, 'max_window_layers': -1",
        ONE "max_window_layers must be a whole number from 0 to 2147483647", CY_ERR_UNSUPPORTED},
    {"qwen2", "'use_sliding_window': true, 'max_window_layers': 0, 'sliding_window': 1", NULL,
        CY_OK},
    {"qwen2", "'use_sliding_window': 1", ONE "use_sliding_window must be true or false",
        CY_ERR_UNSUPPORTED},
    {"mistral", "'sliding_window': 0",
        ONE "sliding_window must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"mistral", "'sliding_window': 1", NULL, CY_OK},
    {"mistral", "'sliding_window': -1",
        ONE "sliding_window must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"llama", "'layer_types': ['full_attention', 'full_attention']", NULL, CY_OK},
    {"llama", "'layer_types': ['full_attention', 'sliding_attention']",
        ONE "layer_types: layer 1 is sliding_attention, the other keys say full_attention",
        CY_ERR_UNSUPPORTED},
    {"llama", "'layer_types': [3]",
        ONE "layer_types: layer 0 is not a text, the other keys say full_attention",
        CY_ERR_UNSUPPORTED},
    {"llama", "'layer_types': []", NULL, CY_OK},
    {"mistral", "'layer_types': ['sliding_attention', 'full_attention']",
        ONE "layer_types: layer 1 is full_attention, the other keys say sliding_attention",
        CY_ERR_UNSUPPORTED},
    {"mistral", "'layer_types': ['sliding_attention']", NULL, CY_OK},
    {"mixtral", "",
        "config.json: 2 of its keys cannot be followed:\n"
        "  - num_local_experts is missing\n"
        "  - num_experts_per_tok is missing",
        CY_ERR_UNSUPPORTED},
    {"mixtral", "'num_local_experts': 4, 'num_experts_per_tok': 4", NULL, CY_OK},
    {"mixtral", "'num_local_experts': 4, 'num_experts_per_tok': 5",
        ONE "num_experts_per_tok 5 is more than the 4 experts", CY_ERR_UNSUPPORTED},
    {"mixtral", "'num_local_experts': 0, 'num_experts_per_tok': 1",
        ONE "num_local_experts must be a whole number from 1 to 2147483647", CY_ERR_UNSUPPORTED},
    {"qwen3_moe", "'num_experts': 4, 'num_experts_per_tok': 5",
        ONE "num_experts_per_tok 5 is more than the 4 experts", CY_ERR_UNSUPPORTED},
    {"qwen3_moe", "'num_experts': 4, 'num_experts_per_tok': 1, 'moe_intermediate_size': 0",
        ONE "moe_intermediate_size must be a whole number from 1 to 2147483647",
        CY_ERR_UNSUPPORTED},
    {"llama", "'hidden_act': 'silu'", NULL, CY_OK},
    {"llama", "'hidden_act': 'gelu'", ONE "hidden_act must be \"silu\": nothing else is known here",
        CY_ERR_UNSUPPORTED},
    {"llama", "'hidden_act': null", NULL, CY_OK},
    {"llama", "'attention_dropout': 0", NULL, CY_OK},
    {"llama", "'attention_dropout': 0.0", NULL, CY_OK},
    {"llama", "'attention_dropout': 0.1",
        ONE "attention_dropout must be 0: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'attention_dropout': false",
        ONE "attention_dropout must be 0: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'mlp_bias': false", NULL, CY_OK},
    {"llama", "'mlp_bias': 0", ONE "mlp_bias must be false: nothing else is known here",
        CY_ERR_UNSUPPORTED},
    {"llama", "'mlp_only_layers': []", NULL, CY_OK},
    {"llama", "'mlp_only_layers': [1]",
        ONE "mlp_only_layers must be []: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'pruned_heads': {}", NULL, CY_OK},
    {"llama", "'partial_rotary_factor': 1.0", NULL, CY_OK},
    {"llama", "'partial_rotary_factor': 0.5",
        ONE "partial_rotary_factor must be 1: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'decoder_sparse_step': 2",
        ONE "decoder_sparse_step must be 1: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'norm_topk_prob': false",
        ONE "norm_topk_prob must be true: nothing else is known here", CY_ERR_UNSUPPORTED},
    {"llama", "'logit_scale': null", NULL, CY_OK},
    {"llama", "'logit_scale': 1", ONE "logit_scale is not known: it may change the mathematics",
        CY_ERR_UNSUPPORTED},
    {"llama", "'use_cache': 3", NULL, CY_OK},
    {"llama", "'cross_attention_hidden_size': 8",
        ONE "cross_attention_hidden_size must be null: nothing else is known here",
        CY_ERR_UNSUPPORTED},
    {"llama", "'cyclotron': 3", ONE "cyclotron must be an object", CY_ERR_UNSUPPORTED},
    {"llama", "'cyclotron': {'window': -1}", ONE "cyclotron.window is out of range",
        CY_ERR_UNSUPPORTED},
    {"llama", "'cyclotron': {'window': 0}", NULL, CY_OK},
    {"llama", "'cyclotron': {'window': 2147483647}", NULL, CY_OK},
    {"llama", "'cyclotron': {'window': 2147483648}", ONE "cyclotron.window is out of range",
        CY_ERR_UNSUPPORTED},
    {"llama", "'rope_theta': 'a', 'x_scale': 2, 'mlp_bias': true",
        "config.json: 3 of its keys cannot be followed:\n"
        "  - rope_theta must be a number of at least 0\n"
        "  - x_scale is not known: it may change the mathematics\n"
        "  - mlp_bias must be false: nothing else is known here",
        CY_ERR_UNSUPPORTED},
    {"gpt2", "",
        "config.json: the architecture gpt2 is not known: llama, mistral, qwen2, qwen3, mixtral "
        "and qwen3_moe are",
        CY_ERR_UNSUPPORTED},
};

static void reasons(void **state)
{
    (void)state;
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        cy_model_shape shape;
        memset(&shape, 0x5a, sizeof(shape));
        const cy_model_shape before = shape;
        const cy_status status = read(&shape, cases[i].type, cases[i].more);
        const char *text = status == CY_OK ? "" : cy_error_text();
        const char *wanted = cases[i].wrong != NULL ? cases[i].wrong : "";
        if (strcmp(text, wanted) != 0) {
            print_error("%s\ngave:\n%s\nwanted:\n%s\n", cases[i].more, text, wanted);
            fail();
        }
        assert_int_equal(status, cases[i].status);
        if (status != CY_OK) assert_memory_equal(&shape, &before, sizeof(shape));
    }
}

// What all of these have.
#define SIZES                                                                                      \
    "  \"num_hidden_layers\": 2,\n"                                                                \
    "  \"hidden_size\": 64,\n"                                                                     \
    "  \"intermediate_size\": 176,\n"                                                              \
    "  \"num_attention_heads\": 4,\n"                                                              \
    "  \"num_key_value_heads\": 2,\n"                                                              \
    "  \"head_dim\": 16,\n"                                                                        \
    "  \"vocab_size\": 100,\n"
#define REST                                                                                       \
    "  \"initializer_range\": 0.02,\n"                                                             \
    "  \"tie_word_embeddings\": false,\n"                                                          \
    "  \"hidden_act\": \"silu\",\n"                                                                \
    "  \"attention_dropout\": 0.0,\n"

static const struct {
    const char *type, *more;
    const char *json;
    bool published; // as a config.json, otherwise for us
} writings[] = {
    {"llama",
        "'attention_bias': true, 'bos_token_id': -1, 'rope_theta': 123456.789, 'rms_norm_eps': "
        "1e-5",
        "{\n"
        "  \"model_type\": \"llama\",\n"
        "  \"architectures\": [\"LlamaForCausalLM\"],\n" SIZES
        "  \"max_position_embeddings\": 2048,\n"
        "  \"rms_norm_eps\": 1e-05,\n" REST "  \"attention_bias\": true,\n"
        "  \"mlp_bias\": false,\n"
        "  \"rope_theta\": 123456.789,\n"
        "  \"rope_scaling\": null,\n"
        "  \"bos_token_id\": null,\n"
        "  \"eos_token_id\": 2,\n"
        "  \"cyclotron\": {\"qkv_bias\": true, \"out_bias\": true, \"qk_norm\": false, \"window\": "
        "0}\n"
        "}\n",
        false},
    {"qwen3_moe",
        "'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 24, "
        "'use_sliding_window': true, 'max_window_layers': 0, 'sliding_window': 9",
        "{\n"
        "  \"model_type\": \"qwen3_moe\",\n"
        "  \"architectures\": [\"Qwen3MoeForCausalLM\"],\n" SIZES
        "  \"max_position_embeddings\": 32768,\n"
        "  \"rms_norm_eps\": 1e-06,\n" REST "  \"attention_bias\": false,\n"
        "  \"rope_theta\": 10000.0,\n"
        "  \"rope_scaling\": null,\n"
        "  \"use_sliding_window\": true,\n"
        "  \"max_window_layers\": 0,\n"
        "  \"sliding_window\": 9,\n"
        "  \"num_experts\": 4,\n"
        "  \"num_experts_per_tok\": 2,\n"
        "  \"moe_intermediate_size\": 24,\n"
        "  \"norm_topk_prob\": true,\n"
        "  \"bos_token_id\": null,\n"
        "  \"eos_token_id\": null,\n"
        "  \"torch_dtype\": \"float32\",\n"
        "  \"use_cache\": true\n"
        "}\n",
        true},
    {"mixtral",
        "'num_local_experts': 4, 'num_experts_per_tok': 2, 'rope_scaling': {'rope_type': 'llama3', "
        "'factor': 8, 'low_freq_factor': 1, 'high_freq_factor': 4}",
        "{\n"
        "  \"model_type\": \"mixtral\",\n"
        "  \"architectures\": [\"MixtralForCausalLM\"],\n" SIZES
        "  \"max_position_embeddings\": 131072,\n"
        "  \"rms_norm_eps\": 1e-05,\n" REST "  \"rope_theta\": 1000000.0,\n"
        "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": "
        "1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 131072},\n"
        "  \"sliding_window\": null,\n"
        "  \"num_local_experts\": 4,\n"
        "  \"num_experts_per_tok\": 2,\n"
        "  \"bos_token_id\": 1,\n"
        "  \"eos_token_id\": 2,\n"
        "  \"moe_intermediate_size\": 176,\n"
        "  \"cyclotron\": {\"qkv_bias\": false, \"out_bias\": false, \"qk_norm\": false, "
        "\"window\": 0}\n"
        "}\n",
        false},
    {"qwen2", "'rope_scaling': {'rope_type': 'yarn', 'factor': 2.5, 'attention_factor': 1.25}",
        "{\n"
        "  \"model_type\": \"qwen2\",\n"
        "  \"architectures\": [\"Qwen2ForCausalLM\"],\n" SIZES
        "  \"max_position_embeddings\": 32768,\n"
        "  \"rms_norm_eps\": 1e-06,\n" REST "  \"rope_theta\": 10000.0,\n"
        "  \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.5, \"beta_fast\": 32.0, "
        "\"beta_slow\": 1.0, \"attention_factor\": 1.25, \"original_max_position_embeddings\": "
        "32768},\n"
        "  \"use_sliding_window\": false,\n"
        "  \"max_window_layers\": 2,\n"
        "  \"sliding_window\": null,\n"
        "  \"bos_token_id\": null,\n"
        "  \"eos_token_id\": null,\n"
        "  \"torch_dtype\": \"float32\",\n"
        "  \"use_cache\": true\n"
        "}\n",
        true},
    {"llama",
        "'rope_scaling': {'rope_type': 'dynamic', 'factor': 2}, 'tie_word_embeddings': true, "
        "'initializer_range': 1e-5, 'rms_norm_eps': 0.1",
        "{\n"
        "  \"model_type\": \"llama\",\n"
        "  \"architectures\": [\"LlamaForCausalLM\"],\n" SIZES
        "  \"max_position_embeddings\": 2048,\n"
        "  \"rms_norm_eps\": 0.1,\n"
        "  \"initializer_range\": 1e-05,\n"
        "  \"tie_word_embeddings\": true,\n"
        "  \"hidden_act\": \"silu\",\n"
        "  \"attention_dropout\": 0.0,\n"
        "  \"attention_bias\": false,\n"
        "  \"mlp_bias\": false,\n"
        "  \"rope_theta\": 10000.0,\n"
        "  \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0},\n"
        "  \"bos_token_id\": 1,\n"
        "  \"eos_token_id\": 2,\n"
        "  \"torch_dtype\": \"float32\",\n"
        "  \"use_cache\": true\n"
        "}\n",
        true},
};

static void texts_that_are_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < CY_TEST_COUNT(writings); i++) {
        cy_model_shape shape;
        cy_text json = {0};
        CY_CHECK_OK(read(&shape, writings[i].type, writings[i].more));
        CY_CHECK_OK(writings[i].published ? cy_model_shape_to_config(&json, &shape, CY_F32)
                                          : cy_model_shape_to_json(&json, &shape));
        assert_string_equal(json.bytes, writings[i].json);
        cy_text_free(&json);
    }
    static const struct {
        cy_dtype dtype;
        const char *words;
    } dtypes[] = {{CY_BF16, "\"torch_dtype\": \"bfloat16\""},
        {CY_F16, "\"torch_dtype\": \"float16\""}, {CY_F32, "\"torch_dtype\": \"float32\""},
        {CY_F64, "\"torch_dtype\": \"float64\""}};
    for (size_t i = 0; i < CY_TEST_COUNT(dtypes); i++) {
        cy_model_shape shape;
        cy_text json = {0};
        CY_CHECK_OK(read(&shape, "llama", ""));
        CY_CHECK_OK(cy_model_shape_to_config(&json, &shape, dtypes[i].dtype));
        assert_non_null(strstr(json.bytes, dtypes[i].words));
        cy_text_free(&json);
    }
}

// Values that say nothing wrong are what they say, or the family's own.
static void values_that_are_taken(void **state)
{
    (void)state;
    cy_model_shape s;
    CY_CHECK_OK(read(&s, "llama", "'num_key_value_heads': null, 'bos_token_id': [7, 8]"));
    assert_int_equal(s.kv_heads, 4);
    assert_int_equal(s.bos, 7);
    assert_int_equal(s.eos, 2);
    assert_int_equal(s.max_positions, 2048);
    assert_int_equal(s.head_dim, 16);
    assert_true(s.init_std == 0.02 && s.norm_eps == 1e-6 && s.rope.theta == 1e4);
    CY_CHECK_OK(read(&s, "llama", "'bos_token_id': [], 'eos_token_id': -1"));
    assert_int_equal(s.bos, -1);
    assert_int_equal(s.eos, -1);
    CY_CHECK_OK(read(&s, "llama", "'rope_theta': 3, 'rope_scaling': {'rope_theta': 5}"));
    assert_true(s.rope.theta == 5 && s.rope.scaling == CY_ROPE_PLAIN);
    CY_CHECK_OK(read(&s, "qwen2", "'use_sliding_window': true"));
    assert_int_equal(s.window, 0); // only layers from 28 on would slide
    CY_CHECK_OK(read(&s, "qwen2", "'use_sliding_window': true, 'max_window_layers': 0"));
    assert_int_equal(s.window, 4096);
    CY_CHECK_OK(read(&s, "mistral", "'sliding_window': 1"));
    assert_int_equal(s.window, 1);
    CY_CHECK_OK(read(&s, "llama", "'cyclotron': {'window': 2147483647, 'out_bias': true}"));
    assert_int_equal(s.window, INT32_MAX);
    assert_true(s.out_bias && !s.qkv_bias && !s.qk_norm);
    // yarn: the factor is what the positions grew by; mscale makes the attention's factor.
    CY_CHECK_OK(read(&s, "llama",
        "'rope_scaling': {'rope_type': 'yarn', 'original_max_position_embeddings': 512}"));
    assert_true(s.rope.factor == 4 && s.rope.attention_factor == 0);
    assert_true(s.rope.beta_fast == 32 && s.rope.beta_slow == 1);
    static const struct {
        const char *keys;
        double least, most;
    } scales[] = {
        {"'factor': 4, 'mscale': 2, 'mscale_all_dim': 1", 1.12175, 1.12176}, // 1.27726 / 1.13863
        {"'factor': 4, 'mscale': 1, 'mscale_all_dim': 1", 1, 1},
        {"'factor': 1, 'mscale': 2, 'mscale_all_dim': 1", 1, 1},
        {"'factor': 0.5, 'mscale': 2, 'mscale_all_dim': 1", 1, 1},
        {"'factor': 1.5, 'mscale': 2, 'mscale_all_dim': 1", 1.03896, 1.03897}, // 1.08109 / 1.04055
        {"'factor': 4, 'mscale': 2, 'mscale_all_dim': 1, 'attention_factor': 0.5", 0.5, 0.5},
        {"'factor': 4, 'mscale': 2", 0, 0},
        {"'factor': 4, 'mscale_all_dim': 2", 0, 0},
        {"'factor': 4, 'mscale': 2, 'mscale_all_dim': 1, 'attention_factor': 3", 3, 3},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(scales); i++) {
        char more[200];
        snprintf(more, sizeof(more), "'rope_scaling': {'rope_type': 'yarn', %s}", scales[i].keys);
        CY_CHECK_OK(read(&s, "llama", more));
        assert_true(s.rope.attention_factor >= scales[i].least);
        assert_true(s.rope.attention_factor <= scales[i].most);
    }
}

// Which families can say what a shape does: its own first, then the first of the list.
static void families_that_express_a_shape(void **state)
{
    (void)state;
    static const struct {
        const char *architecture;
        bool qkv_bias, out_bias, qk_norm;
        int experts, window;
        const char *family; // NULL: none
    } shapes[] = {
        {"llama", false, false, false, 0, 0, "llama"},
        {"llama", true, true, false, 0, 0, "llama"},
        {"llama", true, false, false, 0, 0, "qwen2"},
        {"llama", false, true, false, 0, 0, NULL},
        {"llama", false, false, false, 0, 1, "mistral"},
        {"llama", true, true, false, 0, 1, NULL},
        {"llama", false, false, true, 0, 0, "qwen3"},
        {"llama", true, true, true, 0, 5, "qwen3"},
        {"llama", true, false, true, 0, 0, NULL},
        {"llama", false, false, false, 1, 0, "mixtral"},
        {"llama", true, false, false, 1, 0, NULL},
        {"llama", false, true, false, 1, 0, NULL},
        {"llama", false, false, true, 1, 5, "qwen3_moe"},
        {"mistral", false, false, false, 0, 0, "mistral"},
        {"mistral", true, true, false, 0, 0, "llama"},
        {"mistral", false, true, false, 0, 0, NULL},
        {"qwen2", true, false, false, 0, 0, "qwen2"},
        {"qwen2", false, false, false, 0, 0, "llama"},
        {"qwen2", true, true, false, 0, 0, "llama"},
        {"gpt2", false, false, false, 0, 0, "llama"},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(shapes); i++) {
        cy_model_shape shape = {.qkv_bias = shapes[i].qkv_bias,
            .out_bias = shapes[i].out_bias,
            .qk_norm = shapes[i].qk_norm,
            .experts = shapes[i].experts,
            .window = shapes[i].window};
        snprintf(shape.architecture, sizeof(shape.architecture), "%s", shapes[i].architecture);
        const cy_model_family *family = cy_family_for_shape(&shape);
        if (shapes[i].family == NULL) {
            assert_null(family);
        } else {
            assert_non_null(family);
            assert_string_equal(family->model_type, shapes[i].family);
        }
    }
    cy_model_shape shape = {.qkv_bias = true, .qk_norm = true, .window = 5, .experts = 3};
    cy_text json = {0};
    CY_CHECK_FAILS(cy_model_shape_to_config(&json, &shape, CY_F32), CY_ERR_UNSUPPORTED,
        "no published family has this attention: bias of q, k, v yes, bias of the output no, "
        "norm of q and k yes, window 5, 3 experts");
    assert_null(json.bytes);
}

static void all_differences_are_listed(void **state)
{
    (void)state;
    const cy_model_shape there = {.layers = 1,
        .hidden = 2,
        .ffn = 3,
        .heads = 4,
        .kv_heads = 5,
        .head_dim = 6,
        .vocab = 7,
        .norm_eps = 1e-5,
        .rope = {.scaling = CY_ROPE_YARN,
            .theta = 8,
            .factor = 9,
            .low_freq_factor = 10,
            .high_freq_factor = 11,
            .beta_fast = 12,
            .beta_slow = 13,
            .attention_factor = 14,
            .original_length = 15},
        .window = 16,
        .experts = 17,
        .experts_per_token = 18,
        .expert_ffn = 19,
        .tied = true,
        .qk_norm = true};
    const cy_model_shape here = {.qkv_bias = true,
        .out_bias = true,
        .norm_eps = 0.25,
        .rope = {.scaling = CY_ROPE_LLAMA3, .theta = 1e15, .factor = 1e14}};
    cy_text lines = {0};
    int count = -1;
    CY_CHECK_OK(cy_model_shape_differences(&lines, &count, &there, &here));
    assert_int_equal(count, 25);
    assert_string_equal(lines.bytes,
        "\n  - rope_type: there yarn, here llama3"
        "\n  - num_hidden_layers: there 1, here 0"
        "\n  - hidden_size: there 2, here 0"
        "\n  - intermediate_size: there 3, here 0"
        "\n  - num_attention_heads: there 4, here 0"
        "\n  - num_key_value_heads: there 5, here 0"
        "\n  - head_dim: there 6, here 0"
        "\n  - vocab_size: there 7, here 0"
        "\n  - rms_norm_eps: there 1e-05, here 0.25"
        "\n  - rope_theta: there 8, here 1e+15"
        "\n  - rope_scaling.factor: there 9, here 100000000000000"
        "\n  - rope_scaling.low_freq_factor: there 10, here 0"
        "\n  - rope_scaling.high_freq_factor: there 11, here 0"
        "\n  - rope_scaling.beta_fast: there 12, here 0"
        "\n  - rope_scaling.beta_slow: there 13, here 0"
        "\n  - rope_scaling.attention_factor: there 14, here 0"
        "\n  - rope_scaling.original_max_position_embeddings: there 15, here 0"
        "\n  - sliding_window: there 16, here 0"
        "\n  - num_experts: there 17, here 0"
        "\n  - num_experts_per_tok: there 18, here 0"
        "\n  - moe_intermediate_size: there 19, here 0"
        "\n  - tie_word_embeddings: there true, here false"
        "\n  - bias of q, k, v: there false, here true"
        "\n  - bias of the output projection: there false, here true"
        "\n  - norm of q and k: there true, here false");
    cy_text_free(&lines);
}

// All that contradicts itself in a shape, each in a line.
static void shapes_that_cannot_be(void **state)
{
    (void)state;
    static const cy_model_shape right = {.layers = 1,
        .hidden = 1,
        .ffn = 1,
        .vocab = 1,
        .head_dim = 2,
        .norm_eps = 1e-9,
        .heads = 1,
        .kv_heads = 1};
    const cy_model_shape none = {.layers = 0};
    CY_CHECK_OK(cy_model_shape_check(&right));
    assert_int_equal(cy_model_shape_check(&none), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(),
        "num_hidden_layers is 0, at least 1 is needed\n"
        "hidden_size is 0, at least 1 is needed\n"
        "intermediate_size is 0, at least 1 is needed\n"
        "vocab_size is 0, at least 1 is needed\n"
        "head_dim is 0: rotary positions turn pairs, so it must be even\n"
        "rms_norm_eps is 0, it must be above 0\n"
        "num_attention_heads is 0, at least 1 is needed\n"
        "num_key_value_heads is 0, at least 1 is needed");
    static const struct {
        int heads, kv_heads;
        const char *wrong;
    } heads[] = {
        {0, 1, "num_attention_heads is 0, at least 1 is needed"},
        {1, 0, "num_key_value_heads is 0, at least 1 is needed"},
        {3, 2, "num_attention_heads 3 is not a multiple of num_key_value_heads 2"},
        {2, 4, "num_attention_heads 2 is not a multiple of num_key_value_heads 4"},
        {4, 2, NULL},
        {1, 2, "num_attention_heads 1 is not a multiple of num_key_value_heads 2"},
        {2, 1, NULL},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(heads); i++) {
        cy_model_shape shape = right;
        shape.heads = heads[i].heads;
        shape.kv_heads = heads[i].kv_heads;
        const cy_status status = cy_model_shape_check(&shape);
        assert_int_equal(status, heads[i].wrong != NULL ? CY_ERR_REQUEST : CY_OK);
        if (heads[i].wrong != NULL) assert_string_equal(cy_error_text(), heads[i].wrong);
    }
    static const int64_t widths[] = {-2, 0, 1, 3, 5};
    for (size_t i = 0; i < CY_TEST_COUNT(widths); i++) {
        cy_model_shape shape = right;
        char wanted[100];
        shape.head_dim = widths[i];
        snprintf(wanted, sizeof(wanted),
            "head_dim is %d: rotary positions turn pairs, so it must be even", (int)widths[i]);
        assert_int_equal(cy_model_shape_check(&shape), CY_ERR_REQUEST);
        assert_string_equal(cy_error_text(), wanted);
    }
}

// What a family has where its file says nothing.
static void what_families_leave_out(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int kv_heads, window, bos, eos;
        int64_t head_dim, max_positions, expert_ffn;
        double norm_eps, theta;
    } families[] = {
        {"llama", 64, 0, 1, 2, 32, 2048, 0, 1e-6, 1e4},
        {"mistral", 8, 4096, 1, 2, 32, 131072, 0, 1e-6, 1e4},
        {"qwen2", 32, 0, -1, -1, 32, 32768, 0, 1e-6, 1e4},
        {"qwen3", 32, 0, -1, -1, 128, 32768, 0, 1e-6, 1e4},
        {"mixtral", 8, 0, 1, 2, 32, 131072, 176, 1e-5, 1e6},
        {"qwen3_moe", 4, 0, -1, -1, 32, 32768, 176, 1e-6, 1e4},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(families); i++) {
        cy_model_shape s;
        CY_CHECK_OK(read(&s, families[i].type,
            "'hidden_size': 2048, 'num_attention_heads': 64, 'num_key_value_heads': null,"
            " 'num_local_experts': 2, 'num_experts_per_tok': 1"));
        assert_string_equal(s.architecture, families[i].type);
        assert_int_equal(s.kv_heads, families[i].kv_heads);
        assert_int_equal(s.window, families[i].window);
        assert_int_equal(s.bos, families[i].bos);
        assert_int_equal(s.eos, families[i].eos);
        assert_int_equal(s.head_dim, families[i].head_dim);
        assert_int_equal(s.max_positions, families[i].max_positions);
        assert_int_equal(s.expert_ffn, families[i].expert_ffn);
        assert_true(s.norm_eps == families[i].norm_eps && s.rope.theta == families[i].theta);
        assert_true(s.init_std == 0.02 && !s.tied);
    }
    cy_model_shape s;
    CY_CHECK_OK(read(
        &s, "llama", "'hidden_size': 8, 'num_attention_heads': 1, 'num_key_value_heads': null"));
    assert_int_equal(s.head_dim, 8);
    assert_int_equal(s.kv_heads, 1);
    CY_CHECK_OK(read(&s, "qwen2", "'max_window_layers': 0, 'sliding_window': 9"));
    assert_int_equal(s.window, 0); // not used
    CY_CHECK_OK(read(&s, "qwen2", "'use_sliding_window': true, 'num_hidden_layers': 28"));
    assert_int_equal(s.window, 0);
    assert_int_equal(read(&s, "qwen2", "'use_sliding_window': true, 'num_hidden_layers': 29"),
        CY_ERR_UNSUPPORTED);
    assert_string_equal(cy_error_text(),
        ONE "max_window_layers 28 of 29 layers: a window on some layers only is not known");
    CY_CHECK_OK(read(&s, "mistral", "'sliding_window': 1, 'layer_types': ['sliding_attention']"));
    cy_text json = {0};
    CY_CHECK_OK(read(&s, "llama", "'bos_token_id': 0"));
    CY_CHECK_OK(cy_model_shape_to_json(&json, &s));
    assert_non_null(strstr(json.bytes, "\"bos_token_id\": 0,"));
    cy_text_free(&json);
}

// For us a shape is written in its own family's words wherever the experts allow it, and otherwise
// in some family's: what that does not say is beside it.
static void shapes_as_they_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *architecture;
        int experts;
        bool qkv_bias, out_bias, qk_norm;
        bool expert_ffn; // is said, though the family has no key for it
        const char *family;
    } kept[] = {
        {"llama", 0, false, true, false, false, "llama"},
        {"gpt2", 0, false, true, false, false, "llama"},
        {"gpt2", 0, true, false, false, false, "qwen2"},
        {"gpt2", 1, true, false, false, true, "mixtral"},
        {"llama", 1, false, false, false, true, "mixtral"},
        {"llama", 1, false, false, true, true, "qwen3_moe"},
        {"mixtral", 0, false, false, false, false, "llama"},
        {"qwen2", 0, false, false, false, false, "qwen2"},
        {"mixtral", 1, false, false, true, true, "mixtral"},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(kept); i++) {
        cy_model_shape shape, again;
        cy_text json = {0};
        char words[64];
        CY_CHECK_OK(read(&shape, "llama", ""));
        memset(shape.architecture, 0, sizeof(shape.architecture));
        snprintf(shape.architecture, sizeof(shape.architecture), "%s", kept[i].architecture);
        shape.experts = shape.experts_per_token = kept[i].experts;
        shape.expert_ffn = kept[i].experts > 0 ? 8 : 0;
        shape.qkv_bias = kept[i].qkv_bias;
        shape.out_bias = kept[i].out_bias;
        shape.qk_norm = kept[i].qk_norm;
        CY_CHECK_OK(cy_model_shape_to_json(&json, &shape));
        snprintf(words, sizeof(words), "\n  \"model_type\": \"%s\",", kept[i].family);
        assert_non_null(strstr(json.bytes, words));
        const bool said = strstr(json.bytes, ",\n  \"moe_intermediate_size\": 8") != NULL;
        assert_int_equal(said, kept[i].expert_ffn);
        CY_CHECK_OK(cy_model_shape_from_json(&again, json.bytes, json.length, "again"));
        int count = -1;
        cy_text lines = {0};
        CY_CHECK_OK(cy_model_shape_differences(&lines, &count, &shape, &again));
        assert_int_equal(count, 0);
        cy_text_free(&lines);
        cy_text_free(&json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasons),
        cmocka_unit_test(texts_that_are_written),
        cmocka_unit_test(values_that_are_taken),
        cmocka_unit_test(families_that_express_a_shape),
        cmocka_unit_test(all_differences_are_listed),
        cmocka_unit_test(shapes_that_cannot_be),
        cmocka_unit_test(what_families_leave_out),
        cmocka_unit_test(shapes_as_they_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
