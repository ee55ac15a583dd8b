// Characters: UTF-8, the characters of byte-level tokens, classes, canonical composition.

#include "support/support.h"

#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static uint8_t *classes;

static void characters_are_found_from_both_sides(void **state)
{
    (void)state;
    static const uint32_t points[] = {
        0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0xfffff, 0x100000, 0x10ffff};
    static const size_t lengths[] = {1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        unsigned char s[6] = {0xc3};
        uint32_t point = 1;
        assert_int_equal(cy_utf8_encode(s + 1, points[i]), lengths[i]);
        assert_int_equal(cy_utf8_decode(&point, s + 1, lengths[i]), lengths[i]);
        assert_int_equal(point, points[i]);
        assert_int_equal(cy_utf8_decode_before(&point, s + 1, lengths[i]), lengths[i]);
        assert_int_equal(point, points[i]);
        // Behind the beginning of another character it is still itself.
        assert_int_equal(cy_utf8_decode_before(&point, s, lengths[i] + 1), lengths[i]);
        assert_int_equal(point, points[i]);
        if (lengths[i] == 1) continue;
        assert_int_equal(cy_utf8_decode(&point, s + 1, lengths[i] - 1), 1);
        assert_int_equal(point, CY_UNICODE_INVALID);
    }
    static const char *const bad[] = {"\x80", "\xc3", "\xff", "\xc3\xa9\x80", "\xc1\xbf",
        "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\x80\x80\x80\x80\x80", "\xf0\x9f\x98\x80\x80", "a\x80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint32_t point = 1;
        const unsigned char *s = (const unsigned char *)bad[i];
        assert_int_equal(cy_utf8_decode_before(&point, s, strlen(bad[i])), 1);
        assert_int_equal(point, CY_UNICODE_INVALID);
    }
}

static void characters_stand_for_bytes_one_to_one(void **state)
{
    (void)state;
    static const struct {
        uint32_t point;
        int byte;
    } cases[] = {{0x20, -1}, {0x21, 0x21}, {0x7e, 0x7e}, {0x7f, -1}, {0xa0, -1}, {0xa1, 0xa1},
        {0xac, 0xac}, {0xad, -1}, {0xae, 0xae}, {0xff, 0xff}, {0x100, 0}, {0x120, 0x20},
        {0x121, 0x7f}, {0x142, 0xa0}, {0x143, 0xad}, {0x144, -1}, {0x10ffff, -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(cy_byte_of_char(cases[i].point), cases[i].byte);
        if (cases[i].byte >= 0) {
            assert_int_equal(cy_char_of_byte(cases[i].byte), cases[i].point);
        }
    }
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(cy_byte_of_char(cy_char_of_byte(byte)), byte);
}

// The numbers of characters that the `tokenizers` package puts into each class. A utf8proc that
// knows a later version of Unicode than 15.0 may add to them.
static void classes_are_those_of_the_tokenizers_package(void **state)
{
    (void)state;
    static const struct {
        uint8_t class;
        size_t count;
    } cases[] = {{CY_CHAR_LETTER, 141028}, {CY_CHAR_NUMBER, 1911}, {CY_CHAR_SPACE, 25},
        {CY_CHAR_NUMERIC, 1924}, {CY_CHAR_WORD, 144667}, {CY_CHAR_STRIP, 25}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t count = 0;
        for (uint32_t point = 0; point <= CY_UNICODE_INVALID; point++)
            count += (classes[point] & cases[i].class) != 0;
        if (strcmp(utf8proc_unicode_version(), "15.0.0") == 0) {
            assert_int_equal(count, cases[i].count);
        } else {
            assert_in_range(count, cases[i].count, 2 * cases[i].count);
        }
    }
    assert_int_equal(classes[CY_UNICODE_INVALID], 0);
}

static void classes_of_single_characters(void **state)
{
    (void)state;
    enum {
        LETTER = CY_CHAR_LETTER | CY_CHAR_WORD,
        DIGIT = CY_CHAR_NUMBER | CY_CHAR_NUMERIC | CY_CHAR_WORD,
        SPACE = CY_CHAR_SPACE | CY_CHAR_STRIP,
    };
    static const struct {
        uint32_t point;
        int class;
    } cases[] = {
        {'a', LETTER},
        {'7', DIGIT},
        {'_', CY_CHAR_WORD},
        {'-', 0},
        {'\n', SPACE},
        {0x1c, 0},
        {0x85, SPACE},
        {0xa0, SPACE},
        {0x3000, SPACE},
        {0x200b, 0},
        {0x180e, 0},
        {0xfeff, 0},
        {0x200d, CY_CHAR_WORD},
        {0x24b6, CY_CHAR_WORD},
        {0x24ea, DIGIT & ~CY_CHAR_WORD},
        {0x2167, DIGIT},
        {0x301, CY_CHAR_WORD | CY_CHAR_NFC_MAYBE},
        {0xe9, LETTER},
        {0x212b, LETTER | CY_CHAR_NFC_MAYBE},
        {0x958, LETTER | CY_CHAR_NFC_MAYBE},
        {0xac00, LETTER},
        {0x1161, LETTER | CY_CHAR_NFC_MAYBE},
        {0x11c2, LETTER | CY_CHAR_NFC_MAYBE},
        {0x11c3, LETTER},
        {0x2ebf0, LETTER},
        {0x16d70, DIGIT},
        {0x11de0, CY_CHAR_NUMERIC},
        {0xe0100, CY_CHAR_WORD},
        {0xe000, 0},
        {0xffff, 0},
        {0x10ffff, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        // A later utf8proc may know what the `tokenizers` package knows only in part.
        const int found = classes[cases[i].point];
        if (cases[i].point != 0x11de0) assert_int_equal(found, cases[i].class);
        assert_int_equal(found & cases[i].class, cases[i].class);
    }
}

static void check_composed(const char *text, const char *wanted)
{
    cy_text out = {0};
    CY_CHECK_OK(cy_text_add_bytes(&out, "", 0));
    CY_CHECK_OK(cy_unicode_compose(&out, classes, (const unsigned char *)text, strlen(text)));
    assert_string_equal(out.bytes, wanted);
    cy_text_free(&out);
}

static void text_is_composed(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""}, {"plain, caf\u00e9", "plain, caf\u00e9"}, {"e\u0301", "\u00e9"},
        {"\u212b", "\u00c5"}, {"q\u0307\u0323", "q\u0323\u0307"}, {"o\u0302\u0301", "\u1ed1"},
        {"\u0915\u093c \u0958", "\u0915\u093c \u0915\u093c"}, // excluded from composition
        {"\u1112\u1161\u11ab", "\xed\x95\x9c"},
        {"\u1112\u1161\u11a7", "\xed\x95\x98\u11a7"}, // no final consonant
        {"\u0344", "\u0308\u0301"},
        {"\xc3"
         "\u0301",
            "\xc3"
            "\u0301"}, // nothing composes with an invalid byte
        {"\xff"
         "e\u0301\xff",
            "\xff"
            "\u00e9"
            "\xff"},
        {"\u0301a", "\u0301a"}, {"\ufb01 \u2460", "\ufb01 \u2460"}, // compatibility characters stay
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_composed(cases[i][0], cases[i][1]);
    assert_true(cy_unicode_is_composed(classes, (const unsigned char *)"caf\u00e9", 5));
    assert_false(cy_unicode_is_composed(classes, (const unsigned char *)"e\u0301", 3));
}

int main(void)
{
    classes = calloc(CY_UNICODE_POINTS + 1, 1);
    if (classes == NULL) return 1;
    cy_unicode_classify(classes);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_found_from_both_sides),
        cmocka_unit_test(characters_stand_for_bytes_one_to_one),
        cmocka_unit_test(classes_are_those_of_the_tokenizers_package),
        cmocka_unit_test(classes_of_single_characters),
        cmocka_unit_test(text_is_composed),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(classes);
    return failed;
}
