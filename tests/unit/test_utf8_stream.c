// Whole characters out of bytes that come in any pieces.

#include "base/random.h"
#include "infer/generate.h"
#include "support/support.h"

#include <stdbool.h>
#include <string.h>

#define BAD "\xef\xbf\xbd"

// Feeds `in` in pieces of `piece` bytes and checks all that comes out.
static void gives(const char *in, size_t count, size_t piece, const char *wanted)
{
    cy_utf8_stream characters = {0};
    cy_text out = {0};
    for (size_t i = 0; i < count; i += piece) {
        const size_t size = count - i < piece ? count - i : piece;
        CY_CHECK_OK(cy_utf8_stream_add(&characters, &out, in + i, size));
    }
    CY_CHECK_OK(cy_utf8_stream_finish(&characters, &out));
    assert_string_equal(out.bytes, wanted);
    cy_text_free(&out);
}

static void whole_characters_pass(void **state)
{
    (void)state;
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xf4\x8f\xbf\xbf\xef\xbf\xbf";
    for (size_t piece = 1; piece < 12; piece++)
        gives(text, strlen(text), piece, text);
}

static void the_beginning_of_a_character_is_held(void **state)
{
    (void)state;
    cy_utf8_stream characters = {0};
    cy_text out = {0};
    CY_CHECK_OK(cy_utf8_stream_add(&characters, &out, "x\xf0\x9f\x98", 4));
    assert_string_equal(out.bytes, "x");
    CY_CHECK_OK(cy_utf8_stream_add(&characters, &out, "\x80", 1));
    assert_string_equal(out.bytes, "x\xf0\x9f\x98\x80");
    CY_CHECK_OK(cy_utf8_stream_add(&characters, &out, "\xe2\x82", 2));
    assert_string_equal(out.bytes, "x\xf0\x9f\x98\x80");
    CY_CHECK_OK(cy_utf8_stream_finish(&characters, &out));
    assert_string_equal(out.bytes, "x\xf0\x9f\x98\x80" BAD);
    cy_text_free(&out);
}

static void each_cut_off_beginning_becomes_one_mark(void **state)
{
    (void)state;
    const struct {
        const char *in, *wanted;
    } cases[] = {
        {"\x80", BAD},
        {"\xc0\xaf", BAD BAD},                 // overlong
        {"\xe0\x80\xaf", BAD BAD BAD},         // overlong: E0 must be followed by A0..BF
        {"\xed\xa0\x80", BAD BAD BAD},         // a surrogate
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, // beyond U+10FFFF
        {"\xf5\xff", BAD BAD},
        {"\xf5\x80\x80\x80", BAD BAD BAD BAD},
        {"\xe2\x82z", BAD "z"},
        {"\xe2\xc3\xa9", BAD "\xc3\xa9"},
        {"\xf0\x9f\x98\xf0\x9f\x98\x80", BAD "\xf0\x9f\x98\x80"},
        // Unicode's own example, table 3-8
        {"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64",
            "\x61" BAD BAD BAD "\x62" BAD "\x63" BAD BAD "\x64"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t piece = 1; piece < 6; piece++) {
            gives(cases[i].in, strlen(cases[i].in), piece, cases[i].wanted);
        }
    }
}

static void pieces_do_not_matter_on_random_bytes(void **state)
{
    (void)state;
    unsigned char bytes[512];
    for (uint64_t round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            const uint64_t bits = cy_random_bits(round, i);
            // Mostly leads and followers, so that long characters come up.
            bytes[i] =
                (unsigned char)(bits % 4 == 0 ? 1 + (bits >> 8) % 127 : 0x80 + (bits >> 8) % 128);
        }
        cy_utf8_stream characters = {0};
        cy_text whole = {0};
        CY_CHECK_OK(cy_utf8_stream_add(&characters, &whole, bytes, sizeof(bytes)));
        CY_CHECK_OK(cy_utf8_stream_finish(&characters, &whole));
        for (size_t piece = 1; piece < 8; piece++) {
            gives((const char *)bytes, sizeof(bytes), piece, whole.bytes);
        }
        cy_text_free(&whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_characters_pass),
        cmocka_unit_test(the_beginning_of_a_character_is_held),
        cmocka_unit_test(each_cut_off_beginning_becomes_one_mark),
        cmocka_unit_test(pieces_do_not_matter_on_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
