// What a configuration comes to: the shape of its model, its batches, its end. Every refusal is
// compared as a whole, with its numbers and its advice.

#include "support/configs.h"
#include "support/support.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const cy_test_refusal scalings_of_positions_cases[] = {
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear'}}}",
        "model.rope_scaling: rope_type linear needs factor\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': null}}}",
        "model.rope_scaling: rope_type linear needs factor\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 0}}}",
        "model.rope_scaling.factor: a number above 0 is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': '2'}}}",
        "model.rope_scaling.factor: a number above 0 is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 1e-9}}}", NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 2, "
     "'low_freq_factor': 1}}}",
        "model.rope_scaling.low_freq_factor: rope_type linear has no such key\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 2, "
     "'low_freq_factor': null}}}",
        NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 2, "
     "'original_max_position_embeddings': 64}}}",
        "model.rope_scaling.original_max_position_embeddings: rope_type linear has no such key\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'default', 'factor': 2}}}",
        "model.rope_scaling.factor: rope_type default has no such key\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'dynamic', 'factor': 2, "
     "'beta_fast': 2}}}",
        "model.rope_scaling.beta_fast: rope_type dynamic has no such key\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'dynamic', 'factor': 2, "
     "'original_max_position_embeddings': 1023}}}",
        "model.rope_scaling.original_max_position_embeddings = 1023: differs from "
        "max_position_embeddings 1024\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'dynamic', 'factor': 2, "
     "'original_max_position_embeddings': 1024}}}",
        NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'dynamic', 'factor': 2, "
     "'original_max_position_embeddings': 1025}}}",
        "model.rope_scaling.original_max_position_embeddings = 1025: differs from "
        "max_position_embeddings 1024\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'yarn', 'factor': 2, "
     "'original_max_position_embeddings': 1}}}",
        NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'yarn', 'factor': 2, "
     "'original_max_position_embeddings': 0}}}",
        "model.rope_scaling.original_max_position_embeddings: a whole number above 0 is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'yarn', 'factor': 2, "
     "'original_max_position_embeddings': 64.5}}}",
        "model.rope_scaling.original_max_position_embeddings: a whole number above 0 is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'yarn', 'factor': 2, "
     "'original_max_position_embeddings': 64.0}}}",
        NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'yarn', 'factor': 2, "
     "'original_max_position_embeddings': 1099511627776}}}",
        NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'yarn', 'factor': 2, "
     "'original_max_position_embeddings': 1099511627777}}}",
        "model.rope_scaling.original_max_position_embeddings: a whole number above 0 is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'yarn', 'factor': 2, "
     "'attention_factor': 0}}}",
        "model.rope_scaling.attention_factor: a number above 0 is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'llama3', 'factor': 2}}}",
        "model.rope_scaling: rope_type llama3 needs low_freq_factor\n"
        "model.rope_scaling: rope_type llama3 needs high_freq_factor\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'llama3', 'factor': 2, "
     "'low_freq_factor': null, 'high_freq_factor': 4}}}",
        "model.rope_scaling: rope_type llama3 needs low_freq_factor\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'llama3', 'factor': 2, "
     "'low_freq_factor': 4, 'high_freq_factor': 4}}}",
        "model.rope_scaling.high_freq_factor = 4: must be above low_freq_factor 4\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'llama3', 'factor': 2, "
     "'low_freq_factor': 4, 'high_freq_factor': 4.25}}}",
        NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'llama3', 'factor': 2, "
     "'low_freq_factor': 4.5, 'high_freq_factor': 4.25}}}",
        "model.rope_scaling.high_freq_factor = 4.25: must be above low_freq_factor 4.5\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'longrope', 'factor': 2}}}",
        "model.rope_scaling: an object whose rope_type is default, linear, dynamic, llama3 or yarn "
        "is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 3, 'factor': 2}}}",
        "model.rope_scaling: an object whose rope_type is default, linear, dynamic, llama3 or yarn "
        "is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'factor': 2}}}",
        "model.rope_scaling: an object whose rope_type is default, linear, dynamic, llama3 or yarn "
        "is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 2, 'factr': "
     "2}}}",
        "model.rope_scaling.factr: no such key\n"
        "  did you mean factor?\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 2, 'xyzzy': "
     "2}}}",
        "model.rope_scaling.xyzzy: no such key\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'type': 'dynamic', "
     "'factor': 2}}}",
        NULL},
    {"{'model': {'name': 'tiny', 'rope_scaling': []}}",
        "model.rope_scaling: an object whose rope_type is default, linear, dynamic, llama3 or yarn "
        "is wanted\n"},
    {"{'model': {'name': 'tiny', 'rope_scaling': null}}", NULL},
};

static void scalings_of_positions(void **state)
{
    (void)state;
    cy_test_refusals(
        scalings_of_positions_cases, CY_TEST_COUNT(scalings_of_positions_cases), CY_TEST_RESOLVED);
}

// How the advice for a model that there is not ends.
#define PRESETS                                                                                    \
    "the presets are tiny, demo, smollm-135m, smollm-360m, smollm-1.7b, llama-3.2-1b, "            \
    "llama-2-7b, llama-3-8b\n"

static const cy_test_refusal names_of_models_cases[] = {
    {"{'model': {'name': 'x'}}",
        "model.name = \"x\": neither a folder with config.json nor a preset\n"
        "  " PRESETS},
    {"{'model': {'name': 'a//'}}",
        "model.name = \"a//\": neither a folder with config.json nor a preset\n"
        "  " PRESETS},
    {"{'model': {'name': 'a/b'}}",
        "model.name = \"a/b\": neither a folder with config.json nor a preset; nothing is "
        "downloaded while training\n"
        "  get it with 'huggingface-cli download a/b --local-dir b', and give that "
        "folder; " PRESETS},
    {"{'model': {'name': '/b'}}",
        "model.name = \"/b\": neither a folder with config.json nor a preset\n"
        "  " PRESETS},
    {"{'model': {'name': 'a/'}}",
        "model.name = \"a/\": neither a folder with config.json nor a preset\n"
        "  " PRESETS},
    {"{'model': {'name': './b'}}",
        "model.name = \"./b\": neither a folder with config.json nor a preset\n"
        "  " PRESETS},
    {"{'model': {'name': 'a/b/c'}}",
        "model.name = \"a/b/c\": neither a folder with config.json nor a preset\n"
        "  " PRESETS},
    {"{'model': {'name': 'ab'}}",
        "model.name = \"ab\": neither a folder with config.json nor a preset\n"
        "  " PRESETS},
    {"{'model': {'name': 'TINY'}}", NULL},
    {"{'model': {'name': 'huggingfacetb/smollm-135m'}}", NULL},
    {"{'model': {'name': 'HuggingFaceTB/SmolLM-135M-instruct'}}", NULL},
    {"{'model': {'name': 'HuggingFaceTB/SmolLM-135M-chat'}}",
        "model.name = \"HuggingFaceTB/SmolLM-135M-chat\": neither a folder with config.json nor a "
        "preset; nothing is downloaded while training\n"
        "  get it with 'huggingface-cli download HuggingFaceTB/SmolLM-135M-chat --local-dir "
        "SmolLM-135M-chat', and give that folder; " PRESETS},
};

static void names_of_models(void **state)
{
    (void)state;
    cy_test_refusals(names_of_models_cases, CY_TEST_COUNT(names_of_models_cases), CY_TEST_RESOLVED);
}

static const cy_test_refusal what_the_keys_lack_cases[] = {
    {"{'model': {'name': 'tiny', 'model_type': 'x'}}",
        "model.model_type = \"x\": one of llama, mistral, qwen2, qwen3, mixtral, qwen3_moe is "
        "wanted\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 1, 'num_experts_per_tok': 1}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'threads_per_rank': 2}, 'environment': "
     "{'OMP_NUM_THREADS': '2'}}",
        NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'threads_per_rank': 2}, 'environment': "
     "{'OMP_NUM_THREADS': '1'}}",
        "environment.OMP_NUM_THREADS = 1: distributed.threads_per_rank says 2\n"
        "  leave OMP_NUM_THREADS out\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 3}}",
        "model.num_attention_heads = 3: does not divide model.hidden_size 64\n"
        "  give model.head_dim, or another number of heads\n"},
    {"{'model': {'name': 'tiny', 'hidden_size': 66}}",
        "model.num_attention_heads = 4: does not divide model.hidden_size 66\n"
        "  give model.head_dim, or another number of heads\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 3, 'head_dim': 20}}", NULL},
    {"{'model': {'name': 'tiny', 'hidden_size': 66, 'head_dim': 16}}", NULL},
    {"{'model': {'name': 'tiny', 'hidden_size': 68}}", NULL},
    {"{}",
        "model: num_hidden_layers, hidden_size, intermediate_size, num_attention_heads, vocab_size "
        "missing\n"
        "  give model.name, a folder with config.json or a preset, or these keys\n"},
    {"{'model': {'num_hidden_layers': 1, 'hidden_size': 8, 'intermediate_size': 8, "
     "'num_attention_heads': 2}}",
        "model: vocab_size missing\n"
        "  give model.name, a folder with config.json or a preset, or these keys\n"},
    {"{'model': {'hidden_size': 8, 'intermediate_size': 8, 'num_attention_heads': 2, 'vocab_size': "
     "9}}",
        "model: num_hidden_layers missing\n"
        "  give model.name, a folder with config.json or a preset, or these keys\n"},
    {"{'model': {'num_hidden_layers': 1, 'hidden_size': 8, 'vocab_size': 9}}",
        "model: intermediate_size, num_attention_heads missing\n"
        "  give model.name, a folder with config.json or a preset, or these keys\n"},
    {"{'model': {'name': 'tiny', 'model_type': 'mixtral'}}",
        "model.model_type = \"mixtral\": the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny', 'model_type': 'qwen3_moe'}}",
        "model.model_type = \"qwen3_moe\": the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny', 'model_type': 'mixtral', 'num_local_experts': 2, "
     "'num_experts_per_tok': 1}}",
        NULL},
    {"{'model': {'name': 'tiny', 'model_type': 'qwen3_moe', 'num_experts': 2, "
     "'num_experts_per_tok': 1}}",
        NULL},
    {"{'model': {'name': 'tiny', 'num_experts_per_tok': 1}}",
        "model.num_experts_per_tok = 1: the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny', 'moe_intermediate_size': 1}}",
        "model.moe_intermediate_size = 1: the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny', 'router_aux_loss_coef': 1e-3}}",
        "model.router_aux_loss_coef = 0.001: the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny', 'router_aux_loss_coef': 0}}", NULL},
    {"{'model': {'name': 'tiny', 'model_type': 'gpt2'}}",
        "model.model_type = \"gpt2\": one of llama, mistral, qwen2, qwen3, mixtral, qwen3_moe is "
        "wanted\n"},
    {"{'model': {'name': 'tiny', 'model_type': 'llama2'}}",
        "model.model_type = \"llama2\": one of llama, mistral, qwen2, qwen3, mixtral, qwen3_moe is "
        "wanted\n"},
};

static void what_the_keys_lack(void **state)
{
    (void)state;
    cy_test_refusals(
        what_the_keys_lack_cases, CY_TEST_COUNT(what_the_keys_lack_cases), CY_TEST_RESOLVED);
}

static const cy_test_refusal batches_divide_cases[] = {
    {"{'model': {'name': 'tiny'}, 'training': {'global_batch_size': 3, 'micro_batch_size': 4}}",
        "training.global_batch_size = 3: micro_batch_size 4 x dp_size 1 = 4 does not divide it\n"
        "  4 would do\n"},
    {"{'model': {'name': 'tiny'}, 'training': {'global_batch_size': 4, 'micro_batch_size': 4}}",
        NULL},
    {"{'model': {'name': 'tiny'}, 'training': {'global_batch_size': 5, 'micro_batch_size': 4}}",
        "training.global_batch_size = 5: micro_batch_size 4 x dp_size 1 = 4 does not divide it\n"
        "  4 or 8 would do\n"},
    {"{'model': {'name': 'tiny'}, 'training': {'global_batch_size': 13, 'micro_batch_size': 2}, "
     "'distributed': {'dp_size': 3}}",
        "training.global_batch_size = 13: micro_batch_size 2 x dp_size 3 = 6 does not divide it\n"
        "  12 or 18 would do\n"},
    {"{'model': {'name': 'tiny'}, 'training': {'global_batch_size': 12, 'micro_batch_size': 2, "
     "'gradient_accumulation_steps': 2}, 'distributed': {'dp_size': 3}}",
        NULL},
    {"{'model': {'name': 'tiny'}, 'training': {'global_batch_size': 12, 'micro_batch_size': 2, "
     "'gradient_accumulation_steps': 1}, 'distributed': {'dp_size': 3}}",
        "training.gradient_accumulation_steps = 1: global_batch_size 12 / (micro_batch_size 2 x "
        "dp_size 3) is 2\n"
        "  give one of the two\n"},
    {"{'model': {'name': 'tiny'}, 'training': {'micro_batch_size': 65536, "
     "'gradient_accumulation_steps': 65536, 'seq_length': 65536}}",
        "training.gradient_accumulation_steps = 65536: a global batch of 2.81e+14 tokens is more "
        "than can be counted\n"},
    {"{'model': {'name': 'tiny'}, 'training': {'micro_batch_size': 65536, "
     "'gradient_accumulation_steps': 65536, 'seq_length': 65535}}",
        NULL},
};

static void batches_divide(void **state)
{
    (void)state;
    cy_test_refusals(batches_divide_cases, CY_TEST_COUNT(batches_divide_cases), CY_TEST_RESOLVED);
}

// What tiny comes to with these keys: 4 heads of 16, ffn 160, 1024 positions.
static const struct {
    const char *keys;
    int64_t head_dim, positions, expert_ffn;
    int kv_heads;
    bool qkv_bias, out_bias, qk_norm;
    cy_config_flag bias;
} shapes[] = {
    {"", 16, 1024, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'hidden_size': 68", 17, 1024, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'num_attention_heads': 2", 32, 1024, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'head_dim': 8", 8, 1024, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'num_key_value_heads': 4", 16, 1024, 0, 4, false, false, false, CY_CONFIG_FALSE},
    {", 'max_position_embeddings': 99", 16, 99, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'model_type': 'llama'", 16, 1024, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'model_type': 'mistral'", 16, 1024, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'model_type': 'qwen2'", 16, 1024, 0, 2, true, false, false, CY_CONFIG_TRUE},
    {", 'model_type': 'qwen3'", 16, 1024, 0, 2, false, false, true, CY_CONFIG_FALSE},
    {", 'model_type': 'qwen2', 'attention_bias': false", 16, 1024, 0, 2, false, false, false,
        CY_CONFIG_FALSE},
    {", 'model_type': 'qwen2', 'attention_bias': true", 16, 1024, 0, 2, true, false, false,
        CY_CONFIG_TRUE},
    {", 'attention_bias': true", 16, 1024, 0, 2, true, true, false, CY_CONFIG_TRUE},
    {", 'model_type': 'qwen3', 'attention_bias': true", 16, 1024, 0, 2, true, true, true,
        CY_CONFIG_TRUE},
    {", 'model_type': 'mistral', 'attention_bias': true", 16, 1024, 0, 2, true, false, false,
        CY_CONFIG_TRUE},
    {", 'max_position_embeddings': 1", 16, 1, 0, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'num_local_experts': 1", 16, 1024, 160, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'num_local_experts': 2", 16, 1024, 160, 2, false, false, false, CY_CONFIG_FALSE},
    {", 'num_experts': 2, 'moe_intermediate_size': 8, 'model_type': 'qwen3_moe'", 16, 1024, 8, 2,
        false, false, true, CY_CONFIG_FALSE},
};

static void shapes_from_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < CY_TEST_COUNT(shapes); i++) {
        cy_config c;
        char text[256];
        snprintf(text, sizeof(text), "{'model': {'name': 'tiny'%s}}", shapes[i].keys);
        cy_test_read_config(&c, text, NULL, 0, CY_TEST_RESOLVED, NULL);
        assert_int_equal(c.shape.head_dim, shapes[i].head_dim);
        assert_int_equal(c.model.head_dim, shapes[i].head_dim);
        assert_int_equal(c.shape.max_positions, shapes[i].positions);
        assert_int_equal(c.shape.expert_ffn, shapes[i].expert_ffn);
        assert_int_equal(c.model.moe_intermediate_size, shapes[i].expert_ffn);
        assert_int_equal(c.shape.kv_heads, shapes[i].kv_heads);
        assert_int_equal(c.shape.qkv_bias, shapes[i].qkv_bias);
        assert_int_equal(c.shape.out_bias, shapes[i].out_bias);
        assert_int_equal(c.shape.qk_norm, shapes[i].qk_norm);
        assert_int_equal(c.model.attention_bias, shapes[i].bias);
    }
}

// A folder of a preset's name is that folder, not the preset.
static void a_folder_goes_before_a_preset(void **state)
{
    (void)state;
    cy_config c;
    char folder[256], before[1024];
    cy_test_folder(folder, sizeof(folder));
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("tiny", 0700), 0);
    cy_test_read_config(&c, "{'model': {'name': 'tiny'}}", NULL, 0, CY_TEST_RESOLVED,
        "model.name = \"tiny\": neither a folder with config.json nor a preset\n"
        "  " PRESETS);
    assert_int_equal(chdir(before), 0);
}

static void ends_of_runs(void **state)
{
    (void)state;
    static const struct {
        int64_t steps, tokens, last;
    } cases[] = {
        {0, 0, 0},
        {7, 0, 7},
        {0, 1, 1},
        {0, 239, 1},
        {0, 240, 1},
        {0, 241, 2},
        {0, 480, 2},
        {1, 480, 1},
        {2, 480, 2},
        {3, 480, 2},
    };
    cy_config c = {
        .training = {.micro_batch_size = 3, .gradient_accumulation_steps = 4, .seq_length = 10},
        .distributed = {.tp_size = 2, .cp_size = 3, .pp_size = 5, .dp_size = 2}};
    assert_int_equal(cy_config_batch_samples(&c), 24);
    assert_int_equal(cy_config_batch_tokens(&c), 240);
    assert_int_equal(cy_config_world(&c), 60);
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        c.training.total_train_steps = cases[i].steps;
        c.training.max_tokens = cases[i].tokens;
        assert_int_equal(cy_config_last_step(&c), cases[i].last);
    }
}

// topk's warm-up: two fifths of the run's where they are not given.
static void warm_up_of_topk(void **state)
{
    (void)state;
    static const struct {
        const char *compression;
        int steps, given, wanted;
    } cases[] = {{"topk", 14, -1, 4}, {"topk", 15, -1, 6}, {"topk", 15, 0, 0}, {"topk", 15, 7, 7},
        {"int8", 15, -1, -1}, {"none", 15, -1, -1}};
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        cy_config c;
        char text[256];
        snprintf(text, sizeof(text),
            "{'model': {'name': 'tiny'}, 'training': {'total_train_steps': %d},"
            " 'distributed': {'compression': '%s', 'topk_warmup_steps': %d}}",
            cases[i].steps, cases[i].compression, cases[i].given);
        cy_test_read_config(&c, text, NULL, 0, CY_TEST_RESOLVED, NULL);
        assert_int_equal(c.distributed.topk_warmup_steps, cases[i].wanted);
    }
}

static void through_mpi_or_not(void **state)
{
    (void)state;
    static const struct {
        cy_config_backend backend;
        bool under_mpi, wanted;
    } cases[] = {{CY_CONFIG_BACKEND_AUTO, true, true}, {CY_CONFIG_BACKEND_AUTO, false, false},
        {CY_CONFIG_BACKEND_MPI, false, true}, {CY_CONFIG_BACKEND_MPI, true, true},
        {CY_CONFIG_BACKEND_THREADS, true, false}, {CY_CONFIG_BACKEND_SELF, true, false}};
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        const cy_config c = {.distributed = {.backend = cases[i].backend}};
        const cy_config_machine machine = {.under_mpi = cases[i].under_mpi};
        assert_int_equal(cy_config_through_mpi(&c, &machine), cases[i].wanted);
    }
}

// The tokenizer of the model's folder, whose path may be 1023 bytes long.
static void tokenizers_beside_the_model(void **state)
{
    (void)state;
    const char *model = "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 8,"
                        " \"num_attention_heads\": 2, \"num_hidden_layers\": 1, \"vocab_size\": 9}";
    for (int length = 1008; length <= 1009; length++) {
        cy_config c;
        char folder[1024], path[1100], text[1200], wanted[2300];
        cy_test_folder(folder, sizeof(folder));
        while ((int)strlen(folder) < length) {
            const int left = length - (int)strlen(folder) - 1;
            const int part = left <= 200 ? left : left <= 202 ? 100 : 200;
            snprintf(folder + strlen(folder), sizeof(folder) - strlen(folder), "/%0*d", part, 0);
            assert_int_equal(mkdir(folder, 0700), 0);
        }
        assert_int_equal(strlen(folder), length);
        snprintf(path, sizeof(path), "%s/config.json", folder);
        CY_CHECK_OK(cy_file_write(path, model, strlen(model)));
        snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
        snprintf(text, sizeof(text), "{'model': {'name': '%s'}}", folder);
        cy_test_read_config(&c, text, NULL, 0, CY_TEST_RESOLVED, NULL);
        assert_string_equal(c.dataset.tokenizer, "");
        CY_CHECK_OK(cy_file_write(path, "{}", 2));
        if (length == 1008) {
            cy_test_read_config(&c, text, NULL, 0, CY_TEST_RESOLVED, NULL);
            assert_string_equal(c.dataset.tokenizer, path);
        } else {
            snprintf(wanted, sizeof(wanted),
                "dataset.tokenizer = \"%s\": 1024 bytes, at most 1023 are taken\n", path);
            cy_test_read_config(&c, text, NULL, 0, CY_TEST_RESOLVED, wanted);
            assert_string_equal(c.dataset.tokenizer, "");
        }
    }
}

// What is not said: the keys alone of a model with one head.
static void what_is_absent(void **state)
{
    (void)state;
    cy_config c;
    cy_test_read_config(&c,
        "{'model': {'num_hidden_layers': 1, 'hidden_size': 8, 'intermediate_size': 9,"
        " 'num_attention_heads': 1, 'vocab_size': 10}, 'training': {'seq_length': 5},"
        " 'environment': {'OMP_NUM_THREADS': 3, 'FLASH_ATTEN': 0}}",
        NULL, 0, CY_TEST_RESOLVED, NULL);
    assert_string_equal(c.shape.architecture, "llama");
    assert_int_equal(c.shape.head_dim, 8);
    assert_int_equal(c.shape.kv_heads, 1);
    assert_int_equal(c.shape.max_positions, 5);
    assert_true(c.shape.norm_eps == 1e-6 && c.shape.init_std == 0.02);
    assert_true(c.shape.rope.theta == 1e4 && c.shape.rope.scaling == CY_ROPE_PLAIN);
    assert_int_equal(c.shape.rope.original_length, 0);
    assert_int_equal(c.shape.bos, -1);
    assert_int_equal(c.shape.eos, -1);
    assert_int_equal(c.training.gradient_accumulation_steps, 1);
    assert_string_equal(c.distributed.algorithm, "auto"); // a run measures
    assert_int_equal(c.distributed.threads_per_rank, 3);
    assert_int_equal(c.environment.omp_num_threads, 0);
    assert_int_equal(c.environment.flash_atten, CY_CONFIG_ABSENT);
    assert_false(c.model.use_flash_attention);
    cy_test_read_config(&c,
        "{'model': {'name': 'tiny', 'rope_scaling': {'rope_type': 'linear', 'factor': 2}},"
        " 'distributed': {'algorithm': 'ring'},"
        " 'training': {'gradient_accumulation_steps': 5}}",
        NULL, 0, CY_TEST_RESOLVED, NULL);
    assert_int_equal(c.shape.rope.original_length, 0);
    assert_string_equal(c.distributed.algorithm, "ring");
    assert_int_equal(c.training.gradient_accumulation_steps, 5);
    // What was refused stays something that can be looked at further.
    cy_test_read_config(&c,
        "{'model': {'name': 'tiny'}, 'training': {'global_batch_size': 5, 'micro_batch_size': 4}}",
        NULL, 0, CY_TEST_RESOLVED,
        "training.global_batch_size = 5: micro_batch_size 4 x dp_size 1 = 4 does not divide it\n"
        "  4 or 8 would do\n");
    assert_int_equal(c.training.gradient_accumulation_steps, 1);
    cy_test_read_config(&c,
        "{'model': {'name': 'tiny'}, 'training': {'micro_batch_size': 65536,"
        " 'gradient_accumulation_steps': 65536, 'seq_length': 65536}}",
        NULL, 0, CY_TEST_RESOLVED,
        "training.gradient_accumulation_steps = 65536: a global batch of 2.81e+14 tokens is more "
        "than can be counted\n");
    assert_int_equal(cy_config_batch_tokens(&c), 1);
}

// What the keys change of a folder's model, and what they leave.
static void keys_over_a_folder(void **state)
{
    (void)state;
    static const struct {
        const char *file, *keys;
        int64_t head_dim, window;
        const char *architecture;
        cy_config_flag bias;
    } cases[] = {
        {"'model_type': 'llama', 'head_dim': 48", "", 48, 0, "llama", CY_CONFIG_FALSE},
        {"'model_type': 'llama', 'head_dim': 48", ", 'num_hidden_layers': 3", 48, 0, "llama",
            CY_CONFIG_FALSE},
        {"'model_type': 'llama', 'head_dim': 48", ", 'num_attention_heads': 1", 64, 0, "llama",
            CY_CONFIG_FALSE},
        {"'model_type': 'llama', 'head_dim': 48", ", 'hidden_size': 128", 32, 0, "llama",
            CY_CONFIG_FALSE},
        {"'model_type': 'mistral'", "", 16, 4096, "mistral", CY_CONFIG_FALSE},
        {"'model_type': 'mistral'", ", 'sliding_window': 0", 16, 0, "mistral", CY_CONFIG_FALSE},
        {"'model_type': 'mistral'", ", 'sliding_window': 1", 16, 1, "mistral", CY_CONFIG_FALSE},
        {"'model_type': 'mistral'", ", 'model_type': 'llama'", 16, 4096, "llama", CY_CONFIG_FALSE},
        {"'model_type': 'qwen2'", "", 16, 0, "qwen2", CY_CONFIG_TRUE},
        {"'model_type': 'qwen2'", ", 'model_type': 'mistral'", 16, 0, "mistral", CY_CONFIG_FALSE},
        {"'model_type': 'llama', 'attention_bias': true", "", 16, 0, "llama", CY_CONFIG_TRUE},
        {"'model_type': 'llama', 'cyclotron': {'qkv_bias': true}", "", 16, 0, "llama",
            CY_CONFIG_ABSENT},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        cy_config c;
        char folder[256], path[300], text[600];
        cy_test_folder(folder, sizeof(folder));
        snprintf(path, sizeof(path), "%s/config.json", folder);
        snprintf(text, sizeof(text),
            "{%s, 'hidden_size': 64, 'intermediate_size': 8, 'num_attention_heads': 4,"
            " 'num_key_value_heads': 1, 'num_hidden_layers': 1, 'vocab_size': 9}",
            cases[i].file);
        CY_CHECK_OK(cy_file_write(path, cy_test_quotes(text), strlen(text)));
        snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
        CY_CHECK_OK(cy_file_write(path, "{}", 2));
        snprintf(text, sizeof(text), "{'model': {'name': '%s'%s}, 'dataset': {'tokenizer': 'x'}}",
            folder, cases[i].keys);
        cy_test_read_config(&c, text, NULL, 0, CY_TEST_RESOLVED, NULL);
        assert_int_equal(c.shape.head_dim, cases[i].head_dim);
        assert_int_equal(c.shape.window, cases[i].window);
        assert_int_equal(c.model.sliding_window, cases[i].window);
        assert_string_equal(c.shape.architecture, cases[i].architecture);
        assert_string_equal(c.model.model_type, cases[i].architecture);
        assert_int_equal(c.model.attention_bias, cases[i].bias);
        assert_string_equal(c.dataset.tokenizer, "x");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalings_of_positions),
        cmocka_unit_test(names_of_models),
        cmocka_unit_test(what_the_keys_lack),
        cmocka_unit_test(batches_divide),
        cmocka_unit_test(shapes_from_keys),
        cmocka_unit_test(a_folder_goes_before_a_preset),
        cmocka_unit_test(ends_of_runs),
        cmocka_unit_test(warm_up_of_topk),
        cmocka_unit_test(through_mpi_or_not),
        cmocka_unit_test(tokenizers_beside_the_model),
        cmocka_unit_test(what_is_absent),
        cmocka_unit_test(keys_over_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
