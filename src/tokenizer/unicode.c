#include "tokenizer/unicode.h"

#include <string.h>

void cy_unicode_expand(uint8_t *values, const uint32_t *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t first = ranges[i] >> 8;
        const uint32_t end = i + 1 < count ? ranges[i + 1] >> 8 : CY_UNICODE_POINTS;
        const int value = (int)(ranges[i] & 0xff);
        if (value != 0) memset(values + first, value, end - first);
    }
}

size_t cy_utf8_decode_before(uint32_t *point, const unsigned char *s, size_t end)
{
    for (size_t back = 1; back <= 4 && back <= end; back++) {
        if ((s[end - back] & 0xc0) == 0x80) continue;
        if (cy_utf8_decode(point, s + end - back, back) == back) return back;
        break;
    }
    *point = CY_UNICODE_INVALID;
    return 1;
}

size_t cy_utf8_encode(unsigned char *s, uint32_t point)
{
    if (point < 0x80) {
        s[0] = (unsigned char)point;
        return 1;
    }
    if (point < 0x800) {
        s[0] = (unsigned char)(0xc0 | point >> 6);
        s[1] = (unsigned char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        s[0] = (unsigned char)(0xe0 | point >> 12);
        s[1] = (unsigned char)(0x80 | (point >> 6 & 0x3f));
        s[2] = (unsigned char)(0x80 | (point & 0x3f));
        return 3;
    }
    s[0] = (unsigned char)(0xf0 | point >> 18);
    s[1] = (unsigned char)(0x80 | (point >> 12 & 0x3f));
    s[2] = (unsigned char)(0x80 | (point >> 6 & 0x3f));
    s[3] = (unsigned char)(0x80 | (point & 0x3f));
    return 4;
}

// Printable characters of Latin-1 stand for themselves, the 68 other bytes for U+0100 and on, in
// order. That is GPT-2's alphabet, which all byte-level tokenizers share.
static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
        (byte >= 0xae && byte <= 0xff);
}

uint32_t cy_char_of_byte(int byte)
{
    const uint32_t b = (uint32_t)byte;
    if (stands_for_itself(b)) return b;
    if (b <= 0x20) return 0x100 + b;
    if (b <= 0xa0) return 0x100 + 0x21 + (b - 0x7f);
    return 0x100 + 67; // 0xad, the soft hyphen
}

int cy_byte_of_char(uint32_t point)
{
    if (point < 0x100) return stands_for_itself(point) ? (int)point : -1;
    if (point <= 0x120) return (int)(point - 0x100);
    if (point <= 0x142) return (int)(point - 0x121 + 0x7f);
    return point == 0x143 ? 0xad : -1;
}
