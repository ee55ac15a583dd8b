// The split patterns of the known families, by hand. Each scanner returns the length of the match
// of its pattern at the start of a text; every character begins a match, so there are no gaps.

#include "tokenizer/pretokenizer.h"

#define KIND (CY_CHAR_LETTER | CY_CHAR_NUMBER | CY_CHAR_SPACE)

static inline int kind_at(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes, size_t *length)
{
    uint32_t point;
    *length = cy_utf8_decode(&point, text + at, bytes - at);
    return classes[point] & KIND;
}

// The end of the run of characters of one kind that goes on at `at`.
static inline size_t run_end(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes, int kind)
{
    while (at < bytes) {
        if (text[at] < 0x80) {
            if ((classes[text[at]] & KIND) != kind) return at;
            at++;
            continue;
        }
        size_t length;
        if (kind_at(classes, text, at, bytes, &length) != kind) return at;
        at += length;
    }
    return at;
}

// \s+(?!\S)|\s+ : all of a run of spaces at the end of the text, else all but its last character.
static size_t spaces(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    size_t at = 0, last = 0, length = 0;
    while (at < bytes && kind_at(classes, text, at, bytes, &length) == CY_CHAR_SPACE) {
        last = at;
        at += length;
    }
    return at == bytes || last == 0 ? at : last;
}

// 's|'t|'re|'ve|'m|'ll|'d : the length of a match, or 0.
static inline size_t contraction(const unsigned char *text, size_t bytes)
{
    if (bytes < 2) return 0;
    const unsigned char a = text[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (bytes < 3) return 0;
    const unsigned char b = text[2];
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// The same whatever the case; the long s is an s too.
static inline size_t contraction_any_case(const unsigned char *text, size_t bytes)
{
    if (bytes < 2) return 0;
    if (bytes >= 3 && text[1] == 0xc5 && text[2] == 0xbf) return 3;
    const unsigned char lower[3] = {
        text[0], (unsigned char)(text[1] | 0x20), (unsigned char)(bytes > 2 ? text[2] | 0x20 : 0)};
    return contraction(lower, bytes < 3 ? bytes : 3);
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
static size_t scan_gpt2(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    size_t length;
    if (text[0] == '\'') {
        const size_t found = contraction(text, bytes);
        if (found > 0) return found;
    }
    const size_t skip = text[0] == ' ' && bytes > 1 ? 1 : 0;
    const int kind = kind_at(classes, text, skip, bytes, &length);
    if (kind == CY_CHAR_SPACE) return spaces(classes, text, bytes);
    return run_end(classes, text, skip + length, bytes, kind);
}

static bool is_newline(unsigned char c)
{
    return c == '\r' || c == '\n';
}

// \s*[\r\n]+|\s+(?!\S)|\s+
static size_t spaces_with_lines(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    const size_t end = run_end(classes, text, 0, bytes, CY_CHAR_SPACE);
    for (size_t at = end; at > 0; at--) {
        if (is_newline(text[at - 1])) return at;
    }
    return spaces(classes, text, bytes);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
static inline size_t scan_lines(
    const uint8_t *classes, const unsigned char *text, size_t bytes, int digits)
{
    size_t length, next_length = 0;
    const int kind = kind_at(classes, text, 0, bytes, &length);
    if (kind == CY_CHAR_LETTER) return run_end(classes, text, length, bytes, CY_CHAR_LETTER);
    if (kind == CY_CHAR_NUMBER) {
        size_t at = length;
        for (int i = 1; i < digits && at < bytes; i++) {
            if (kind_at(classes, text, at, bytes, &next_length) != CY_CHAR_NUMBER) break;
            at += next_length;
        }
        return at;
    }
    if (text[0] == '\'') {
        const size_t found = contraction_any_case(text, bytes);
        if (found > 0) return found;
    }
    int next = -1;
    if (length < bytes) next = kind_at(classes, text, length, bytes, &next_length);
    if (next == CY_CHAR_LETTER && !is_newline(text[0])) {
        return run_end(classes, text, length + next_length, bytes, CY_CHAR_LETTER);
    }
    if (kind == CY_CHAR_SPACE && !(text[0] == ' ' && next == 0)) {
        return spaces_with_lines(classes, text, bytes);
    }
    size_t at = run_end(classes, text, length, bytes, 0);
    while (at < bytes && is_newline(text[at]))
        at++;
    return at;
}

static size_t scan_llama3(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    return scan_lines(classes, text, bytes, 3);
}

static size_t scan_qwen2(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    return scan_lines(classes, text, bytes, 1);
}

static size_t digits_end(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes, bool numeric)
{
    while (at < bytes) {
        uint32_t point;
        const size_t length = cy_utf8_decode(&point, text + at, bytes - at);
        if (((classes[point] & CY_CHAR_NUMERIC) != 0) != numeric) break;
        at += length;
    }
    return at;
}

static size_t scan_digit_runs(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    uint32_t point;
    const size_t length = cy_utf8_decode(&point, text, bytes);
    return digits_end(classes, text, length, bytes, (classes[point] & CY_CHAR_NUMERIC) != 0);
}

static size_t scan_digits(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    uint32_t point;
    const size_t length = cy_utf8_decode(&point, text, bytes);
    if (classes[point] & CY_CHAR_NUMERIC) return length;
    return digits_end(classes, text, length, bytes, false);
}

cy_scan cy_pretokenizer_scanner(cy_pretokenizer_kind kind)
{
    switch (kind) {
    case CY_PRETOKENIZER_GPT2:
        return scan_gpt2;
    case CY_PRETOKENIZER_LLAMA3:
        return scan_llama3;
    case CY_PRETOKENIZER_QWEN2:
        return scan_qwen2;
    case CY_PRETOKENIZER_DIGITS:
        return scan_digits;
    case CY_PRETOKENIZER_DIGIT_RUNS:
        return scan_digit_runs;
    case CY_PRETOKENIZER_REGEX:
    case CY_PRETOKENIZER_LITERAL:
    case CY_PRETOKENIZER_ADD_PREFIX_SPACE:
        return NULL;
    }
    return NULL;
}
