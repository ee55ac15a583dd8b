// How a text is cut into words: what each kind of step makes of its matches, and patterns that are
// not one of the known families.

#include "support/support.h"

#include "tokenizer/pretokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cy_pretokenizer pretokenizer;

// Pieces, each with a | behind it.
static void add_piece(void *context, const unsigned char *piece, size_t bytes)
{
    CY_CHECK_OK(cy_text_add_bytes(context, piece, bytes));
    CY_CHECK_OK(cy_text_add_bytes(context, "|", 1));
}

static void check_pieces(const char *text, const char *wanted)
{
    cy_pretokenizer_scratch scratch = {0};
    cy_text out = {0};
    CY_CHECK_OK(cy_text_add_bytes(&out, "", 0));
    CY_CHECK_OK(cy_pretokenize(
        &pretokenizer, &scratch, (const unsigned char *)text, strlen(text), add_piece, &out));
    assert_string_equal(out.bytes, wanted);
    cy_text_free(&out);
    cy_pretokenizer_scratch_free(&scratch);
    cy_pretokenizer_close(&pretokenizer);
}

static void matches_become_what_the_step_says(void **state)
{
    (void)state;
    static const struct {
        cy_pretokenizer_behavior behavior;
        bool invert;
        const char *pattern, *pieces;
    } cases[] = {
        // The example of the tokenizers package.
        {CY_PRETOKENIZER_ISOLATED, false, "-", "the|-|final|-|-|countdown|"},
        {CY_PRETOKENIZER_REMOVED, false, "-", "the|final|countdown|"},
        {CY_PRETOKENIZER_MERGED_WITH_PREVIOUS, false, "-", "the-|final-|-|countdown|"},
        {CY_PRETOKENIZER_MERGED_WITH_NEXT, false, "-", "the|-final|-|-countdown|"},
        {CY_PRETOKENIZER_CONTIGUOUS, false, "-", "the|-|final|--|countdown|"},
        {CY_PRETOKENIZER_ISOLATED, true, "-", "the|-|final|-|-|countdown|"},
        {CY_PRETOKENIZER_REMOVED, true, "-", "-|-|-|"},
        {CY_PRETOKENIZER_MERGED_WITH_PREVIOUS, true, "-", "the|-final|-|-countdown|"},
        {CY_PRETOKENIZER_MERGED_WITH_NEXT, true, "-", "the-|final-|-|countdown|"},
        {CY_PRETOKENIZER_CONTIGUOUS, true, "-", "the|-|final|--|countdown|"},
        {CY_PRETOKENIZER_REMOVED, false, "the-final--countdown", ""},
        {CY_PRETOKENIZER_REMOVED, false, "the-final--countdown!", "the-final--countdown|"},
        {CY_PRETOKENIZER_ISOLATED, false, "countdown", "the-final--|countdown|"},
        {CY_PRETOKENIZER_ISOLATED, false, "the", "the|-final--countdown|"},
        {CY_PRETOKENIZER_ISOLATED, false, "", "the-final--countdown|"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int regex = 0; regex < 2; regex++) {
            CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
            CY_CHECK_OK(regex ? cy_pretokenizer_add_regex(&pretokenizer, cases[i].pattern,
                                    cases[i].behavior, cases[i].invert, false)
                              : cy_pretokenizer_add_literal(&pretokenizer, cases[i].pattern,
                                    cases[i].behavior, cases[i].invert));
            check_pieces("the-final--countdown", cases[i].pieces);
        }
    }
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    CY_CHECK_OK(cy_pretokenizer_add_literal(&pretokenizer, "aa", CY_PRETOKENIZER_ISOLATED, false));
    check_pieces("aaa.aa", "aa|a.|aa|");
}

static void scanners_keep_the_behaviour_too(void **state)
{
    (void)state;
    static const struct {
        cy_pretokenizer_kind kind;
        cy_pretokenizer_behavior behavior;
        bool invert;
        const char *pieces;
    } cases[] = {
        {CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_ISOLATED, false, "ab| 1234|,| it|'s|"},
        {CY_PRETOKENIZER_LLAMA3, CY_PRETOKENIZER_ISOLATED, false, "ab| |123|4|,| it|'s|"},
        {CY_PRETOKENIZER_QWEN2, CY_PRETOKENIZER_ISOLATED, false, "ab| |1|2|3|4|,| it|'s|"},
        {CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_REMOVED, false, ""},
        {CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_REMOVED, true, "ab| 1234|,| it|'s|"},
        {CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_MERGED_WITH_PREVIOUS, false, "ab| 1234|,| it|'s|"},
        {CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_CONTIGUOUS, false, "ab 1234, it's|"},
        {CY_PRETOKENIZER_DIGITS, CY_PRETOKENIZER_ISOLATED, false, "ab |1|2|3|4|, it's|"},
        {CY_PRETOKENIZER_DIGIT_RUNS, CY_PRETOKENIZER_ISOLATED, false, "ab |1234|, it's|"},
        {CY_PRETOKENIZER_ADD_PREFIX_SPACE, CY_PRETOKENIZER_ISOLATED, false, " ab 1234, it's|"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
        CY_CHECK_OK(
            cy_pretokenizer_add(&pretokenizer, cases[i].kind, cases[i].behavior, cases[i].invert));
        check_pieces("ab 1234, it's", cases[i].pieces);
    }
}

static void steps_cut_what_the_one_before_made(void **state)
{
    (void)state;
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    CY_CHECK_OK(cy_pretokenizer_add_literal(&pretokenizer, "-", CY_PRETOKENIZER_REMOVED, false));
    CY_CHECK_OK(cy_pretokenizer_add(
        &pretokenizer, CY_PRETOKENIZER_DIGIT_RUNS, CY_PRETOKENIZER_ISOLATED, false));
    CY_CHECK_OK(cy_pretokenizer_add(
        &pretokenizer, CY_PRETOKENIZER_ADD_PREFIX_SPACE, CY_PRETOKENIZER_ISOLATED, false));
    CY_CHECK_OK(
        cy_pretokenizer_add(&pretokenizer, CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_ISOLATED, false));
    check_pieces("ab12- cd-34 e", " ab| 12| cd| 34| e|");
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    check_pieces("all of it", "all of it|");
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    CY_CHECK_OK(cy_pretokenizer_add(
        &pretokenizer, CY_PRETOKENIZER_ADD_PREFIX_SPACE, CY_PRETOKENIZER_ISOLATED, false));
    check_pieces("", "");
}

static void eight_steps_are_the_most(void **state)
{
    (void)state;
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    for (int i = 0; i < 8; i++) {
        CY_CHECK_OK(cy_pretokenizer_add(
            &pretokenizer, CY_PRETOKENIZER_DIGITS, CY_PRETOKENIZER_ISOLATED, false));
    }
    const char *const words = "pre_tokenizer: more than 8 steps";
    assert_int_equal(
        cy_pretokenizer_add(&pretokenizer, CY_PRETOKENIZER_DIGITS, CY_PRETOKENIZER_ISOLATED, false),
        CY_ERR_UNSUPPORTED);
    assert_string_equal(cy_error_text(), words);
    CY_CHECK_FAILS(cy_pretokenizer_add_literal(&pretokenizer, "-", CY_PRETOKENIZER_REMOVED, false),
        CY_ERR_UNSUPPORTED, words);
    CY_CHECK_FAILS(
        cy_pretokenizer_add_regex(&pretokenizer, "-", CY_PRETOKENIZER_REMOVED, false, false),
        CY_ERR_UNSUPPORTED, words);
    assert_int_equal(pretokenizer.count, 8);
    check_pieces("a1", "a|1|");
}

// By Oniguruma with Ruby's syntax.
static void patterns_mean_what_they_mean_to_oniguruma(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *pieces;
    } cases[] = {
        {"\\h+", "xyzAF09gaf", "xyz|AF09|g|af|"},
        {"\\H+", "xyzAF09g", "xyz|AF09|g|"},
        {"[\\hx]+", "yxAF09g", "y|xAF09|g|"},
        {"\\s+", "a\u180e b\u00a0\u2000c", "a\u180e| |b|\u00a0\u2000|c|"},
        {"\\S+", " a\u180eb ", " |a\u180eb| |"},
        {"[\\S]+", " ab ", " |ab| |"},
        {"[^\\s]+", " a\u180eb ", " |a\u180eb| |"},
        {"[\\s-]+", "a -b", "a| -|b|"},
        {"\\w+", "a\u00b2\u00bd_1-\u00b4", "a\u00b2\u00bd_1|-\u00b4|"},
        {"\\W+", "a-\u00b4b", "a|-\u00b4|b|"},
        {"[\\w.]+", "-a.b-", "-|a.b|-|"},
        {"[[:alpha:]]+", "1ab2", "1|ab|2|"},
        {"[[:alpha:]2]+", "1ab2", "1|ab2|"},
        {"[]a]+", "x]a]", "x|]a]|"},
        {"[^]a]+", "xy]a]", "xy|]a]|"},
        {"[a]b]+", "ab]c", "ab]|c|"},
        {"[a&]+", "xa&b", "x|a&|b|"},
        {"[a:]+", "xa:b", "x|a:|b|"},
        {"a&&b", "xa&&b", "x|a&&b|"},
        {"(?:a)b", "abab", "ab|ab|"},
        {"[(?m]+", "a(?mb", "a|(?m|b|"},
        {"(?i)ab", "aBab", "aB|ab|"},
        {"^a", "a\naba", "a|\n|a|ba|"},
        {"a.", "ab\na\n", "ab|\na\n|"},
        {"\\[a\\]", "[a]a", "[a]|a|"},
        {"a*", "baab", "b|aa|b|"},
        {"\\p{N}{1,3}+", "2221", "2221|"},
        {"\\p{N}{1,3}+", "a12345678", "a|12345678|"},
        {"[ab]{2}+c", "ababac", "a|babac|"},
        {"(?:ab){1,2}+a", "abababa", "abababa|"},
        {"(a(b)){2}+", "ababababab", "abababab|ab|"},
        {"a{1,2}+ab", "aaab", "aaab|"},
        {"x{,2}y", "xxxyy", "x|xxy|y|"},
        {"a{2}?b", "aaabb", "a|aab|b|"},
        {"a{1,2}?b", "aaab", "a|aab|"},
        {"\\p{L}{2}+\\p{N}{1,2}+", "abcd1234a1", "abcd1234|a1|"},
        {"a{,3}+b", "aaaab", "aaaab|"},
        {"[{1}]+a{1}+", "x{1}a", "x|{1}a|"},
        {"a{x}b{,}", "a{x}b{,}", "a{x}b{,}|"},
        {"\u00e9{2}+a", "\u00e9\u00e9\u00e9a", "\u00e9|\u00e9\u00e9a|"},
        {"[^a]", "a\xff\xfe\xc3\xa9", "a|\xff|\xfe|\xc3\xa9|"},
        {"\u00e9", "\xff\u00e9x\xc3", "\xff|\u00e9|x\xc3|"},
        {"x", "\xe2\x82xx\xf0\x9f\x98", "\xe2\x82|x|x|\xf0\x9f\x98|"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
        CY_CHECK_OK(cy_pretokenizer_add_regex(
            &pretokenizer, cases[i].pattern, CY_PRETOKENIZER_ISOLATED, false, false));
        check_pieces(cases[i].text, cases[i].pieces);
    }
}

static void patterns_that_cannot_be_taken_over_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        cy_status status;
        const char *text;
    } cases[] = {
        {"a[b\\W]", CY_ERR_UNSUPPORTED,
            "pattern a[b\\W]: a negated class inside a class at byte 3"},
        {"[\\H]", CY_ERR_UNSUPPORTED, "pattern [\\H]: a negated class inside a class at byte 1"},
        {"ab[c[d]]", CY_ERR_UNSUPPORTED, "pattern ab[c[d]]: a class inside a class at byte 4"},
        {"[a[:alpha", CY_ERR_UNSUPPORTED, "pattern [a[:alpha: a class without an end at byte 2"},
        {"[a&&b]", CY_ERR_UNSUPPORTED, "pattern [a&&b]: an intersection of classes at byte 2"},
        {"[^]&&]", CY_ERR_UNSUPPORTED, "pattern [^]&&]: an intersection of classes at byte 3"},
        {"[]&&]", CY_ERR_UNSUPPORTED, "pattern []&&]: an intersection of classes at byte 2"},
        {"ab(?m:.)", CY_ERR_UNSUPPORTED, "pattern ab(?m:.): the option m at byte 2"},
        {"[a](?m)", CY_ERR_UNSUPPORTED, "pattern [a](?m): the option m at byte 3"},
        {"a\\Qb", CY_ERR_UNSUPPORTED, "pattern a\\Qb: a quote at byte 1"},
        {"[\\E]", CY_ERR_UNSUPPORTED, "pattern [\\E]: a quote at byte 1"},
        {"a\\b", CY_ERR_UNSUPPORTED, "pattern a\\b: a word boundary at byte 1"},
        {"\\Ba", CY_ERR_UNSUPPORTED, "pattern \\Ba: a word boundary at byte 0"},
        {"a[b[:punct:]]", CY_ERR_UNSUPPORTED, "pattern a[b[:punct:]]: the class punct at byte 3"},
        {"ab\\", CY_ERR_CORRUPT, "pattern ab\\: ends in a backslash"},
        {"(a", CY_ERR_CORRUPT, "pattern (a: missing closing parenthesis"},
    };
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(cy_pretokenizer_add_regex(&pretokenizer, cases[i].pattern,
                             CY_PRETOKENIZER_ISOLATED, false, false),
            cases[i].status);
        assert_string_equal(cy_error_text(), cases[i].text);
    }
    assert_int_equal(pretokenizer.count, 0);
    cy_pretokenizer_close(&pretokenizer);
}

static void count_piece(void *context, const unsigned char *piece, size_t bytes)
{
    size_t *counts = context;
    (void)piece;
    counts[0]++;
    counts[1] += bytes;
}

// Machine code has a small stack; where that is not enough, the slow way gives the match.
static void a_text_that_needs_much_stack_is_split(void **state)
{
    (void)state;
    const size_t bytes = 200001;
    unsigned char *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = i % 2 == 0 ? 'a' : 'b';
    cy_pretokenizer_scratch scratch = {0};
    size_t counts[2] = {0};
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    CY_CHECK_OK(cy_pretokenizer_add_regex(
        &pretokenizer, "(?:a|(b))+a", CY_PRETOKENIZER_ISOLATED, false, false));
    CY_CHECK_OK(cy_pretokenize(&pretokenizer, &scratch, text, bytes, count_piece, counts));
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], bytes);
    cy_pretokenizer_close(&pretokenizer);
    // One that would take for ever ends in an error.
    memset(text, 'a', 40);
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    CY_CHECK_OK(cy_pretokenizer_add_regex(
        &pretokenizer, "(a+)+[bc]", CY_PRETOKENIZER_ISOLATED, false, false));
    assert_int_equal(
        cy_pretokenize(&pretokenizer, &scratch, text, 40, count_piece, counts), CY_ERR_UNSUPPORTED);
    assert_string_equal(
        cy_error_text(), "a text of 40 bytes could not be split: match limit exceeded");
    cy_pretokenizer_scratch_free(&scratch);
    cy_pretokenizer_close(&pretokenizer);
    free(text);
}

static void lines_may_be_cut_where_all_steps_are_known(void **state)
{
    (void)state;
    static const struct {
        int kinds[2];
        cy_pretokenizer_behavior behavior;
        bool cuts;
    } cases[] = {
        {{CY_PRETOKENIZER_GPT2, -1}, CY_PRETOKENIZER_ISOLATED, true},
        {{CY_PRETOKENIZER_LLAMA3, -1}, CY_PRETOKENIZER_ISOLATED, true},
        {{CY_PRETOKENIZER_DIGITS, CY_PRETOKENIZER_GPT2}, CY_PRETOKENIZER_ISOLATED, true},
        {{CY_PRETOKENIZER_QWEN2, CY_PRETOKENIZER_DIGIT_RUNS}, CY_PRETOKENIZER_ISOLATED, true},
        {{CY_PRETOKENIZER_DIGITS, CY_PRETOKENIZER_DIGIT_RUNS}, CY_PRETOKENIZER_ISOLATED, false},
        {{CY_PRETOKENIZER_GPT2, -1}, CY_PRETOKENIZER_CONTIGUOUS, false},
        {{CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_ADD_PREFIX_SPACE}, CY_PRETOKENIZER_ISOLATED, false},
        {{-1, -1}, CY_PRETOKENIZER_ISOLATED, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
        for (int k = 0; k < 2; k++) {
            if (cases[i].kinds[k] < 0) continue;
            CY_CHECK_OK(cy_pretokenizer_add(
                &pretokenizer, (cy_pretokenizer_kind)cases[i].kinds[k], cases[i].behavior, false));
        }
        assert_int_equal(cy_pretokenizer_cuts_at_lines(&pretokenizer), cases[i].cuts);
        cy_pretokenizer_close(&pretokenizer);
    }
    CY_CHECK_OK(cy_pretokenizer_open(&pretokenizer));
    CY_CHECK_OK(
        cy_pretokenizer_add(&pretokenizer, CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_ISOLATED, false));
    CY_CHECK_OK(cy_pretokenizer_add_literal(&pretokenizer, "x", CY_PRETOKENIZER_ISOLATED, false));
    assert_false(cy_pretokenizer_cuts_at_lines(&pretokenizer));
    cy_pretokenizer_close(&pretokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_become_what_the_step_says),
        cmocka_unit_test(scanners_keep_the_behaviour_too),
        cmocka_unit_test(steps_cut_what_the_one_before_made),
        cmocka_unit_test(eight_steps_are_the_most),
        cmocka_unit_test(patterns_mean_what_they_mean_to_oniguruma),
        cmocka_unit_test(patterns_that_cannot_be_taken_over_are_refused),
        cmocka_unit_test(a_text_that_needs_much_stack_is_split),
        cmocka_unit_test(lines_may_be_cut_where_all_steps_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
