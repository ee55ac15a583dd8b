// tokenizer/unicode.h: UTF-8, classes of characters and canonical composition, by utf8proc.
//
// All functions are pure. A byte that is not part of valid UTF-8 counts as one character,
// CY_UNICODE_INVALID, which is in no class: it is neither letter nor number nor space.

#ifndef CY_TOKENIZER_UNICODE_H
#define CY_TOKENIZER_UNICODE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

// Classes of characters, as the `tokenizers` package tells them apart.
enum {
    CY_CHAR_LETTER = 1,     // \p{L}
    CY_CHAR_NUMBER = 2,     // \p{N}
    CY_CHAR_SPACE = 4,      // \s
    CY_CHAR_NUMERIC = 8,    // what the pre-tokenizer Digits isolates; almost equal to NUMBER
    CY_CHAR_WORD = 16,      // \w: keeps an added token with single_word from matching beside it
    CY_CHAR_STRIP = 32,     // removed beside an added token with lstrip or rstrip
    CY_CHAR_NFC_MAYBE = 64, // NFC may change it or join it to the character before it
};

#define CY_UNICODE_POINTS  0x110000
#define CY_UNICODE_INVALID CY_UNICODE_POINTS

// Fills classes [CY_UNICODE_POINTS + 1], which are zero before. Costs about a millisecond.
void cy_unicode_classify(uint8_t *classes);

// Decodes the character at s [left], left > 0; returns its length in bytes.
static inline size_t cy_utf8_decode(uint32_t *point, const unsigned char *s, size_t left)
{
    CY_DEBUG_ASSERT(left > 0);
    const uint32_t a = s[0];
    if (a < 0x80) {
        *point = a;
        return 1;
    }
    *point = CY_UNICODE_INVALID;
    if (a < 0xc2 || a > 0xf4 || left < 2 || (s[1] & 0xc0) != 0x80) return 1;
    const uint32_t b = s[1] & 0x3fu;
    if (a < 0xe0) {
        *point = (a & 0x1f) << 6 | b;
        return 2;
    }
    if (left < 3 || (s[2] & 0xc0) != 0x80) return 1;
    const uint32_t c = s[2] & 0x3fu;
    if (a < 0xf0) {
        const uint32_t found = (a & 0xf) << 12 | b << 6 | c;
        if (found < 0x800 || (found >= 0xd800 && found < 0xe000)) return 1;
        *point = found;
        return 3;
    }
    if (left < 4 || (s[3] & 0xc0) != 0x80) return 1;
    const uint32_t found = (a & 7) << 18 | b << 12 | c << 6 | (s[3] & 0x3fu);
    if (found < 0x10000 || found >= CY_UNICODE_POINTS) return 1;
    *point = found;
    return 4;
}

// Decodes the character that ends at s + end, end > 0; returns its length in bytes.
size_t cy_utf8_decode_before(uint32_t *point, const unsigned char *s, size_t end);

// Writes a character; returns its length, at most 4 bytes.
size_t cy_utf8_encode(unsigned char *s, uint32_t point);

// Byte-level tokens spell each byte as a printable character. Returns the byte of a character, -1
// where it spells none, and the character of a byte.
int cy_byte_of_char(uint32_t point);
uint32_t cy_char_of_byte(int byte);

// True when text [bytes] certainly is in NFC. False says nothing.
bool cy_unicode_is_composed(const uint8_t *classes, const unsigned char *text, size_t bytes);

// Appends the NFC of text [bytes] to *out, in time linear in bytes; invalid bytes stay as they are.
CY_MUST_CHECK cy_status cy_unicode_compose(
    cy_text *out, const uint8_t *classes, const unsigned char *text, size_t bytes);

#endif
