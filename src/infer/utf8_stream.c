#include "infer/utf8_stream.h"

#include <stdbool.h>

// The range that a byte may be in behind `lead` as its first follower: some leads would otherwise
// spell overlong forms, surrogates, or numbers beyond U+10FFFF.
static bool may_follow(unsigned char lead, int place, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xbf;
    if (place == 1) {
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    }
    return low <= byte && byte <= high;
}

// Bytes of the character that `lead` begins; 0 when it begins none.
static int length_of(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) return 3;
    return lead < 0xf5 ? 4 : 0;
}

cy_status cy_utf8_stream_finish(cy_utf8_stream *characters, cy_text *out)
{
    if (characters->held_count == 0) return CY_OK;
    characters->held_count = 0;
    return cy_text_add_bytes(out, "\xef\xbf\xbd", 3);
}

static cy_status add_byte(cy_utf8_stream *characters, cy_text *out, unsigned char byte)
{
    if (characters->held_count > 0 &&
        !may_follow(characters->held[0], characters->held_count, byte)) {
        CY_TRY(cy_utf8_stream_finish(characters, out)); // and `byte` begins something new
    }
    characters->held[characters->held_count++] = byte;
    const int length = length_of(characters->held[0]);
    if (length == 0) return cy_utf8_stream_finish(characters, out);
    if (characters->held_count < length) return CY_OK;
    characters->held_count = 0;
    return cy_text_add_bytes(out, characters->held, (size_t)length);
}

cy_status cy_utf8_stream_add(
    cy_utf8_stream *characters, cy_text *out, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    for (size_t i = 0; i < count; i++)
        CY_TRY(add_byte(characters, out, next[i]));
    return CY_OK;
}
