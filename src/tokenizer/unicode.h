// tokenizer/unicode.h: characters as the split patterns of tokenizers see them.
//
// Pure functions over constant tables. A byte that is not part of valid UTF-8 is a character of
// its own, CY_UNICODE_INVALID, which is in no class: neither letter nor number nor space.

#ifndef CY_TOKENIZER_UNICODE_H
#define CY_TOKENIZER_UNICODE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CY_CHAR_LETTER = 1,
    CY_CHAR_NUMBER = 2,
    CY_CHAR_SPACE = 4,
    CY_CHAR_NUMERIC = 8,    // what Digits() isolates; all but equal to NUMBER
    CY_CHAR_WORD = 16,      // \w beside an added token that must stand alone
    CY_CHAR_STRIP = 32,     // what an added token swallows beside it
    CY_CHAR_NFC_MAYBE = 64, // canonical composition may change it or join it to what is before it
};

#define CY_UNICODE_POINTS  0x110000
#define CY_UNICODE_INVALID CY_UNICODE_POINTS

// The tables, in files that scripts/unicode_tables.py makes. Classes and combining classes: code
// point << 8 | value, from there on. Pairs, what a character decomposes to: whole << 42 | first <<
// 21 | second, which may be 0. Composing, what two become: first << 42 | second << 21 | whole.
extern const uint32_t cy_unicode_classes[];
extern const size_t cy_unicode_classes_count;
extern const uint64_t cy_unicode_pairs[];
extern const size_t cy_unicode_pairs_count;
extern const uint64_t cy_unicode_composing[];
extern const size_t cy_unicode_composing_count;
extern const uint32_t cy_unicode_combining[];
extern const size_t cy_unicode_combining_count;

// Spreads a table of ranges over values [CY_UNICODE_POINTS + 1], which are zero before: the last
// one, for invalid bytes, stays so, and pages in which nothing else stands are not touched.
void cy_unicode_expand(uint8_t *values, const uint32_t *ranges, size_t count);

// The character at s [left], left > 0; returns its length in bytes.
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

// The character that ends at s + end, end > 0; returns its length in bytes.
size_t cy_utf8_decode_before(uint32_t *point, const unsigned char *s, size_t end);

// Writes a character, at most 4 bytes; returns how many.
size_t cy_utf8_encode(unsigned char *s, uint32_t point);

// The byte that a character of byte-level tokens stands for, or -1; and the way back.
int cy_byte_of_char(uint32_t point);
uint32_t cy_char_of_byte(int byte);

// True when text [bytes] is its own canonical composition (NFC) for sure; classes are expanded.
bool cy_unicode_is_composed(const uint8_t *classes, const unsigned char *text, size_t bytes);

// Appends the canonical composition of text [bytes] to *out; invalid bytes stay as they are.
CY_MUST_CHECK cy_status cy_unicode_compose(
    cy_text *out, const uint8_t *classes, const unsigned char *text, size_t bytes);

#endif
