// A configuration as it is read: names, types, ranges, order of precedence, and what is written
// starts the same run again.

#include "support/support.h"

#include "base/file.h"
#include "model/shape.h"
#include "config/config.h"
#include "config/table.h"
#include "config/value.h"

#include <stdio.h>
#include <string.h>

// Reads and resolves; the lines of all faults, "" without any. The caller's buffer is filled.
static cy_status read_into(cy_config *config, char *faults, size_t bytes, const char *text,
    const char *const *overrides, int count)
{
    cy_config_errors errors = {0};
    cy_status status =
        cy_config_read(config, &errors, text, strlen(text), "test.json", overrides, count);
    if (status == CY_OK) status = cy_config_resolve(config, &errors);
    snprintf(faults, bytes, "%s", errors.lines.bytes != NULL ? errors.lines.bytes : "");
    cy_config_errors_free(&errors);
    return status;
}

static void refuses(const char *text, const char *wanted)
{
    cy_config config;
    char faults[4096];
    assert_int_equal(read_into(&config, faults, sizeof(faults), text, NULL, 0), CY_ERR_REQUEST);
    if (strstr(faults, wanted) == NULL) {
        print_error("%s\nwas refused with:\n%swanted: %s\n", text, faults, wanted);
        fail();
    }
}

static void takes(cy_config *config, const char *text)
{
    char faults[4096];
    if (read_into(config, faults, sizeof(faults), text, NULL, 0) != CY_OK) {
        print_error("%s\nwas refused with:\n%s\n", text, faults);
        fail();
    }
}

static void defaults(void **state)
{
    (void)state;
    cy_config c;
    cy_config_defaults(&c);
    assert_int_equal(c.distributed.tp_size, 1);
    assert_int_equal(c.distributed.pp_engine, CY_PIPELINE_1F1B);
    assert_true(c.distributed.tp_overlap);
    assert_true(c.distributed.bucket_mb == 25);
    assert_true(c.distributed.timeout_s == 60);
    assert_string_equal(c.distributed.rank_order, "tp,cp,pp,dp");
    assert_int_equal(c.distributed.backend, CY_CONFIG_BACKEND_AUTO);
    assert_int_equal(c.model.dtype, CY_BF16);
    assert_int_equal(c.model.num_hidden_layers, 0);
    assert_int_equal(c.model.sliding_window, -1);
    assert_int_equal(c.model.tie_word_embeddings, CY_CONFIG_ABSENT);
    assert_int_equal(c.training.seed, 42);
    assert_true(c.training.learning_rate == 3e-4);
    assert_true(c.training.weight_decay == 0.01);
    assert_true(c.training.adam_beta2 == 0.999);
    assert_true(c.training.adam_eps == 1e-8);
    assert_true(c.training.grad_clip == 0);
    assert_int_equal(c.training.total_train_steps, 0);
    assert_int_equal(c.logging.log_frequency, 1);
    assert_int_equal(c.checkpoint.keep_last, 0);
    assert_true(c.checkpoint.timeout_s == 1800);
}

static void table_is_whole(void **state)
{
    (void)state;
    int count;
    const cy_key *keys = cy_config_keys(&count);
    for (int i = 0; i < count; i++) {
        assert_non_null(keys[i].doc);
        assert_ptr_equal(cy_config_key(keys[i].section, keys[i].name), &keys[i]); // no name twice
        const bool needs_default = keys[i].kind == CY_KEY_BOOL || keys[i].kind == CY_KEY_CHOICE ||
            keys[i].kind == CY_KEY_DTYPE;
        if (needs_default) assert_non_null(keys[i].initial);
        if (keys[i].kind == CY_KEY_CHOICE) assert_non_null(keys[i].values);
    }
}

// The names of the presets stand in one text beside their table.
static void presets_are_named(void **state)
{
    (void)state;
    char names[1024] = "";
    size_t length = 0;
    for (size_t i = 0; cy_preset_name(i) != NULL; i++) {
        length += (size_t)snprintf(
            names + length, sizeof(names) - length, "%s%s", i > 0 ? ", " : "", cy_preset_name(i));
        assert_true(length < sizeof(names));
    }
    assert_string_equal(CY_PRESET_NAMES, names); // in src/model/shape.h
    assert_string_equal(cy_config_key("model", "name")->others, names);
}

static void every_kind_of_value(void **state)
{
    (void)state;
    cy_config c;
    takes(&c,
        "{\"model\": {\"name\": \"tiny\", \"dtype\": \"float32\", \"vocab_size\": 1e3,"
        "  \"tie_word_embeddings\": false, \"sliding_window\": 0,"
        "  \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}},"
        " \"training\": {\"learning_rate\": 1, \"strict\": true, \"seq_length\": 64},"
        " \"distributed\": {\"pp_layers\": [1, 1], \"pp_size\": 2, \"pp_engine\": \"afab\","
        "  \"backend\": \"gloo\"},"
        " \"dataset\": {\"name\": [{\"path\": \"a\", \"weight\": 0.5}, {\"path\": \"b\"}]},"
        " \"checkpoint\": {\"load_path\": \"\", \"save_dir\": null},"
        " \"environment\": {\"OMP_NUM_THREADS\": \"3\", \"FLASH_ATTEN\": \"0\","
        "  \"TOKENIZERS_PARALLELISM\": \"false\", \"HF_TOKEN\": \"secret\"}}");
    assert_int_equal(c.model.dtype, CY_F32);
    assert_int_equal(c.shape.vocab, 1000);
    assert_false(c.shape.tied);
    assert_int_equal(c.shape.rope.scaling, CY_ROPE_LINEAR);
    assert_true(c.shape.rope.factor == 2 && c.shape.rope.theta == 1e4);
    assert_true(c.training.strict);
    assert_int_equal(c.distributed.pp_layers[1], 1);
    assert_int_equal(c.distributed.pp_engine, CY_PIPELINE_AFAB);
    assert_int_equal(c.distributed.backend, CY_CONFIG_BACKEND_AUTO);
    assert_int_equal(c.distributed.threads_per_rank, 3);
    assert_false(c.model.use_flash_attention);
    assert_int_equal(c.dataset.source_count, 2);
    assert_true(c.dataset.sources[0].weight == 0.5 && c.dataset.sources[1].weight == 1);
    assert_string_equal(c.checkpoint.save_dir, "");
    takes(&c,
        "\xef\xbb\xbf{\"model\": {\"name\": \"tiny\"},"
        " \"dataset\": {\"name\": [\"a\", {\"path\": \"b\", \"weight\": null}]}}");
    assert_true(c.dataset.sources[0].weight == 0 && c.dataset.sources[1].weight == 0); // by size
}

static void wrong_values(void **state)
{
    (void)state;
    refuses("{\"distributed\": {\"tp_size\": 0}}",
        "distributed.tp_size = 0: a whole number from 1 to 65536 is wanted");
    refuses("{\"distributed\": {\"tp_size\": 2.5}}", "distributed.tp_size = 2.5: ");
    refuses("{\"distributed\": {\"tp_size\": 1e300}}", "distributed.tp_size = 1e300");
    refuses("{\"distributed\": {\"tp_size\": \"2\"}}", "distributed.tp_size = \"2\": ");
    refuses("{\"training\": {\"seq_length\": true}}", "training.seq_length = true: ");
    refuses("{\"training\": {\"adam_beta1\": 1}}",
        "training.adam_beta1 = 1: a number from 0 to below 1 is wanted");
    refuses("{\"training\": {\"strict\": 1}}", "training.strict = 1: true or false is wanted");
    refuses("{\"training\": {\"lr_schedule\": \"cosin\"}}", "  did you mean cosine?");
    refuses("{\"model\": {\"dtype\": \"int32\"}}", "one of bf16, fp16, fp32, fp64 is wanted");
    refuses("{\"model\": {\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}}}",
        "rope_type llama3 needs low_freq_factor");
    refuses("{\"model\": {\"rope_scaling\": {\"rope_type\": \"linear\", \"factr\": 2}}}",
        "model.rope_scaling.factr: no such key\n  did you mean factor?");
    refuses("{\"model\": {\"rope_scaling\": 3}}", "model.rope_scaling: an object");
    refuses("{\"distributed\": {\"pp_layers\": [1, -1]}}", "distributed.pp_layers = [1,-1]");
    refuses("{\"dataset\": {\"name\": [{\"path\": \"a\", \"wait\": 1}]}}", "dataset.name = ");
    refuses("{\"dataset\": {\"name\": [{\"path\": \"a\", \"weight\": -1}]}}",
        "weight from above 0 to 1e30");
    refuses("{\"environment\": {\"OMP_NUM_THREADS\": \"many\"}}", "OMP_NUM_THREADS = \"many\"");
}

static void unknown_names(void **state)
{
    (void)state;
    refuses("{\"modle\": {}}", "modle: no such section\n  did you mean model?");
    refuses("{\"optimizer\": null}", "optimizer: no such section");
    refuses("{\"training\": {\"sequence_length\": null}}",
        "training.sequence_length: no such key\n  did you mean training.seq_length?");
    refuses("{\"training\": {\"tp_size\": 2}}", "  did you mean distributed.tp_size?");
    refuses("{\"model\": {\"num_layers\": 2}}", "  did you mean model.num_hidden_layers?");
    refuses("{\"model\": 3}", "model: an object of keys is wanted");
}

static void texts_that_are_not_json(void **state)
{
    (void)state;
    refuses("", "test.json: line 1");
    refuses("{\"model\": {\"name\": \"tiny\"}", "test.json: line 1");
    refuses("[]", "an object of sections is wanted");
    refuses("{\"model\": {}, \"model\": {}}", "duplicate");
    refuses("{\"model\": {\"name\": \"\xff\"}}", "test.json: line 1");
}

static void all_faults_at_once(void **state)
{
    (void)state;
    cy_config config;
    cy_config_errors errors = {0};
    const char *text = "{\"training\": {\"seq_len\": 1, \"seed\": -1, \"learning_rate\": \"x\"},"
                       " \"nothing\": {}}";
    const char *overrides[] = {"model.nam=x", "distributed.tp_size=0", "nonsense"};
    const cy_status status =
        cy_config_read(&config, &errors, text, strlen(text), "t", overrides, 3);
    assert_int_equal(status, CY_ERR_REQUEST);
    assert_int_equal(errors.count, 7);
    assert_non_null(strstr(cy_error_text(), "nonsense")); // the failure's text has them all
    cy_config_errors_free(&errors);
}

static void overrides_win(void **state)
{
    (void)state;
    cy_config c;
    char faults[4096];
    const char *overrides[] = {"model.num-hidden-layers=5", "logging.run_name=123",
        "checkpoint.save_dir=a=b", "training.max_tokens=null", "distributed.pp_engine=afab",
        "training.learning_rate=1e-2", "distributed.pp_layers=[2,3]",
        "dataset.name=[{\"path\":\"x\",\"weight\":2}]", "logging.tensorboard=true"};
    assert_int_equal(CY_OK,
        read_into(&c, faults, sizeof(faults),
            "{\"model\": {\"name\": \"tiny\"}, \"training\": {\"max_tokens\": 5}}", overrides, 9));
    assert_int_equal(c.shape.layers, 5);
    assert_string_equal(c.logging.run_name, "123");
    assert_string_equal(c.checkpoint.save_dir, "a=b");
    assert_int_equal(c.training.max_tokens, 0);
    assert_int_equal(c.distributed.pp_engine, CY_PIPELINE_AFAB);
    assert_true(c.training.learning_rate == 0.01);
    assert_int_equal(c.distributed.pp_layer_count, 2);
    assert_true(c.dataset.sources[0].weight == 2);
    assert_true(c.logging.tensorboard);
}

// The command line wins, also over what the file says of the same thing in another key.
static void overrides_win_over_other_words(void **state)
{
    (void)state;
    cy_config c;
    char faults[4096];
    const char *file = "{\"model\": {\"name\": \"tiny\", \"num_attention_heads\": 4, "
                       "\"head_dim\": 8}, \"training\": {\"global_batch_size\": 8}, "
                       "\"environment\": {\"OMP_NUM_THREADS\": \"1\", \"FLASH_ATTEN\": \"0\"}}";
    const char *overrides[] = {"distributed.threads_per_rank=2", "model.use_flash_attention=true",
        "training.gradient_accumulation_steps=3", "model.num_attention_heads=2"};
    assert_int_equal(CY_OK, read_into(&c, faults, sizeof(faults), file, overrides, 4));
    assert_int_equal(c.distributed.threads_per_rank, 2);
    assert_true(c.model.use_flash_attention);
    assert_int_equal(c.training.gradient_accumulation_steps, 3);
    assert_int_equal(c.training.global_batch_size, 0);
    assert_int_equal(c.shape.head_dim, c.shape.hidden / 2);

    // null says nothing: what the file has stays.
    const char *nothing[] = {"training.gradient_accumulation_steps=null",
        "distributed.threads_per_rank=null", "model.num_attention_heads=null"};
    assert_int_equal(CY_OK, read_into(&c, faults, sizeof(faults), file, nothing, 3));
    assert_int_equal(c.training.global_batch_size, 8);
    assert_int_equal(c.distributed.threads_per_rank, 1);
    assert_int_equal(c.shape.head_dim, 8);

    // Both on the command line contradict each other as in a file.
    const char *both[] = {"training.gradient_accumulation_steps=3", "training.global_batch_size=8"};
    assert_int_equal(CY_ERR_REQUEST, read_into(&c, faults, sizeof(faults), file, both, 2));
    assert_non_null(strstr(faults, "give one of the two"));
}

static void shapes(void **state)
{
    (void)state;
    cy_config c;
    // Other heads: head_dim is made anew; an explicit one stays.
    takes(&c, "{\"model\": {\"name\": \"smollm-135m\", \"num_attention_heads\": 12}}");
    assert_int_equal(c.shape.head_dim, 48);
    assert_int_equal(c.shape.kv_heads, 3);
    takes(&c,
        "{\"model\": {\"name\": \"smollm-135m\", \"num_attention_heads\": 12,"
        " \"head_dim\": 64}}");
    assert_int_equal(c.shape.head_dim, 64);
    // Keys alone.
    takes(&c,
        "{\"model\": {\"num_hidden_layers\": 2, \"hidden_size\": 8, \"intermediate_size\": 16,"
        " \"num_attention_heads\": 2, \"vocab_size\": 10, \"model_type\": \"qwen3\"},"
        " \"training\": {\"seq_length\": 77}}");
    assert_int_equal(c.shape.kv_heads, 2);
    assert_int_equal(c.shape.max_positions, 77);
    assert_true(c.shape.qk_norm && !c.shape.qkv_bias && !c.shape.tied);
    // An id on the hub whose shape is known.
    takes(&c, "{\"model\": {\"name\": \"HuggingFaceTB/SmolLM-360M-Instruct\"}}");
    assert_int_equal(c.shape.hidden, 960);
    refuses("{\"model\": {\"name\": \"gpt2/large\"}}", "huggingface-cli download gpt2/large");
    refuses("{\"model\": {\"name\": \"./no/such\"}}", "neither a folder with config.json");
    refuses("{}", "model: num_hidden_layers, hidden_size, intermediate_size, ");
    refuses("{\"model\": {\"name\": \"tiny\", \"num_attention_heads\": 3}}",
        "model.num_attention_heads = 3: does not divide model.hidden_size 64");
}

// Until experts are trained, and beside a dense model after that, their keys are errors.
static void keys_of_experts_need_experts(void **state)
{
    (void)state;
    refuses("{\"model\": {\"name\": \"tiny\", \"model_type\": \"mixtral\"}}",
        "model.model_type = \"mixtral\": the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n");
    refuses("{\"model\": {\"name\": \"tiny\", \"num_experts_per_tok\": 2,"
            " \"moe_intermediate_size\": 8, \"router_aux_loss_coef\": 0.1}}",
        "model.num_experts_per_tok = 2: the model has no experts\n"
        "model.moe_intermediate_size = 8: the model has no experts\n"
        "model.router_aux_loss_coef = 0.1: the model has no experts\n");
}

static void scalings_are_relative_to_the_positions(void **state)
{
    (void)state;
    cy_config c;
    static const char *const scalings[] = {"\"dynamic\", \"factor\": 4", "\"yarn\", \"factor\": 4",
        "\"llama3\", \"factor\": 4, \"low_freq_factor\": 1, \"high_freq_factor\": 4"};
    for (size_t i = 0; i < sizeof(scalings) / sizeof(scalings[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text),
            "{\"model\": {\"name\": \"tiny\", \"rope_scaling\": {\"rope_type\": %s}}}",
            scalings[i]);
        takes(&c, text);
        assert_int_equal(c.shape.rope.original_length, c.shape.max_positions);
    }
    refuses("{\"model\": {\"name\": \"tiny\", \"rope_scaling\": {\"rope_type\": \"dynamic\","
            " \"factor\": 2, \"original_max_position_embeddings\": 64}}}",
        "original_max_position_embeddings = 64: differs from max_position_embeddings 1024");
    refuses("{\"model\": {\"name\": \"tiny\", \"rope_scaling\": {\"rope_type\": \"llama3\","
            " \"factor\": 2, \"low_freq_factor\": 4, \"high_freq_factor\": 1}}}",
        "high_freq_factor = 1: must be above low_freq_factor 4");
}

static void folder_of_a_model(void **state)
{
    (void)state;
    char folder[256];
    char path[512];
    char text[1024];
    cy_test_folder(folder, sizeof(folder));
    const char *model = "{\"model_type\": \"qwen2\", \"architectures\": [\"Qwen2ForCausalLM\"],"
                        " \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 3,"
                        " \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
                        " \"vocab_size\": 300, \"max_position_embeddings\": 4096,"
                        " \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000.0,"
                        " \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}";
    snprintf(path, sizeof(path), "%s/config.json", folder);
    CY_CHECK_OK(cy_file_write(path, model, strlen(model)));
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    CY_CHECK_OK(cy_file_write(path, "{}", 2));
    cy_config c;
    snprintf(
        text, sizeof(text), "{\"model\": {\"name\": \"%s\", \"num_hidden_layers\": 2}}", folder);
    takes(&c, text);
    assert_int_equal(c.shape.layers, 2);
    assert_int_equal(c.shape.max_positions, 4096);
    assert_true(c.shape.qkv_bias && !c.shape.out_bias && c.shape.tied);
    assert_true(c.shape.rope.theta == 1e6);
    assert_string_equal(c.dataset.tokenizer, path);
}

static void accumulation(void **state)
{
    (void)state;
    cy_config c;
    takes(&c,
        "{\"model\": {\"name\": \"tiny\"}, \"distributed\": {\"dp_size\": 2},"
        " \"training\": {\"global_batch_size\": 24, \"micro_batch_size\": 3,"
        " \"seq_length\": 10, \"max_tokens\": 1000, \"total_train_steps\": 7}}");
    assert_int_equal(c.training.gradient_accumulation_steps, 4);
    assert_int_equal(cy_config_batch_samples(&c), 24);
    assert_int_equal(cy_config_batch_tokens(&c), 240);
    assert_int_equal(cy_config_last_step(&c), 5); // 4 steps are 960 tokens
    c.training.total_train_steps = 3;
    assert_int_equal(cy_config_last_step(&c), 3);
    refuses("{\"model\": {\"name\": \"tiny\"}, \"training\": {\"global_batch_size\": 10,"
            " \"micro_batch_size\": 4}}",
        "training.global_batch_size = 10: micro_batch_size 4 x dp_size 1 = 4 does not divide it\n"
        "  8 or 12 would do");
    refuses("{\"model\": {\"name\": \"tiny\"}, \"training\": {\"global_batch_size\": 8,"
            " \"gradient_accumulation_steps\": 4}}",
        "training.gradient_accumulation_steps = 4: global_batch_size 8 / "
        "(micro_batch_size 1 x dp_size 1) is 8");
    refuses("{\"model\": {\"name\": \"tiny\"}, \"training\": {\"micro_batch_size\": 65536,"
            " \"gradient_accumulation_steps\": 65536, \"seq_length\": 16777216}}",
        "more than can be counted");
}

static void round_trip_of(const char *text)
{
    cy_config first;
    cy_config second;
    cy_text json = {0};
    cy_text again = {0};
    takes(&first, text);
    CY_CHECK_OK(cy_config_to_json(&json, &first));
    takes(&second, json.bytes);
    CY_CHECK_OK(cy_config_to_json(&again, &second));
    assert_string_equal(json.bytes, again.bytes);
    assert_memory_equal(&first.training, &second.training, sizeof(first.training));
    assert_int_equal(first.shape.layers, second.shape.layers);
    assert_true(first.shape.rope.theta == second.shape.rope.theta);
    assert_int_equal(first.shape.rope.scaling, second.shape.rope.scaling);
    assert_int_equal(first.shape.qkv_bias, second.shape.qkv_bias);
    assert_int_equal(first.shape.qk_norm, second.shape.qk_norm);
    assert_null(strstr(json.bytes, "secret")); // tokens are never saved
    cy_text_free(&json);
    cy_text_free(&again);
}

static void round_trips(void **state)
{
    (void)state;
    char text[256];
    for (size_t i = 0; cy_preset_name(i) != NULL; i++) {
        snprintf(text, sizeof(text), "{\"model\": {\"name\": \"%s\"}}", cy_preset_name(i));
        round_trip_of(text);
    }
    round_trip_of("{\"model\": {\"name\": \"llama-3.2-1b\", \"rope_scaling\":"
                  " {\"rope_type\": \"yarn\", \"factor\": 4}}}");
    round_trip_of("{\"model\": {\"name\": \"llama-3.2-1b\", \"rope_scaling\":"
                  " {\"rope_type\": \"default\"}}}");
    round_trip_of("{\"model\": {\"name\": \"tiny\", \"model_type\": \"qwen2\"}}");
    round_trip_of("{\"model\": {\"name\": \"tiny\", \"attention_bias\": true}}");
    round_trip_of("{\"model\": {\"name\": \"tiny\"}, \"training\": {\"learning_rate\": -0e-30}}");
    round_trip_of("{\"model\": {\"name\": \"tiny\"}, \"environment\": {\"HF_TOKEN\": \"secret\"},"
                  " \"training\": {\"global_batch_size\": 24, \"micro_batch_size\": 3,"
                  "  \"learning_rate\": 0.1234567890123456789, \"adam_eps\": 1.5e-37},"
                  " \"dataset\": {\"name\": [{\"path\": \"a\\\"b\\\\c\\n\", \"weight\": 0.3}]},"
                  " \"distributed\": {\"pp_layers\": [1, 1], \"pp_size\": 2}}");
}

// What global_batch_size fixed must follow the mesh when a saved run goes on with another.
static void batch_follows_the_mesh(void **state)
{
    (void)state;
    cy_config c;
    cy_text json = {0};
    char faults[4096];
    const char *overrides[] = {"distributed.dp_size=2"};
    takes(&c, "{\"model\": {\"name\": \"tiny\"}, \"training\": {\"global_batch_size\": 24}}");
    assert_int_equal(c.training.gradient_accumulation_steps, 24);
    CY_CHECK_OK(cy_config_to_json(&json, &c));
    assert_int_equal(read_into(&c, faults, sizeof(faults), json.bytes, overrides, 1), CY_OK);
    assert_int_equal(c.training.gradient_accumulation_steps, 12);
    cy_text_free(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(table_is_whole),
        cmocka_unit_test(presets_are_named),
        cmocka_unit_test(every_kind_of_value),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(texts_that_are_not_json),
        cmocka_unit_test(all_faults_at_once),
        cmocka_unit_test(overrides_win),
        cmocka_unit_test(overrides_win_over_other_words),
        cmocka_unit_test(shapes),
        cmocka_unit_test(keys_of_experts_need_experts),
        cmocka_unit_test(scalings_are_relative_to_the_positions),
        cmocka_unit_test(folder_of_a_model),
        cmocka_unit_test(accumulation),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(batch_follows_the_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
