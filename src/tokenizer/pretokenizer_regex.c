// Matches split patterns with PCRE2. The patterns of tokenizer.json are written for Oniguruma with
// Ruby's syntax. Where PCRE2 means something else by the same text, the pattern is rewritten; where
// that is impossible, the pattern is rejected.

#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenizer.h"

#include "base/memory.h"

#include <pcre2.h>
#include <string.h>

// PCRE2 counts U+180E as a space; Unicode does not, since version 6.3.
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"                               \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
// The numbers besides digits that Oniguruma's \w has: superscripts and fractions of Latin-1. PCRE2
// knows the property Alphabetic from version 10.40 on; before, some enclosed letters are missing.
#define WORD_NUMBERS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" WORD_NUMBERS
#else
#define WORDS "\\p{L}\\p{M}\\p{Nd}\\p{Pc}" WORD_NUMBERS
#endif
#define DIGITS "0-9a-fA-F"

#define GROUPS_MAX 64 // nested

// The meaning of an escape to Oniguruma, as the inside of a class; NULL where PCRE2 agrees.
static const char *class_of(char escape)
{
    switch (escape) {
    case 's':
    case 'S':
        return SPACES;
    case 'w':
    case 'W':
        return WORDS;
    case 'h':
    case 'H':
        return DIGITS;
    default:
        return NULL;
    }
}

static cy_status refuse(const char *pattern, size_t at, const char *what)
{
    return CY_FAIL(CY_ERR_UNSUPPORTED, "pattern %s: %s at byte %zu", pattern, what, at);
}

static cy_status translate_escape(cy_text *out, const char *pattern, size_t at, bool in_class)
{
    const char escape = pattern[at + 1];
    if (escape == '\0') return CY_FAIL(CY_ERR_CORRUPT, "pattern %s: ends in a backslash", pattern);
    // Ruby has no quotes, and PCRE2 has other words at a boundary.
    if (strchr("QE", escape) != NULL) return refuse(pattern, at, "a quote");
    if (!in_class && strchr("bB", escape) != NULL) return refuse(pattern, at, "a word boundary");
    const char *class = class_of(escape);
    if (class == NULL) return cy_text_add(out, "\\%c", escape);
    const bool negated = escape < 'a';
    if (in_class && negated && escape != 'S') {
        return refuse(pattern, at, "a negated class inside a class");
    }
    if (in_class) return negated ? cy_text_add(out, "\\S") : cy_text_add(out, "%s", class);
    return cy_text_add(out, "[%s%s]", negated ? "^" : "", class);
}

// Where the last atom, which a quantifier repeats, begins in the translated pattern.
typedef struct atoms {
    size_t last;
    size_t opened[GROUPS_MAX]; // of groups that are not closed yet
    int depth;
} atoms;

// Bytes of an interval {n}, {n,}, {,m} or {n,m}; 0 where the brace stands for itself.
static size_t interval_bytes(const char *text)
{
    const size_t low = strspn(text + 1, "0123456789");
    const size_t comma = text[1 + low] == ',';
    const size_t high = comma ? strspn(text + 1 + low + comma, "0123456789") : 0;
    return text[1 + low + comma + high] == '}' && low + high > 0 ? low + comma + high + 2 : 0;
}

// To Ruby X{n,m}+ is (X{n,m})+ and X{n}? is (X{n})?; to PCRE2 both belong to the interval. Ruby's
// {,m} is {0,m}.
static cy_status add_interval(cy_text *out, const atoms *at, const char *text, size_t bytes)
{
    const char next = text[bytes];
    const bool exact = memchr(text, ',', bytes) == NULL;
    const bool grouped = next == '+' || (next == '?' && exact);
    if (grouped) {
        cy_text rest = {0};
        cy_status status = cy_text_add_bytes(&rest, out->bytes + at->last, out->length - at->last);
        out->length = at->last;
        if (status == CY_OK) status = cy_text_add(out, "(?:%s", rest.bytes);
        cy_text_free(&rest);
        CY_TRY(status);
    }
    CY_TRY(cy_text_add(out, text[1] == ',' ? "{0" : "{"));
    CY_TRY(cy_text_add_bytes(out, text + 1, bytes - 1));
    return grouped ? cy_text_add(out, ")") : CY_OK;
}

// Bytes of the braces behind the letter of \p{N}, \P{N} or \x{41}.
static size_t name_bytes(const char *letter)
{
    const char *end =
        strchr("pPx", *letter) != NULL && letter[1] == '{' ? strchr(letter, '}') : NULL;
    return end != NULL ? (size_t)(end - letter) : 0;
}

static cy_status note_atom(atoms *at, const cy_text *out, const char *pattern, size_t place, char c)
{
    if (c == '(') {
        if (at->depth == GROUPS_MAX) return refuse(pattern, place, "too many groups");
        at->opened[at->depth++] = out->length;
    } else if (c == ')') {
        at->last = at->depth > 0 ? at->opened[--at->depth] : out->length;
    } else if (strchr("*+?", c) == NULL && ((unsigned char)c & 0xc0) != 0x80) {
        at->last = out->length;
    }
    return CY_OK;
}

static cy_status translate(cy_text *out, const char *pattern)
{
    bool in_class = false;
    size_t class_start = 0;
    atoms found = {0};
    for (size_t at = 0; pattern[at] != '\0'; at++) {
        const char c = pattern[at];
        if (c == '\\') {
            if (!in_class) found.last = out->length;
            CY_TRY(translate_escape(out, pattern, at, in_class));
            at++;
            const size_t name = name_bytes(pattern + at);
            CY_TRY(cy_text_add_bytes(out, pattern + at + 1, name));
            at += name;
            continue;
        }
        if (in_class && c == '[' && pattern[at + 1] == ':') {
            const char *end = strstr(pattern + at, ":]");
            if (end == NULL) return refuse(pattern, at, "a class without an end");
            const size_t length = (size_t)(end - (pattern + at)) + 2;
            if (strncmp(pattern + at, "[:punct:]", 9) == 0 ||
                strncmp(pattern + at, "[:^punct:]", 10) == 0) {
                return refuse(pattern, at, "the class punct");
            }
            CY_TRY(cy_text_add_bytes(out, pattern + at, length));
            at += length - 1;
            continue;
        }
        if (in_class && c == '[') return refuse(pattern, at, "a class inside a class");
        if (in_class && c == '&' && pattern[at + 1] == '&') {
            return refuse(pattern, at, "an intersection of classes");
        }
        if (!in_class && c == '(' && strncmp(pattern + at, "(?m", 3) == 0) {
            return refuse(pattern, at, "the option m");
        }
        const size_t interval = !in_class && c == '{' ? interval_bytes(pattern + at) : 0;
        if (interval > 0) {
            CY_TRY(add_interval(out, &found, pattern + at, interval));
            at += interval - 1;
            continue;
        }
        if (!in_class) CY_TRY(note_atom(&found, out, pattern, at, c));
        if (!in_class && c == '[') {
            in_class = true;
            class_start = pattern[at + 1] == '^' ? at + 2 : at + 1;
        } else if (in_class && c == ']' && at > class_start) {
            in_class = false;
        }
        CY_TRY(cy_text_add_bytes(out, &c, 1));
    }
    return CY_OK;
}

cy_status cy_regex_compile(void **code, const char *pattern)
{
    cy_text text = {0};
    pcre2_compile_context *context = NULL;
    cy_status status = translate(&text, pattern);
    if (status != CY_OK) goto free_text;
    context = pcre2_compile_context_create(NULL);
    if (context == NULL) {
        status = CY_FAIL(CY_ERR_MEMORY, "no memory for the pattern %s", pattern);
        goto free_text;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE place = 0;
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)(text.bytes != NULL ? text.bytes : ""),
        text.length, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &place, context);
    if (made == NULL) {
        unsigned char words[128] = "";
        pcre2_get_error_message(error, words, sizeof(words));
        status = CY_FAIL(CY_ERR_CORRUPT, "pattern %s: %s", pattern, (const char *)words);
        goto free_text;
    }
    // Where PCRE2 cannot compile to machine code, matching is slower and gives the same.
    (void)pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
    *code = made;

free_text:
    pcre2_compile_context_free(context);
    cy_text_free(&text);
    return status;
}

void cy_regex_free(void *code)
{
    pcre2_code_free(code);
}

void cy_pretokenizer_scratch_free(cy_pretokenizer_scratch *scratch)
{
    pcre2_match_data_free(scratch->match);
    cy_text_free(&scratch->prefixed);
    *scratch = (cy_pretokenizer_scratch){0};
}

static bool is_valid(const unsigned char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t point;
        at += cy_utf8_decode(&point, text + at, bytes - at);
        if (point == CY_UNICODE_INVALID) return false;
    }
    return true;
}

// Copies a text with U+FFFD, which is no letter, number or space, in place of each invalid byte.
// places [length + 1] holds the place in the text that each byte of the copy came from.
static cy_status make_valid(
    cy_text *valid, size_t **places, const unsigned char *text, size_t bytes)
{
    CY_TRY(CY_ALLOC(places, bytes * 3 + 1));
    for (size_t at = 0; at < bytes;) {
        uint32_t point;
        const size_t length = cy_utf8_decode(&point, text + at, bytes - at);
        const bool bad = point == CY_UNICODE_INVALID;
        for (size_t i = 0; i < (bad ? 3 : length); i++)
            (*places)[valid->length + i] = at + i;
        CY_TRY(bad ? cy_text_add_bytes(valid, "\xef\xbf\xbd", 3)
                   : cy_text_add_bytes(valid, text + at, length));
        at += length;
    }
    (*places)[valid->length] = bytes;
    return CY_OK;
}

static cy_status search(const void *code, cy_pretokenizer_scratch *scratch,
    const unsigned char *text, size_t bytes, const size_t *places, cy_regex_found found,
    void *context)
{
    for (size_t at = 0; at < bytes;) {
        const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
        int count = pcre2_match(code, text, bytes, at, options, scratch->match, NULL);
        if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
            count =
                pcre2_match(code, text, bytes, at, options | PCRE2_NO_JIT, scratch->match, NULL);
        }
        if (count == PCRE2_ERROR_NOMATCH) return CY_OK;
        if (count < 0) {
            unsigned char words[128] = "";
            pcre2_get_error_message(count, words, sizeof(words));
            return CY_FAIL(CY_ERR_UNSUPPORTED, "a text of %zu bytes could not be split: %s", bytes,
                (const char *)words);
        }
        // Copied, because a later step may search with the same match data during the call.
        const size_t *vector = pcre2_get_ovector_pointer(scratch->match);
        const size_t first = vector[0], end = vector[1];
        if (places == NULL) {
            found(context, first, end);
        } else {
            found(context, places[first], places[end]);
        }
        at = end;
    }
    return CY_OK;
}

cy_status cy_regex_search(const void *code, cy_pretokenizer_scratch *scratch,
    const unsigned char *text, size_t bytes, cy_regex_found found, void *context)
{
    if (scratch->match == NULL) {
        scratch->match = pcre2_match_data_create(1, NULL);
        if (scratch->match == NULL) return CY_FAIL(CY_ERR_MEMORY, "no memory for a match");
    }
    if (is_valid(text, bytes)) {
        return search(code, scratch, text, bytes, NULL, found, context);
    }
    cy_text valid = {0};
    size_t *places = NULL;
    cy_status status = make_valid(&valid, &places, text, bytes);
    if (status == CY_OK) {
        status = search(code, scratch, (const unsigned char *)valid.bytes, valid.length, places,
            found, context);
    }
    cy_memory_free(places);
    cy_text_free(&valid);
    return status;
}
