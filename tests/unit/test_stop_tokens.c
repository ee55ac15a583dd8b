// The tokens that end a text: what the files of a folder say, and in which order they are asked.

#include "support/support.h"

#include "base/file.h"
#include "infer/generate.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];
static cy_tokenizer *tokenizer; // its end token is <|endoftext|>

static void put(const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
    if (text != NULL) CY_CHECK_OK(cy_file_write(path, text, strlen(text)));
}

static cy_status find(cy_stop_tokens *stops, bool is_hf)
{
    const cy_checkpoint checkpoint = {.path = folder, .is_hf = is_hf, .model = {.eos = 7}};
    return cy_stop_tokens_find(stops, &checkpoint, tokenizer);
}

static void the_generation_file_is_asked_first(void **state)
{
    (void)state;
    cy_stop_tokens stops;
    put("config.json", "{\"eos_token_id\": [7, 8]}");
    put("generation_config.json", "{\"eos_token_id\": [11, 12, 11]}");
    CY_CHECK_OK(find(&stops, true));
    assert_int_equal(stops.count, 2);
    assert_true(cy_stop_tokens_has(&stops, 11) && cy_stop_tokens_has(&stops, 12) &&
        !cy_stop_tokens_has(&stops, 7));
    put("generation_config.json", "{\"eos_token_id\": 13}");
    CY_CHECK_OK(find(&stops, false));
    assert_true(stops.count == 1 && stops.tokens[0] == 13);
}

static void then_the_model_and_the_tokenizer(void **state)
{
    (void)state;
    cy_stop_tokens stops;
    const int32_t end = cy_tokenizer_end_token(tokenizer);
    assert_true(end >= 0);
    static const char *const silent[] = {NULL, "{}", "{\"eos_token_id\": null}"};
    put("config.json", "{\"eos_token_id\": [7, 8]}");
    for (int i = 0; i < 3; i++) {
        put("generation_config.json", silent[i]);
        CY_CHECK_OK(find(&stops, true));
        assert_int_equal(stops.count, 3);
        assert_true(cy_stop_tokens_has(&stops, 8) && cy_stop_tokens_has(&stops, end));
        CY_CHECK_OK(find(&stops, false)); // a checkpoint of ours has no config.json
        assert_int_equal(stops.count, 2);
        assert_true(cy_stop_tokens_has(&stops, 7) && !cy_stop_tokens_has(&stops, 8));
    }
}

static void files_that_make_no_sense_are_named(void **state)
{
    (void)state;
    cy_stop_tokens stops;
    put("generation_config.json", "{\"eos_token_id\": ");
    CY_CHECK_FAILS(find(&stops, true), CY_ERR_CORRUPT, "generation_config.json: line 1");
    put("generation_config.json", "{\"eos_token_id\": [1, \"</s>\"]}");
    CY_CHECK_FAILS(find(&stops, true), CY_ERR_CORRUPT, "neither a token id nor a list");
    char many[600] = "{\"eos_token_id\": [-1";
    for (int i = 0; i <= CY_STOP_TOKENS_MAX; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), ", %d", i);
    snprintf(many + strlen(many), sizeof(many) - strlen(many), "]}");
    put("generation_config.json", many);
    CY_CHECK_FAILS(find(&stops, true), CY_ERR_UNSUPPORTED, "eos_token_id: more than 64 tokens");
}

// 64 tokens are kept, -1 and what no token can be are passed over.
static void as_many_as_there_is_room_for(void **state)
{
    (void)state;
    cy_stop_tokens stops;
    char many[600] = "{\"eos_token_id\": [-1, 2147483648, 2147483647";
    for (int i = 0; i < CY_STOP_TOKENS_MAX - 1; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), ", %d", i);
    snprintf(many + strlen(many), sizeof(many) - strlen(many), ", 0, -2]}");
    put("generation_config.json", many);
    CY_CHECK_OK(find(&stops, true));
    assert_int_equal(stops.count, 64);
    assert_int_equal(stops.tokens[0], INT32_MAX);
    assert_int_equal(stops.tokens[63], 62);
    assert_true(cy_stop_tokens_has(&stops, 62) && !cy_stop_tokens_has(&stops, 63));

    char wanted[400];
    snprintf(many + strlen(many) - 2, 8, ", 63]}");
    put("generation_config.json", many);
    assert_int_equal(find(&stops, true), CY_ERR_UNSUPPORTED);
    snprintf(wanted, sizeof(wanted), "%s/generation_config.json: eos_token_id: more than 64 tokens",
        folder);
    assert_string_equal(cy_error_text(), wanted);
    put("generation_config.json", "{\"eos_token_id\": 1.0}");
    assert_int_equal(find(&stops, true), CY_ERR_CORRUPT);
    snprintf(wanted, sizeof(wanted),
        "%s/generation_config.json: eos_token_id is neither a token id nor a list of them", folder);
    assert_string_equal(cy_error_text(), wanted);
    assert_int_equal(stops.count, 64); // as it was
}

int main(void)
{
    char path[512];
    const char *source = getenv("SOURCE");
    snprintf(
        path, sizeof(path), "%s/tests/golden/tokenizer/gpt2.json", source != NULL ? source : ".");
    CY_CHECK_OK(cy_tokenizer_open(&tokenizer, path));
    cy_test_folder(folder, sizeof(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generation_file_is_asked_first),
        cmocka_unit_test(then_the_model_and_the_tokenizer),
        cmocka_unit_test(files_that_make_no_sense_are_named),
        cmocka_unit_test(as_many_as_there_is_room_for),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cy_tokenizer_close(tokenizer);
    return failed;
}
