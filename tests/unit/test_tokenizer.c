// Tokenizers: training, ids, round trips.

#include "support/support.h"

#include "base/random.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cy_tokenizer_style styles[] = {
    CY_TOKENIZER_GPT2, CY_TOKENIZER_LLAMA3, CY_TOKENIZER_QWEN2, CY_TOKENIZER_SMOLLM};

static cy_tokenizer *train(
    const char *text, size_t bytes, int32_t vocab_size, cy_tokenizer_style style, int threads)
{
    cy_tokenizer *tokenizer = NULL;
    const cy_tokenizer_text texts[1] = {{.text = text, .bytes = bytes}};
    const cy_tokenizer_train_options options = {
        .vocab_size = vocab_size, .style = style, .threads = threads};
    CY_CHECK_OK(cy_tokenizer_train(&tokenizer, texts, 1, &options));
    return tokenizer;
}

static cy_tokens encode(const cy_tokenizer *tokenizer, const char *text, size_t bytes)
{
    cy_tokens tokens = {0};
    CY_CHECK_OK(cy_tokenizer_encode(tokenizer, &tokens, text, bytes, CY_ENCODE_DEFAULT));
    return tokens;
}

static void check_round_trip(const cy_tokenizer *tokenizer, const char *text, size_t bytes)
{
    cy_tokens tokens = encode(tokenizer, text, bytes);
    char *back = NULL;
    size_t back_bytes = 0;
    CY_CHECK_OK(cy_tokenizer_decode(
        tokenizer, &back, &back_bytes, tokens.ids, tokens.count, CY_DECODE_DEFAULT));
    assert_int_equal(back_bytes, bytes);
    assert_memory_equal(back, text, bytes);
    cy_tokenizer_free_text(back);
    cy_tokens_free(&tokens);
}

static void check_token(const cy_tokenizer *tokenizer, int32_t id, const char *wanted)
{
    size_t bytes;
    const char *token = cy_tokenizer_token(tokenizer, id, &bytes);
    assert_int_equal(bytes, strlen(wanted));
    assert_memory_equal(token, wanted, bytes);
    assert_int_equal(cy_tokenizer_find(tokenizer, wanted, bytes), id);
}

// By hand: "ab" stands 5 times, then "abab" twice more often than anything else.
static void training_merges_the_most_frequent_pair(void **state)
{
    (void)state;
    cy_tokenizer *tokenizer = train("abab\nabab\nabc\n", 14, 259, CY_TOKENIZER_GPT2, 1);
    assert_int_equal(cy_tokenizer_vocab_size(tokenizer), 259);
    check_token(tokenizer, 257, "ab");
    check_token(tokenizer, 258, "abab");
    cy_tokens tokens = encode(tokenizer, "ababab<|endoftext|>", 19);
    const int32_t wanted[] = {258, 257, 0};
    assert_int_equal(tokens.count, 3);
    assert_memory_equal(tokens.ids, wanted, sizeof(wanted));
    assert_int_equal(cy_tokenizer_end_token(tokenizer), 0);
    cy_tokens_free(&tokens);
    cy_tokenizer_close(tokenizer);
}

static void training_stops_when_merges_run_out(void **state)
{
    (void)state;
    cy_tokenizer *tokenizer = train("abab", 4, 1000, CY_TOKENIZER_GPT2, 1);
    assert_int_equal(cy_tokenizer_vocab_size(tokenizer), 259);
    cy_tokenizer_close(tokenizer);
    tokenizer = train("", 0, 1000, CY_TOKENIZER_GPT2, 1);
    assert_int_equal(cy_tokenizer_vocab_size(tokenizer), 257);
    check_round_trip(tokenizer, "any text", 8);
    cy_tokenizer_close(tokenizer);
}

static void training_refuses_a_vocabulary_without_room(void **state)
{
    (void)state;
    cy_tokenizer *tokenizer = NULL;
    const cy_tokenizer_text text = {.text = "a", .bytes = 1};
    const cy_tokenizer_train_options options = {.vocab_size = 256};
    assert_int_equal(cy_tokenizer_train(&tokenizer, &text, 1, &options), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(),
        "vocabulary of 256: at least 257 (256 bytes and the end token), at most 16777216");
    const cy_tokenizer_train_options above = {.vocab_size = 16777217};
    CY_CHECK_FAILS(cy_tokenizer_train(&tokenizer, &text, 1, &above), CY_ERR_REQUEST,
        "vocabulary of 16777217: at least 257 ");
    const cy_tokenizer_train_options short_end = {.vocab_size = 300, .end_token = "e"};
    CY_CHECK_FAILS(cy_tokenizer_train(&tokenizer, &text, 1, &short_end), CY_ERR_REQUEST,
        "end token \"e\": at least 2 bytes");
}

// Words with repeats, spaces and lines, from a seed; about one in 40 is any byte.
static char *make_text(size_t bytes, uint64_t key)
{
    static const char *const words[] = {"the ", "and ", "don't", "12 345", "\n\n", "  x", "été ",
        "\t\t", "東京", "... ", "\r\n", "THE'LL", "\xf0\x9f\x98\x80", " of", "unto them"};
    char *text = malloc(bytes + 16);
    assert_non_null(text);
    size_t at = 0;
    for (uint64_t i = 0; at < bytes; i++) {
        const uint64_t bits = cy_random_bits(key, i);
        if (bits % 40 == 0) {
            text[at++] = (char)(bits >> 8);
            continue;
        }
        const char *word = words[(bits >> 8) % (sizeof(words) / sizeof(words[0]))];
        memcpy(text + at, word, strlen(word));
        at += strlen(word);
    }
    return text;
}

static void training_does_not_depend_on_threads(void **state)
{
    (void)state;
    const size_t bytes = 3 << 20;
    char *text = make_text(bytes, 7);
    cy_tokenizer *one = train(text, bytes, 400, CY_TOKENIZER_LLAMA3, 1);
    cy_tokenizer *three = train(text, bytes, 400, CY_TOKENIZER_LLAMA3, 3);
    assert_int_equal(cy_tokenizer_hash(one), cy_tokenizer_hash(three));
    assert_int_equal(cy_tokenizer_vocab_size(one), 400);
    cy_tokenizer_close(one);
    cy_tokenizer_close(three);
    free(text);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    char *text = make_text(1 << 14, 3);
    for (int s = 0; s < 4; s++) {
        cy_tokenizer *tokenizer = train(text, 1 << 14, 350, styles[s], 1);
        char noise[4096];
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (char)cy_random_bits(11, i);
        check_round_trip(tokenizer, noise, sizeof(noise));
        check_round_trip(tokenizer, text, 1 << 14);
        check_round_trip(tokenizer, "", 0);
        cy_tokenizer_close(tokenizer);
    }
    free(text);
}

static void check_scanners(const char *text, size_t bytes)
{
    for (int s = 0; s < 4; s++) {
        cy_tokenizer *fast = train(text, bytes, 600, styles[s], 1);
        cy_tokenizer *general = NULL;
        CY_CHECK_OK(cy_tokenizer_open_general(
            &general, fast->json.bytes, fast->json.length, "general", true));
        cy_tokens a = encode(fast, text, bytes);
        cy_tokens b = encode(general, text, bytes);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.ids, b.ids, a.count * sizeof(int32_t));
        cy_tokens_free(&a);
        cy_tokens_free(&b);
        cy_tokenizer_close(fast);
        cy_tokenizer_close(general);
    }
}

// The scanners and PCRE2 must cut alike, on text and on any order of the bytes at which the
// patterns turn, broken characters included.
static void scanners_cut_as_their_patterns_do(void **state)
{
    (void)state;
    static const char turns[] = "  \n\r\t'sStTrReEvV'lLmMdD09.,!ab\xc5\xbf\xc2\xa0\xd9\xa3";
    const size_t bytes = 1 << 14;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        char *text = make_text(bytes, seed);
        if (seed > 3) {
            for (size_t i = 0; i < bytes; i++) {
                text[i] = turns[cy_random_bits(seed, i) % (sizeof(turns) - 1)];
            }
        }
        check_scanners(text, bytes);
        free(text);
    }
}

// Merges a word by the definition: again and again the pair of lowest rank, the leftmost of those.
static size_t merge_plainly(const cy_bpe *bpe, int32_t *ids, const char *word, size_t bytes)
{
    size_t count = bytes;
    for (size_t i = 0; i < bytes; i++)
        ids[i] = bpe->byte_ids[(unsigned char)word[i]];
    for (;;) {
        const cy_bpe_pair *best = NULL;
        size_t place = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            const uint64_t pair = (uint64_t)(uint32_t)ids[i] << 32 | (uint32_t)ids[i + 1];
            for (size_t k = 0; k <= bpe->pairs_mask; k++) {
                if (bpe->pairs[k].pair != pair) continue;
                if (best == NULL || bpe->pairs[k].rank < best->rank) {
                    best = &bpe->pairs[k];
                    place = i;
                }
            }
        }
        if (best == NULL) return count;
        ids[place] = best->id;
        count--;
        memmove(ids + place + 1, ids + place + 2, (count - place - 1) * sizeof(int32_t));
    }
}

// Words of up to 32 bytes take one way, longer ones another; both must keep to the definition.
static void words_merge_by_the_definition(void **state)
{
    (void)state;
    char text[2048];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "abcab"[cy_random_bits(5, i) % 5];
    cy_tokenizer *tokenizer = train(text, sizeof(text), 320, CY_TOKENIZER_GPT2, 1);
    const size_t sizes[] = {1, 2, 3, 31, 32, 33, 64, 65, 300};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        int32_t wanted[300];
        const size_t count = merge_plainly(&tokenizer->bpe, wanted, text + s, sizes[s]);
        cy_tokens tokens = encode(tokenizer, text + s, sizes[s]);
        assert_int_equal(tokens.count, count);
        assert_memory_equal(tokens.ids, wanted, count * sizeof(int32_t));
        cy_tokens_free(&tokens);
    }
    cy_tokenizer_close(tokenizer);
}

// Digits with a space in front of each number; "12" is one token.
static const char digits_json[] =
    "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": "
    "{\"type\": \"BPE\", \"vocab\": {\"0\": 0, \"1\": 1, \"2\": 2, \"3\": 3, \"4\": 4, \"5\": 5, "
    "\"6\": 6, \"7\": 7, \"8\": 8, \"9\": 9, \"\u0120\": 10, \"12\": 11}, \"merges\": [\"1 2\"]}}";

static void check_digits(const cy_tokenizer *tokenizer, const char *text, size_t bytes)
{
    cy_tokens tokens = encode(tokenizer, text, bytes);
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        int32_t wanted = text[i] == ' ' ? 10 : text[i] - '0';
        if (wanted == 1 && i + 1 < bytes && text[i + 1] == '2') {
            wanted = 11;
            i++;
        }
        assert_in_range(count, 0, tokens.count - 1);
        assert_int_equal(tokens.ids[count++], wanted);
    }
    assert_int_equal(count, tokens.count);
    cy_tokens_free(&tokens);
}

// More words than the cache of words ever holds, and each of them again soon and late.
static void many_words_pass_through_the_cache(void **state)
{
    (void)state;
    enum { WORDS = 300000 };
    char *text = malloc((size_t)WORDS * 24);
    cy_tokenizer *tokenizer = NULL;
    assert_non_null(text);
    CY_CHECK_OK(
        cy_tokenizer_open_text(&tokenizer, digits_json, strlen(digits_json), "digits.json"));
    size_t bytes = 0;
    for (int i = 0; i < WORDS; i++)
        bytes += (size_t)sprintf(text + bytes, " %d %d", i, (i % 7) * (i / 2));
    for (int again = 0; again < 2; again++)
        check_digits(tokenizer, text, bytes);
    // Words of about the length up to which they are kept, twice each.
    for (size_t length = 30; length <= 67; length++) {
        char word[200];
        for (size_t i = 0; i < length; i++)
            word[i] = word[length + 1 + i] = (char)('0' + (i * 7 + length) % 3);
        word[length] = ' ';
        check_digits(tokenizer, word, 2 * length + 1);
        word[length + 1] = '9'; // another of the same length
        check_digits(tokenizer, word, 2 * length + 1);
    }
    cy_tokenizer_close(tokenizer);
    free(text);
}

// An id becomes a place in a table: what is no place is refused, in the vocabulary and among the
// added tokens.
static void ids_that_are_no_place_are_refused(void **state)
{
    (void)state;
    static const char *const ids[] = {"-1", "16777217", "4294967296", "1.5", "\"1\""};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        char json[300];
        cy_tokenizer *tokenizer = NULL;
        int bytes = snprintf(json, sizeof(json),
            "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": %s}, \"merges\": []}}", ids[i]);
        assert_int_equal(
            cy_tokenizer_open_text(&tokenizer, json, (size_t)bytes, "a.json"), CY_ERR_CORRUPT);
        assert_non_null(strstr(cy_error_text(), "token a"));
        bytes = snprintf(json, sizeof(json),
            "{\"added_tokens\": [{\"id\": %s, \"content\": \"b\"}], \"model\": {\"type\": \"BPE\", "
            "\"vocab\": {\"a\": 0}, \"merges\": []}}",
            ids[i]);
        assert_int_equal(
            cy_tokenizer_open_text(&tokenizer, json, (size_t)bytes, "b.json"), CY_ERR_CORRUPT);
        assert_null(tokenizer);
    }
}

static void tokenizers_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *members, *words;
    } cases[] = {
        {"\"added_tokens\": [{\"id\": 1, \"content\": \"b\", \"special\": 3}]",
            "special is neither true nor false"},
        {"\"added_tokens\": [{\"id\": 1, \"content\": \"\"}]", "added_tokens[0] has no content"},
        {"\"added_tokens\": [{\"id\": 1, \"content\": \"a\"}]",
            "added token a: id 1, in the vocabulary 0"},
        {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
         "{\"id\": \"b\"}}], \"special_tokens\": {}}",
            "post_processor.single[0] names no special token"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char json[400];
        cy_tokenizer *tokenizer = NULL;
        const int bytes = snprintf(json, sizeof(json),
            "{%s, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
            "\"vocab\": {\"a\": 0}, \"merges\": []}}",
            cases[i].members);
        const cy_status status = cy_tokenizer_open_text(&tokenizer, json, (size_t)bytes, "c.json");
        CY_CHECK_FAILS(status, CY_ERR_CORRUPT, cases[i].words);
        CY_CHECK_FAILS(status, CY_ERR_CORRUPT, "c.json");
        assert_null(tokenizer);
    }
}

// Ids of the tokenizers package 0.23.
static void a_token_that_is_a_word_by_itself_is_no_part_of_one(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"foo\", \"single_word\": true}], "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"f\": 1, \"o\": 2, \"-\": 3}, "
        "\"merges\": []}}";
    static const struct {
        const char *text;
        int32_t ids[12];
        size_t count;
    } cases[] = {
        {"foo", {4}, 1},
        {"afoo", {0, 1, 2, 2}, 4},
        {"fooa", {1, 2, 2, 0}, 4},
        {"-foo-", {3, 4, 3}, 3},
        {"a-foo", {0, 3, 4}, 3},
        {"foo-afoo-foo", {4, 3, 0, 1, 2, 2, 3, 4}, 8},
    };
    cy_tokenizer *tokenizer = NULL;
    CY_CHECK_OK(cy_tokenizer_open_text(&tokenizer, json, strlen(json), "words.json"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_tokens tokens = {0};
        CY_CHECK_OK(cy_tokenizer_encode(
            tokenizer, &tokens, cases[i].text, strlen(cases[i].text), CY_ENCODE_DEFAULT));
        assert_int_equal(tokens.count, cases[i].count);
        assert_memory_equal(tokens.ids, cases[i].ids, cases[i].count * sizeof(int32_t));
        cy_tokens_free(&tokens);
    }
    cy_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_merges_the_most_frequent_pair),
        cmocka_unit_test(training_stops_when_merges_run_out),
        cmocka_unit_test(training_refuses_a_vocabulary_without_room),
        cmocka_unit_test(training_does_not_depend_on_threads),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(scanners_cut_as_their_patterns_do),
        cmocka_unit_test(words_merge_by_the_definition),
        cmocka_unit_test(many_words_pass_through_the_cache),
        cmocka_unit_test(ids_that_are_no_place_are_refused),
        cmocka_unit_test(tokenizers_that_contradict_themselves_are_refused),
        cmocka_unit_test(a_token_that_is_a_word_by_itself_is_no_part_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
