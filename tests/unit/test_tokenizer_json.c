// tokenizer.json, part by part: what each one does to the ids, and what is said where it cannot be
// honoured.

#include "support/support.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTE_LEVEL     "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define AFTER(type)    "\"post_processor\": {\"type\": \"" type "\""
#define ADDED(members) "\"added_tokens\": [{\"id\": 8, \"content\": \"foo\"" members "}]"

// 0 to 7 of the vocabulary; 9 is a word with a hole before it.
#define VOCABULARY                                                                                 \
    "\"vocab\": {\"a\": 0, \"b\": 1, \"\u0120\": 2, \"ab\": 3, \"?\": 4, \"1\": 5, "               \
    "\"\u010a\": 6, \"-\": 7, \"aab\": 9}"
#define MERGES "\"merges\": [\"a b\"]"
#define MODEL  "{" VOCABULARY ", " MERGES "}"

// NULL is a part that has nothing wrong.
typedef struct parts {
    const char *members, *pretokenizer, *model;
} parts;

static cy_status open_parts(cy_tokenizer **tokenizer, const parts *p)
{
    static char json[2000];
    const int bytes = snprintf(json, sizeof(json), "{%s%s\"pre_tokenizer\": %s, \"model\": %s}",
        p->members != NULL ? p->members : "", p->members != NULL ? ", " : "",
        p->pretokenizer != NULL ? p->pretokenizer : BYTE_LEVEL,
        p->model != NULL ? p->model : MODEL);
    assert_in_range(bytes, 1, sizeof(json) - 1);
    *tokenizer = NULL;
    return cy_tokenizer_open_text(tokenizer, json, (size_t)bytes, "t.json");
}

typedef struct fault {
    parts parts;
    const char *text; // behind "t.json: "
} fault;

static void check_faults(const fault *faults, size_t count, cy_status status)
{
    for (size_t i = 0; i < count; i++) {
        char wanted[300];
        cy_tokenizer *tokenizer;
        snprintf(wanted, sizeof(wanted), "t.json: %s", faults[i].text);
        if (open_parts(&tokenizer, &faults[i].parts) != status) fail_msg("%s", wanted);
        assert_string_equal(cy_error_text(), wanted);
        assert_null(tokenizer);
        if (status != CY_ERR_UNSUPPORTED) continue;
        const char *const hint = "only byte-level BPE tokenizers can be used";
        if (strstr(wanted, "more than") == NULL) assert_string_equal(cy_error_hint(), hint);
    }
}

#define FAULT(members, pretokenizer, model, text)                                                  \
    {                                                                                              \
        {members, pretokenizer, model}, text                                                       \
    }
#define SEQUENCE(key, parts) "{\"type\": \"Sequence\", \"" key "\": [" parts "]}"
#define SPLITTERS(parts)     SEQUENCE("pretokenizers", parts)
#define STEP                 "{\"type\": \"Digits\"}, "
#define SEVEN_STEPS          STEP STEP STEP STEP STEP STEP STEP

static void parts_that_cannot_be_honoured_are_named(void **state)
{
    (void)state;
    static const fault faults[] = {
        FAULT("\"truncation\": {}", NULL, NULL, "truncation is set: texts would lose their ends"),
        FAULT("\"normalizer\": {}", NULL, NULL, "normalizer is (no type)"),
        FAULT("\"normalizer\": {\"type\": \"NFD\"}", NULL, NULL, "normalizer is NFD"),
        FAULT("\"normalizer\": " SEQUENCE(
                  "normalizers", "{\"type\": \"NFC\"}, {\"type\": \"Lowercase\"}"),
            NULL, NULL, "normalizer is Lowercase"),
        FAULT("\"decoder\": {\"type\": \"WordPiece\"}", NULL, NULL, "decoder is WordPiece"),
        FAULT(
            "\"decoder\": " SEQUENCE("decoders", "{\"type\": \"ByteLevel\"}, {\"type\": \"Fuse\"}"),
            NULL, NULL, "decoder is Fuse"),
        FAULT(AFTER("Bert") "}", NULL, NULL, "post_processor is Bert"),
        FAULT("\"post_processor\": " SEQUENCE(
                  "processors", "{\"type\": \"ByteLevel\"}, {\"type\": \"Roberta\"}"),
            NULL, NULL, "post_processor is Roberta"),
        FAULT(NULL, "null", NULL, "pre_tokenizer is absent"),
        FAULT(NULL, "{\"type\": \"Whitespace\"}", NULL, "pre_tokenizer is Whitespace"),
        FAULT(NULL, SPLITTERS(""), NULL, "pre_tokenizer is without ByteLevel"),
        FAULT(NULL, SPLITTERS(BYTE_LEVEL ", {\"type\": \"Digits\"}"), NULL,
            "pre_tokenizer after ByteLevel is Digits"),
        FAULT(NULL, "{\"type\": \"Split\"}", NULL, "pre_tokenizer Split.behavior is absent"),
        FAULT(NULL, "{\"type\": \"Split\", \"behavior\": \"Apart\"}", NULL,
            "pre_tokenizer Split.behavior is Apart"),
        // Seven, a pattern and a space in front.
        FAULT(NULL, SPLITTERS(SEVEN_STEPS "{\"type\": \"ByteLevel\"}"), NULL,
            "pre_tokenizer: more than 8 steps"),
        FAULT(NULL, NULL, "{\"type\": \"Unigram\"}", "model.type is Unigram"),
        FAULT(NULL, NULL, "{\"byte_fallback\": true}",
            "model.byte_fallback is true: not byte-level BPE"),
        FAULT(NULL, NULL, "{\"dropout\": 0.1}", "model.dropout is not 0"),
        FAULT(NULL, NULL, "{\"dropout\": 1}", "model.dropout is not 0"),
        FAULT(NULL, NULL, "{\"continuing_subword_prefix\": \"##\"}",
            "continuing_subword_prefix is ##"),
        FAULT(NULL, NULL, "{\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"-\"}",
            "end_of_word_suffix is -"),
    };
    check_faults(faults, sizeof(faults) / sizeof(faults[0]), CY_ERR_UNSUPPORTED);
}

#define MERGE(merge) "{" VOCABULARY ", \"merges\": [\"a b\", " merge "]}"
#define NO_PAIR      "model.merges[1] is not two tokens"
#define TEMPLATE(single, specials)                                                                 \
    AFTER("TemplateProcessing") ", \"single\": [" single "], \"special_tokens\": {" specials "}}"

static void damage_is_named_with_its_place(void **state)
{
    (void)state;
    static const fault faults[] = {
        FAULT("\"added_tokens\": {}", NULL, NULL, "added_tokens is no list"),
        FAULT("\"added_tokens\": [{\"id\": 8, \"content\": \"foo\"}, {\"id\": 10, \"content\": 3}]",
            NULL, NULL, "added_tokens[1] has no content"),
        FAULT("\"added_tokens\": [{\"content\": \"foo\"}]", NULL, NULL, "token foo has no id"),
        FAULT("\"added_tokens\": [{\"id\": -1, \"content\": \"foo\"}]", NULL, NULL,
            "token foo: id -1 is not in 0..16777216"),
        FAULT("\"added_tokens\": [{\"id\": 16777217, \"content\": \"foo\"}]", NULL, NULL,
            "token foo: id 16777217 is not in 0..16777216"),
        FAULT("\"added_tokens\": [{\"id\": 5, \"content\": \"foo\"}]", NULL, NULL,
            "two tokens have the id 5"),
        FAULT("\"added_tokens\": [{\"id\": 8, \"content\": \"ab\"}]", NULL, NULL,
            "added token ab: id 8, in the vocabulary 3"),
        FAULT(ADDED(", \"normalized\": 1"), NULL, NULL, "normalized is neither true nor false"),
        FAULT(ADDED(", \"single_word\": 1"), NULL, NULL, "single_word is neither true nor false"),
        FAULT(ADDED(", \"lstrip\": \"no\""), NULL, NULL, "lstrip is neither true nor false"),
        FAULT(ADDED(", \"rstrip\": []"), NULL, NULL, "rstrip is neither true nor false"),
        FAULT(NULL, "{\"type\": \"ByteLevel\", \"add_prefix_space\": 0}", NULL,
            "add_prefix_space is neither true nor false"),
        FAULT(NULL, "{\"type\": \"ByteLevel\", \"use_regex\": 1}", NULL,
            "use_regex is neither true nor false"),
        FAULT(NULL, "{\"type\": \"Digits\", \"individual_digits\": 1}", NULL,
            "individual_digits is neither true nor false"),
        FAULT(NULL, "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": 1}", NULL,
            "invert is neither true nor false"),
        FAULT(NULL, "{\"type\": \"Split\", \"behavior\": \"Contiguous\", \"pattern\": \"a\"}", NULL,
            "pre_tokenizer Split has no pattern"),
        FAULT(NULL, NULL, "null", "no model"),
        FAULT(NULL, NULL, "{\"byte_fallback\": 0}", "byte_fallback is neither true nor false"),
        FAULT(NULL, NULL, "{\"ignore_merges\": 0}", "ignore_merges is neither true nor false"),
        FAULT(NULL, NULL, "{\"fuse_unk\": 0}", "fuse_unk is neither true nor false"),
        FAULT(NULL, NULL, "{\"vocab\": []}", "model.vocab is no object"),
        FAULT(NULL, NULL, "{\"vocab\": {\"a\": 0, \"b\": 0}}", "two tokens have the id 0"),
        FAULT(NULL, NULL, "{\"vocab\": {\"a\": 0.0}}", "token a has no id"),
        FAULT(NULL, NULL, "{" VOCABULARY "}", "model.merges is no list"),
        FAULT(NULL, NULL, MERGE("\"ab\""), NO_PAIR),
        FAULT(NULL, NULL, MERGE("\" b\""), NO_PAIR),
        FAULT(NULL, NULL, MERGE("\"a \""), NO_PAIR),
        FAULT(NULL, NULL, MERGE("\"a a b\""), NO_PAIR),
        FAULT(NULL, NULL, MERGE("[\"a\"]"), NO_PAIR),
        FAULT(NULL, NULL, MERGE("[\"a\", 1]"), NO_PAIR),
        FAULT(NULL, NULL, MERGE("[1, \"a\"]"), NO_PAIR),
        FAULT(NULL, NULL, MERGE("[\"a\", \"b\", \"a\"]"), NO_PAIR),
        FAULT(NULL, NULL, MERGE("3"), NO_PAIR),
        FAULT(NULL, NULL, MERGE("\"c b\""), "model.merges[1]: c is not in the vocabulary"),
        FAULT(NULL, NULL, MERGE("\"a c\""), "model.merges[1]: c is not in the vocabulary"),
        FAULT(NULL, NULL, MERGE("[\"b\", \"a\"]"), "model.merges[1]: ba is not in the vocabulary"),
        FAULT(TEMPLATE("{\"SpecialToken\": {\"id\": \"x\"}}", "\"x\": {\"ids\": []}"), NULL, NULL,
            "post_processor.single[0] names no special token"),
        FAULT(TEMPLATE("{\"Sequence\": {}}, {}", ""), NULL, NULL,
            "post_processor.single[1] names no special token"),
        FAULT(TEMPLATE("{\"SpecialToken\": {\"id\": \"x\"}}", "\"x\": {\"ids\": [1, \"2\"]}"), NULL,
            NULL, "token x has no id"),
    };
    check_faults(faults, sizeof(faults) / sizeof(faults[0]), CY_ERR_CORRUPT);
    cy_tokenizer *tokenizer = NULL;
    assert_int_equal(cy_tokenizer_open_text(&tokenizer, "{\n  ]", 5, "t.json"), CY_ERR_CORRUPT);
    assert_string_equal(
        cy_error_text(), "t.json: line 2, column 3: string or '}' expected near ']'");
    CY_CHECK_FAILS(cy_tokenizer_open_text(&tokenizer, "{\"model\": 1, \"model\": 2}", 24, "t.json"),
        CY_ERR_CORRUPT, "duplicate object key");
}

// Ids as text: "3 1 ".
static void check_ids(const parts *p, const char *text, cy_encode_flags flags, const char *wanted)
{
    cy_tokenizer *tokenizer;
    cy_tokens tokens = {0};
    cy_text ids = {0};
    CY_CHECK_OK(open_parts(&tokenizer, p));
    CY_CHECK_OK(cy_tokenizer_encode(tokenizer, &tokens, text, strlen(text), flags));
    CY_CHECK_OK(cy_text_add_bytes(&ids, "", 0));
    for (size_t i = 0; i < tokens.count; i++)
        CY_CHECK_OK(cy_text_add(&ids, "%d ", tokens.ids[i]));
    assert_string_equal(ids.bytes, wanted);
    cy_text_free(&ids);
    cy_tokens_free(&tokens);
    cy_tokenizer_close(tokenizer);
}

#define NO_REGEX        "\"use_regex\": false}"
#define UNKNOWN(more)   "{" VOCABULARY ", " MERGES ", " more "}"
#define SPLIT(behavior) "{\"type\": \"Split\", \"behavior\": \"" behavior "\", \"pattern\": "
#define PLAIN_LEVEL     "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, " NO_REGEX
#define PIECES(step)    SPLITTERS(step ", " PLAIN_LEVEL)
#define BEFORE_AND_AFTER                                                                           \
    TEMPLATE(                                                                                      \
        "{\"SpecialToken\": {\"id\": \"x\"}}, {\"Sequence\": {}}, {\"SpecialToken\": {\"id\": "    \
        "\"y\"}}",                                                                                 \
        "\"x\": {\"ids\": [7, 5]}, \"y\": {\"ids\": [6]}")

static void each_part_does_its_share(void **state)
{
    (void)state;
    static const struct {
        parts parts;
        const char *text, *ids;
    } cases[] = {
        {{NULL, NULL, NULL}, "ab a1\n", "3 2 0 5 6 "},
        {{NULL, NULL, NULL}, "aab", "0 3 "},
        {{NULL, NULL, "{" VOCABULARY ", \"merges\": [[\"a\", \"b\"]]}"}, "aab", "0 3 "},
        {{NULL, NULL, "{" VOCABULARY ", \"merges\": [\"a b\", \"a ab\"]}"}, "aab", "9 "},
        {{NULL, NULL, UNKNOWN("\"ignore_merges\": true")}, "aab", "9 "},
        {{NULL, NULL, UNKNOWN("\"ignore_merges\": true")}, "aaab", "0 0 3 "},
        {{NULL, NULL, UNKNOWN("\"ignore_merges\": null, \"dropout\": 0, \"type\": \"BPE\"")}, "aab",
            "0 3 "},
        {{NULL, NULL, UNKNOWN("\"dropout\": 0.0")}, "ab", "3 "},
        // What has no token is dropped, one id each, or one id a run.
        {{NULL, NULL, NULL}, "axb", "3 "},
        {{NULL, NULL, UNKNOWN("\"unk_token\": \"none\"")}, "axxb", "3 "},
        {{NULL, NULL, UNKNOWN("\"unk_token\": \"?\"")}, "axxb", "0 4 4 1 "},
        {{NULL, NULL, UNKNOWN("\"unk_token\": \"?\", \"fuse_unk\": true")}, "xaxxbx", "4 0 4 1 4 "},
        {{NULL, NULL, UNKNOWN("\"unk_token\": \"a\", \"fuse_unk\": true")}, "xb", "3 "},
        {{NULL, "{\"type\": \"ByteLevel\"}", NULL}, "ab", "2 3 "},
        {{NULL, "{\"type\": \"ByteLevel\"}", NULL}, " ab", "2 3 "},
        {{NULL, SPLITTERS(SEVEN_STEPS BYTE_LEVEL), NULL}, "ab1", "3 5 "},
        // Between a and b only a cut of the text keeps them apart.
        {{NULL, PIECES(SPLIT("Removed") "{\"String\": \"-\"}}"), NULL}, "a-b-", "0 1 "},
        {{NULL, PIECES(SPLIT("Isolated") "{\"String\": \"a\"}}"), NULL}, "ab-", "0 1 7 "},
        {{NULL, PIECES(SPLIT("MergedWithNext") "{\"String\": \"a\"}}"), NULL}, "ab-", "3 7 "},
        {{NULL, PIECES(SPLIT("MergedWithPrevious") "{\"Regex\": \"[a]\"}}"), NULL}, "-ab",
            "7 0 1 "},
        {{NULL, PIECES(SPLIT("Contiguous") "{\"Regex\": \"[ab]\"}}"), NULL}, "ab-", "3 7 "},
        {{NULL, PIECES(SPLIT("Removed") "{\"Regex\": \"[ab]+\"}, \"invert\": true}"), NULL}, "-ab-",
            "3 "},
        {{"\"normalizer\": " SEQUENCE("normalizers",
              "{\"type\": \"NFC\"}") ", "
                                     "\"added_tokens\": [{\"id\": 8, \"content\": \"e\u0301\"}]",
             NULL, NULL},
            "a\u00e9", "0 8 "},
        {{"\"normalizer\": {\"type\": \"NFC\"}, \"added_tokens\": [{\"id\": 8, \"special\": true, "
          "\"content\": \"e\u0301\"}]",
             NULL, NULL},
            "ae\u0301", "0 8 "},
        {{"\"normalizer\": {\"type\": \"NFC\"}, \"added_tokens\": [{\"id\": 8, \"special\": true, "
          "\"content\": \"e\u0301\"}]",
             NULL, NULL},
            "a\u00e9", "0 "},
        {{ADDED(""), NULL, NULL}, "a foo b", "0 2 8 2 1 "},
        {{ADDED(", \"lstrip\": true"), NULL, NULL}, "a  foo b", "0 8 2 1 "},
        {{ADDED(", \"rstrip\": true"), NULL, NULL}, "a foo \nb", "0 2 8 1 "},
        {{ADDED(", \"rstrip\": true"), NULL, NULL}, "foo ", "8 "},
        {{ADDED(", \"lstrip\": true, \"rstrip\": true"), NULL, NULL}, " foo foo a", "8 8 0 "},
        {{"\"added_tokens\": [{\"id\": 8, \"content\": \"fo\"}, {\"id\": 10, \"content\": "
          "\"foo-\"}, {\"id\": 11, \"content\": \"foo\"}]",
             NULL, NULL},
            "foafoo-foo", "8 0 10 11 "},
        {{"\"added_tokens\": [{\"id\": 3, \"content\": \"ab\"}]", NULL, NULL}, "ab", "3 "},
        {{BEFORE_AND_AFTER, NULL, NULL}, "ab", "7 5 3 6 "},
        {{BEFORE_AND_AFTER, NULL, NULL}, "", "7 5 6 "},
        {{"\"post_processor\": " SEQUENCE("processors", "{\"type\": \"ByteLevel\"}"), NULL, NULL},
            "ab", "3 "},
        {{"\"decoder\": " SEQUENCE("decoders", "{\"type\": \"ByteLevel\"}"), NULL, NULL}, "ab",
            "3 "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_ids(&cases[i].parts, cases[i].text, CY_ENCODE_DEFAULT, cases[i].ids);
    const parts around = {.members = BEFORE_AND_AFTER};
    check_ids(&around, "ab", CY_ENCODE_NO_TEMPLATE, "3 ");
}

static void lines_may_be_cut_where_nothing_crosses_them(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        bool cuts;
    } cases[] = {
        {NULL, true},
        {ADDED(""), true},
        {ADDED(", \"special\": true"), true},
        {ADDED(", \"lstrip\": true"), false},
        {ADDED(", \"rstrip\": true"), false},
        {ADDED(", \"single_word\": true"), false},
        {ADDED(", \"special\": true, \"rstrip\": true"), false},
        {"\"added_tokens\": [{\"id\": 8, \"content\": \"a\\nb\"}]", false},
        {TEMPLATE("{\"SpecialToken\": {\"id\": \"x\"}}", "\"x\": {\"ids\": [7]}"), false},
        {TEMPLATE(
             "{\"Sequence\": {}}, {\"SpecialToken\": {\"id\": \"x\"}}", "\"x\": {\"ids\": [7]}"),
            false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_tokenizer *tokenizer;
        CY_CHECK_OK(open_parts(&tokenizer, &(parts){.members = cases[i].members}));
        assert_int_equal(cy_tokenizer_cuts_at_lines(tokenizer), cases[i].cuts);
        cy_tokenizer_close(tokenizer);
    }
}

static void tokens_are_found_by_id_and_by_text(void **state)
{
    (void)state;
    cy_tokenizer *tokenizer;
    CY_CHECK_OK(open_parts(&tokenizer,
        &(parts){.members = "\"added_tokens\": [{\"id\": 12, "
                            "\"content\": \"foo\", \"special\": "
                            "true}, {\"id\": 11, \"content\": "
                            "\"bar\"}]"}));
    assert_int_equal(cy_tokenizer_vocab_size(tokenizer), 13);
    assert_int_equal(cy_tokenizer_missing_bytes(tokenizer), 256 - 7);
    static const struct {
        int32_t id;
        const char *text; // NULL is none
    } cases[] = {{-1, NULL}, {0, "a"}, {2, " "}, {6, "\n"}, {8, NULL}, {9, "aab"}, {10, NULL},
        {11, "bar"}, {12, "foo"}, {13, NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t bytes = 99;
        const char *token = cy_tokenizer_token(tokenizer, cases[i].id, &bytes);
        const char *wanted = cases[i].text;
        assert_int_equal(token != NULL, wanted != NULL);
        assert_int_equal(bytes, wanted != NULL ? strlen(wanted) : 0);
        if (wanted == NULL) continue;
        assert_memory_equal(token, wanted, bytes);
        assert_int_equal(cy_tokenizer_find(tokenizer, wanted, bytes), cases[i].id);
    }
    static const char *const others[] = {"fo", "fooo", "fob", "barb", "", "aaab", "x"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_int_equal(cy_tokenizer_find(tokenizer, others[i], strlen(others[i])), -1);
    const int32_t ids[] = {12, 3, 11, 12};
    char *text = NULL;
    size_t bytes = 0;
    CY_CHECK_OK(cy_tokenizer_decode(tokenizer, &text, &bytes, ids, 4, CY_DECODE_DEFAULT));
    assert_string_equal(text, "fooabbarfoo");
    assert_int_equal(bytes, 11);
    cy_tokenizer_free_text(text);
    CY_CHECK_OK(cy_tokenizer_decode(tokenizer, &text, &bytes, ids, 4, CY_DECODE_SKIP_SPECIAL));
    assert_string_equal(text, "abbar");
    assert_int_equal(bytes, 5);
    cy_tokenizer_free_text(text);
    const int32_t bad[][2] = {{3, 13}, {3, -1}, {3, 8}};
    for (size_t i = 0; i < 3; i++) {
        char wanted[80];
        snprintf(wanted, sizeof(wanted), "token 1 is %d; the tokenizer has no such", bad[i][1]);
        assert_int_equal(
            cy_tokenizer_decode(tokenizer, &text, &bytes, bad[i], 2, CY_DECODE_DEFAULT),
            CY_ERR_REQUEST);
        assert_string_equal(cy_error_text(), wanted);
    }
    cy_tokenizer_close(tokenizer);
}

// Two tokens of one spelling cannot stand in a file; who fills a vocabulary by hand is told.
static void the_same_bytes_are_one_token(void **state)
{
    (void)state;
    cy_bpe bpe = {0};
    CY_CHECK_OK(cy_bpe_put(&bpe, 2, "ab", 2, CY_BPE_BYTES));
    CY_CHECK_OK(cy_bpe_put(&bpe, 0, "ac", 2, CY_BPE_BYTES));
    CY_CHECK_OK(cy_bpe_put(&bpe, 4, "ab", 2, CY_BPE_TEXT));
    CY_CHECK_OK(cy_bpe_put(&bpe, 5, "ab", 2, CY_BPE_BYTES));
    assert_int_equal(cy_bpe_index(&bpe), CY_ERR_CORRUPT);
    assert_string_equal(cy_error_text(), "the tokens 2 and 5 are the same");
    cy_bpe_free(&bpe);
}

// The last of two merges of one pair counts.
static void a_merge_again_replaces_its_rank(void **state)
{
    (void)state;
    cy_bpe bpe = {.unknown = -1};
    const char *const tokens[] = {"a", "b", "c", "ab", "bc"};
    for (int32_t id = 0; id < 5; id++)
        CY_CHECK_OK(cy_bpe_put(&bpe, id, tokens[id], strlen(tokens[id]), CY_BPE_BYTES));
    CY_CHECK_OK(cy_bpe_index(&bpe));
    CY_CHECK_OK(cy_bpe_reserve_merges(&bpe, 3));
    cy_bpe_put_merge(&bpe, 0, 1, 0, 3);
    cy_bpe_put_merge(&bpe, 1, 2, 1, 4);
    for (int again = 0; again < 2; again++) {
        cy_bpe_scratch scratch = {0};
        cy_tokens out = {0};
        CY_CHECK_OK(cy_bpe_encode(&bpe, &scratch, &out, (const unsigned char *)"abc", 3));
        assert_int_equal(out.count, 2);
        assert_int_equal(out.ids[0], again ? 0 : 3);
        assert_int_equal(out.ids[1], again ? 4 : 2);
        cy_tokens_free(&out);
        cy_bpe_scratch_free(&scratch);
        cy_bpe_put_merge(&bpe, 0, 1, 2, 3);
    }
    cy_bpe_free(&bpe);
}

// jansson's own printer goes on where it could not take the name of a field: a fingerprint made so
// would be that of another tokenizer.
static void a_fingerprint_is_right_or_memory_was_out(void **state)
{
    (void)state;
    const parts p = {.members = ADDED("")};
    cy_tokenizer *tokenizer;
    CY_CHECK_OK(open_parts(&tokenizer, &p));
    const uint64_t wanted = cy_tokenizer_fingerprint(tokenizer);
    size_t length = 0;
    const char *json = cy_tokenizer_json(tokenizer, &length);
    const int parsing = cy_test_json_allocations(json, length);
    cy_tokenizer_close(tokenizer);
    for (int at = parsing + 1;; at++) {
        cy_test_json_fails_at(at);
        const cy_status status = open_parts(&tokenizer, &p);
        const bool failed = cy_test_json_has_failed();
        cy_test_json_fails_at(0);
        if (status == CY_OK) {
            assert_true(cy_tokenizer_fingerprint(tokenizer) == wanted);
            cy_tokenizer_close(tokenizer);
        }
        if (!failed) {
            CY_CHECK_OK(status);
            return;
        }
    }
}

static void end_tokens_are_looked_for_in_an_order(void **state)
{
    (void)state;
    static const char *const names[] = {
        "<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>", "<|im_end|>"};
    // Without the first ones the next is taken; only special ones are.
    for (int first = 0; first <= 5; first++) {
        for (int special = 0; special < 2; special++) {
            char members[500];
            int at = snprintf(members, sizeof(members), "\"added_tokens\": [");
            for (int i = 4; i >= first; i--) {
                at += snprintf(members + at, sizeof(members) - (size_t)at,
                    "%s{\"id\": %d, \"content\": \"%s\", \"special\": %s}", i < 4 ? ", " : "",
                    10 + i, names[i], i == first && !special ? "false" : "true");
            }
            snprintf(members + at, sizeof(members) - (size_t)at, "]");
            cy_tokenizer *tokenizer;
            CY_CHECK_OK(open_parts(&tokenizer, &(parts){.members = members}));
            const int wanted = first + !special;
            assert_int_equal(cy_tokenizer_end_token(tokenizer), wanted < 5 ? 10 + wanted : -1);
            cy_tokenizer_close(tokenizer);
        }
    }
}

static void the_config_beside_it_names_the_end_token(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int32_t end;
    } cases[] = {
        {"{\"eos_token\": \"ab\"}", 3},
        {"{\"eos_token\": {\"content\": \"-\"}}", 7},
        {"{\"eos_token\": {\"content\": 1}}", 10},
        {"{\"eos_token\": null}", 10},
        {"{\"eos_token\": \"a\"}", 0},
        {"{\"eos_token\": \"abc\"}", 10},
        {"{}", 10},
    };
    char folder[200], file[300], config[300], wanted[400];
    cy_test_folder(folder, sizeof(folder));
    snprintf(file, sizeof(file), "%s/tokenizer.json", folder);
    snprintf(config, sizeof(config), "%s/tokenizer_config.json", folder);
    cy_tokenizer *tokenizer;
    CY_CHECK_OK(open_parts(&tokenizer,
        &(parts){.members = "\"added_tokens\": [{\"id\": 10, "
                            "\"content\": \"</s>\", \"special\": "
                            "true}]"}));
    CY_CHECK_OK(cy_tokenizer_save(tokenizer, file));
    cy_tokenizer_close(tokenizer);
    assert_int_equal(chdir(folder), 0);
    const char *const paths[] = {file, folder, "tokenizer.json", "."};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CY_CHECK_OK(cy_file_write(config, cases[i].config, strlen(cases[i].config)));
        for (int k = 0; k < 4; k++) {
            CY_CHECK_OK(cy_tokenizer_open(&tokenizer, paths[k]));
            assert_int_equal(cy_tokenizer_end_token(tokenizer), cases[i].end);
            cy_tokenizer_close(tokenizer);
        }
    }
    CY_CHECK_OK(cy_file_write(config, "{\n]", 3));
    assert_int_equal(cy_tokenizer_open(&tokenizer, file), CY_ERR_CORRUPT);
    snprintf(
        wanted, sizeof(wanted), "%s: line 2, column 1: string or '}' expected near ']'", config);
    assert_string_equal(cy_error_text(), wanted);
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_that_cannot_be_honoured_are_named),
        cmocka_unit_test(damage_is_named_with_its_place),
        cmocka_unit_test(each_part_does_its_share),
        cmocka_unit_test(lines_may_be_cut_where_nothing_crosses_them),
        cmocka_unit_test(tokens_are_found_by_id_and_by_text),
        cmocka_unit_test(the_same_bytes_are_one_token),
        cmocka_unit_test(a_merge_again_replaces_its_rank),
        cmocka_unit_test(a_fingerprint_is_right_or_memory_was_out),
        cmocka_unit_test(end_tokens_are_looked_for_in_an_order),
        cmocka_unit_test(the_config_beside_it_names_the_end_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
