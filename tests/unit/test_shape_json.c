// config.json files as they are published become the right shapes; what cannot be followed is
// named.
#include "support/support.h"

#include "model/shape.h"

#include <string.h>

static cy_status read(cy_model_shape *shape, const char *json)
{
    return cy_model_shape_from_json(shape, json, strlen(json), "config.json");
}

// The keys that every file has, with room for more.
#define COMMON                                                                                     \
    "\"hidden_size\": 64, \"intermediate_size\": 176, \"num_hidden_layers\": 2, "                  \
    "\"num_attention_heads\": 4, \"vocab_size\": 100"

static void llama_2_leaves_things_out(void **state)
{
    (void)state;
    cy_model_shape s;
    CY_CHECK_OK(read(&s,
        "{\"_name_or_path\": \"x\", \"architectures\": [\"LlamaForCausalLM\"], \"bos_token_id\": 1,"
        "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 4096, "
        "\"initializer_range\": 0.02, \"intermediate_size\": 11008, "
        "\"max_position_embeddings\": 4096, \"model_type\": \"llama\", "
        "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 32, "
        "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "
        "\"tie_word_embeddings\": false, \"torch_dtype\": \"float16\", "
        "\"transformers_version\": \"4.31.0\", \"use_cache\": true, \"vocab_size\": 32000}"));
    assert_string_equal(s.architecture, "llama");
    assert_int_equal(s.layers, 32);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.kv_heads, 32);
    assert_true(s.rope.theta == 10000 && s.rope.scaling == CY_ROPE_PLAIN);
    assert_true(s.norm_eps == 1e-5 && !s.tied && !s.qkv_bias && !s.qk_norm && s.window == 0);
    assert_int_equal(s.bos, 1);
    assert_int_equal(s.eos, 2);
}

static void llama_3_scales_its_positions(void **state)
{
    (void)state;
    cy_model_shape s;
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"llama\", " COMMON
        ", \"num_key_value_heads\": 2, \"rope_theta\": 500000.0,"
        "\"max_position_embeddings\": 131072, \"tie_word_embeddings\": true, \"mlp_bias\": false, "
        "\"eos_token_id\": [128001, 128008], \"rope_scaling\": {\"factor\": 32.0, "
        "\"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
        "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}}"));
    assert_true(s.rope.scaling == CY_ROPE_LLAMA3 && s.rope.factor == 32);
    assert_true(s.rope.low_freq_factor == 1 && s.rope.high_freq_factor == 4);
    assert_int_equal(s.rope.original_length, 8192);
    assert_true(s.rope.theta == 500000 && s.tied);
    assert_int_equal(s.eos, 128001);
    // The newer way of writing it.
    cy_model_shape n;
    CY_CHECK_OK(read(&n,
        "{\"model_type\": \"llama\", " COMMON ", \"num_key_value_heads\": 2, "
        "\"max_position_embeddings\": 131072, \"tie_word_embeddings\": true, "
        "\"eos_token_id\": 128001, \"rope_parameters\": {\"factor\": 32.0, \"rope_theta\": "
        "500000.0,"
        "\"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
        "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}}"));
    assert_memory_equal(&s, &n, sizeof(s));
}

static void other_scalings(void **state)
{
    (void)state;
    cy_model_shape s;
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"llama\", " COMMON
        ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}"));
    assert_true(s.rope.scaling == CY_ROPE_LINEAR && s.rope.factor == 2);
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"llama\", " COMMON
        ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2}}"));
    assert_true(s.rope.scaling == CY_ROPE_DYNAMIC && s.rope.original_length == 2048);
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"qwen2\", " COMMON ", \"num_key_value_heads\": 2, "
        "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
        "\"original_max_position_embeddings\": 8192}}"));
    assert_true(s.rope.scaling == CY_ROPE_YARN && s.rope.beta_fast == 32 && s.rope.beta_slow == 1);
    assert_true(s.rope.attention_factor == 0 && s.rope.original_length == 8192);
}

static void biases_norms_and_windows(void **state)
{
    (void)state;
    cy_model_shape s;
    CY_CHECK_OK(read(&s, "{\"model_type\": \"llama\", " COMMON ", \"attention_bias\": true}"));
    assert_true(s.qkv_bias && s.out_bias);
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"qwen2\", " COMMON ", \"num_key_value_heads\": 2, "
        "\"use_sliding_window\": false, \"sliding_window\": 32768, "
        "\"max_window_layers\": 1}"));
    assert_true(s.qkv_bias && !s.out_bias && !s.qk_norm && s.window == 0);
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"qwen3\", " COMMON ", \"num_key_value_heads\": 2, "
        "\"max_window_layers\": 0, \"use_sliding_window\": true, "
        "\"sliding_window\": 32}"));
    assert_true(!s.qkv_bias && s.qk_norm && s.window == 32);
    assert_int_equal(s.head_dim, 128);
    CY_CHECK_OK(read(&s, "{\"model_type\": \"mistral\", " COMMON ", \"num_key_value_heads\": 2}"));
    assert_int_equal(s.window, 4096);
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"mistral\", " COMMON
        ", \"num_key_value_heads\": 2, \"sliding_window\": null}"));
    assert_int_equal(s.window, 0);
    CY_CHECK_OK(read(&s,
        "{\"model_type\": \"mixtral\", " COMMON ", \"num_key_value_heads\": 2, "
        "\"num_local_experts\": 8, \"num_experts_per_tok\": 2}"));
    assert_int_equal(s.experts, 8);
    assert_int_equal(s.expert_ffn, 176);
}

static void what_cannot_be_followed_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        cy_status status;
        const char *words;
    } cases[] = {
        {"{", CY_ERR_CORRUPT, "config.json: line 1"},
        {"[]", CY_ERR_CORRUPT, "not a JSON object"},
        {"{" COMMON "}", CY_ERR_CORRUPT, "model_type is missing"},
        {"{\"model_type\": \"gpt2\"}", CY_ERR_UNSUPPORTED, "the architecture gpt2 is not known"},
        {"{\"model_type\": \"llama\"}", CY_ERR_UNSUPPORTED, "hidden_size is missing"},
        {"{\"model_type\": \"llama\"}", CY_ERR_UNSUPPORTED, "vocab_size is missing"},
        {"{\"model_type\": \"llama\", " COMMON ", \"hidden_act\": \"gelu\"}", CY_ERR_UNSUPPORTED,
            "hidden_act must be \"silu\""},
        {"{\"model_type\": \"llama\", " COMMON ", \"mlp_bias\": true}", CY_ERR_UNSUPPORTED,
            "mlp_bias must be false"},
        {"{\"model_type\": \"llama\", " COMMON ", \"logit_scale\": 0.5}", CY_ERR_UNSUPPORTED,
            "logit_scale is not known"},
        {"{\"model_type\": \"llama\", " COMMON ", \"quantization_config\": {\"bits\": 4}}",
            CY_ERR_UNSUPPORTED, "quantization_config must be null"},
        {"{\"model_type\": \"llama\", " COMMON ", \"rope_interleaved\": true}", CY_ERR_UNSUPPORTED,
            "rope_interleaved must be false"},
        {"{\"model_type\": \"llama\", " COMMON ", \"attention_dropout\": 0.1}", CY_ERR_UNSUPPORTED,
            "attention_dropout must be 0"},
        {"{\"model_type\": \"llama\", " COMMON ", \"rope_scaling\": {\"type\": \"longrope\"}}",
            CY_ERR_UNSUPPORTED, "rope_type longrope is not known"},
        {"{\"model_type\": \"llama\", " COMMON
         ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 3}}",
            CY_ERR_UNSUPPORTED, "rope_scaling.beta_fast is not known for the scaling linear"},
        {"{\"model_type\": \"llama\", " COMMON ", \"rope_scaling\": {\"type\": \"linear\"}}",
            CY_ERR_UNSUPPORTED, "rope_scaling.factor is missing"},
        {"{\"model_type\": \"qwen3\", " COMMON ", \"num_key_value_heads\": 2, "
         "\"max_window_layers\": 1, \"use_sliding_window\": true, \"sliding_window\": 32}",
            CY_ERR_UNSUPPORTED, "max_window_layers 1 of 2 layers"},
        {"{\"model_type\": \"llama\", " COMMON
         ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
            CY_ERR_UNSUPPORTED, "layer_types: layer 1 is sliding_attention"},
        {"{\"model_type\": \"mistral\", " COMMON
         ", \"num_key_value_heads\": 2, \"attention_bias\": true}",
            CY_ERR_UNSUPPORTED, "attention_bias must be false for mistral"},
        {"{\"model_type\": \"llama\", " COMMON ", \"num_key_value_heads\": 3}", CY_ERR_REQUEST,
            "num_key_value_heads 3"},
        {"{\"model_type\": \"llama\", " COMMON ", \"head_dim\": 1.5}", CY_ERR_UNSUPPORTED,
            "head_dim must be a whole number"},
        {"{\"model_type\": \"llama\", " COMMON ", \"tie_word_embeddings\": 1}", CY_ERR_UNSUPPORTED,
            "tie_word_embeddings must be true or false"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_model_shape s;
        CY_CHECK_FAILS(read(&s, cases[i].json), cases[i].status, cases[i].words);
    }
    // All of it in one go.
    cy_model_shape s;
    const cy_status status = read(&s,
        "{\"model_type\": \"llama\", " COMMON
        ", \"mlp_bias\": true, \"x_scale\": 2, \"rope_theta\": \"a\"}");
    CY_CHECK_FAILS(status, CY_ERR_UNSUPPORTED, "3 of its keys");
    CY_CHECK_FAILS(status, CY_ERR_UNSUPPORTED, "mlp_bias");
    CY_CHECK_FAILS(status, CY_ERR_UNSUPPORTED, "x_scale");
    CY_CHECK_FAILS(status, CY_ERR_UNSUPPORTED, "rope_theta");
}

static const char *const samples[] = {
    "{\"model_type\": \"llama\", " COMMON ", \"rms_norm_eps\": 1e-5, \"initializer_range\": 0.013, "
    "\"rope_theta\": 123456.789, \"tie_word_embeddings\": true, \"eos_token_id\": null}",
    "{\"model_type\": \"llama\", " COMMON ", \"attention_bias\": true, \"rope_scaling\": "
    "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
    "\"original_max_position_embeddings\": 512}}",
    "{\"model_type\": \"mistral\", " COMMON ", \"num_key_value_heads\": 2, \"sliding_window\": 7}",
    "{\"model_type\": \"qwen2\", " COMMON ", \"num_key_value_heads\": 2, \"rope_scaling\": "
    "{\"rope_type\": \"yarn\", \"factor\": 2.5, \"mscale\": 1, \"mscale_all_dim\": 0.8, "
    "\"original_max_position_embeddings\": 512}}",
    "{\"model_type\": \"qwen3\", " COMMON ", \"num_key_value_heads\": 2, \"head_dim\": 48, "
    "\"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 0}",
    "{\"model_type\": \"qwen3_moe\", " COMMON ", \"num_key_value_heads\": 2, \"num_experts\": 4, "
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24, \"norm_topk_prob\": true}",
    "{\"model_type\": \"mixtral\", " COMMON
    ", \"num_key_value_heads\": 2, \"num_local_experts\": 4, "
    "\"num_experts_per_tok\": 2}",
};

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        cy_model_shape s, again;
        cy_text json = {0}, config = {0}, lines = {0};
        int count = -1;
        CY_CHECK_OK(read(&s, samples[i]));
        CY_CHECK_OK(cy_model_shape_to_json(&json, &s));
        CY_CHECK_OK(read(&again, json.bytes));
        assert_memory_equal(&s, &again, sizeof(s));
        CY_CHECK_OK(cy_model_shape_to_config(&config, &s, CY_BF16));
        assert_non_null(strstr(config.bytes, "\"torch_dtype\": \"bfloat16\""));
        CY_CHECK_OK(read(&again, config.bytes));
        assert_memory_equal(&s, &again, sizeof(s));
        CY_CHECK_OK(cy_model_shape_differences(&lines, &count, &s, &again));
        assert_int_equal(count, 0);
        cy_text_free(&json);
        cy_text_free(&config);
        cy_text_free(&lines);
    }
}

static void a_shape_of_no_family_is_kept_but_not_published(void **state)
{
    (void)state;
    cy_model_shape s, again;
    cy_text json = {0}, config = {0};
    CY_CHECK_OK(read(&s, samples[0]));
    s.window = 31; // a llama with a window is a mistral
    CY_CHECK_OK(cy_model_shape_to_config(&config, &s, CY_F32));
    assert_non_null(strstr(config.bytes, "MistralForCausalLM"));
    s.out_bias = true; // and with this bias alone nothing
    CY_CHECK_FAILS(
        cy_model_shape_to_config(&config, &s, CY_F32), CY_ERR_UNSUPPORTED, "no published family");
    CY_CHECK_OK(cy_model_shape_to_json(&json, &s));
    CY_CHECK_OK(read(&again, json.bytes));
    assert_memory_equal(&s, &again, sizeof(s));
    cy_text_free(&json);
    cy_text_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_2_leaves_things_out),
        cmocka_unit_test(llama_3_scales_its_positions),
        cmocka_unit_test(other_scalings),
        cmocka_unit_test(biases_norms_and_windows),
        cmocka_unit_test(what_cannot_be_followed_is_named),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(a_shape_of_no_family_is_kept_but_not_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
