// Token ids of each family of tokenizers are those that the `tokenizers` package gave: on texts in
// more than 20 scripts, code, emoji, control bytes, long runs of spaces and added tokens.
// scripts/golden_tokenizer.py made the files.

#include "support/support.h"

#include "base/file.h"
#include "data/document.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *golden(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    const char *source = getenv("SOURCE");
    snprintf(path[turn], sizeof(path[turn]), "%s/tests/golden/tokenizer/%s",
        source != NULL ? source : ".", name);
    return path[turn];
}

static void print_tokens(const char *what, const int32_t *ids, size_t count)
{
    print_error("  %s:", what);
    for (size_t i = 0; i < count && i < 40; i++)
        print_error(" %d", (int)ids[i]);
    print_error("\n");
}

// Compares the ids of one text with a line of numbers.
static bool check_text(const cy_tokenizer *tokenizer, const cy_text *text, const char *line)
{
    cy_tokens tokens = {0}, wanted = {0};
    CY_CHECK_OK(
        cy_tokenizer_encode(tokenizer, &tokens, text->bytes, text->length, CY_ENCODE_DEFAULT));
    for (char *end; *line != '\n'; line = end + (*end == ' ')) {
        const int32_t id = (int32_t)strtol(line, &end, 10);
        assert_true(end > line);
        CY_CHECK_OK(cy_tokens_add(&wanted, &id, 1));
    }
    const bool same = tokens.count == wanted.count &&
        (tokens.count == 0 || memcmp(tokens.ids, wanted.ids, tokens.count * sizeof(int32_t)) == 0);
    if (!same) {
        print_error("text: %s\n", text->bytes);
        print_tokens("found ", tokens.ids, tokens.count);
        print_tokens("wanted", wanted.ids, wanted.count);
    }
    cy_tokens_free(&tokens);
    cy_tokens_free(&wanted);
    return same;
}

static void check_family(const char *name, bool general)
{
    char file[64];
    cy_text json = {0}, ids = {0};
    cy_tokenizer *tokenizer = NULL;
    snprintf(file, sizeof(file), "%s.json", name);
    CY_CHECK_OK(cy_file_read(&json, golden(file), 1 << 20));
    CY_CHECK_OK(cy_tokenizer_open_general(&tokenizer, json.bytes, json.length, file, general));
    snprintf(file, sizeof(file), "%s.ids", name);
    CY_CHECK_OK(cy_file_read(&ids, golden(file), 1 << 20));
    cy_document_reader *reader = NULL;
    const cy_document_options options = {0};
    CY_CHECK_OK(cy_document_open(&reader, golden("texts.jsonl"), &options));
    int count = 0, failed = 0;
    const char *line = ids.bytes;
    for (;; count++) {
        cy_text text = {0};
        cy_document_state state;
        CY_CHECK_OK(cy_text_add_bytes(&text, "", 0));
        CY_CHECK_OK(cy_document_next(reader, &text, &state));
        if (state == CY_DOCUMENT_NONE) {
            cy_text_free(&text);
            break;
        }
        failed += !check_text(tokenizer, &text, line);
        line = strchr(line, '\n') + 1;
        cy_text_free(&text);
    }
    assert_int_equal(*line, '\0');
    assert_true(count > 100);
    if (failed > 0) fail_msg("%s: %d of %d texts differ", name, failed, count);
    cy_document_close(reader);
    cy_tokenizer_close(tokenizer);
    cy_text_free(&json);
    cy_text_free(&ids);
}

static void families_give_the_ids_of_the_package(void **state)
{
    (void)state;
    static const char *const names[] = {
        "gpt2", "smollm", "llama3", "qwen2", "added", "marks", "words"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_family(names[i], false);
}

// PCRE2 in place of the scanners.
static void patterns_in_general_give_them_too(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "smollm", "llama3", "qwen2"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_family(names[i], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_give_the_ids_of_the_package),
        cmocka_unit_test(patterns_in_general_give_them_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
