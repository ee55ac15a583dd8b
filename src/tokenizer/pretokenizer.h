// tokenizer/pretokenizer.h: how a tokenizer cuts text into words, its pre_tokenizer.
//
// A pretokenizer is a chain of steps; each cuts the pieces of the step before it. The patterns of
// the known families are scanned by hand-written code, all others by PCRE2; tests check that both
// give the same pieces. A pretokenizer does not change once it is built and is shared between
// threads; a cy_pretokenizer_scratch belongs to one thread.

#ifndef CY_TOKENIZER_PRETOKENIZER_H
#define CY_TOKENIZER_PRETOKENIZER_H

#include "base/text.h"
#include "tokenizer/unicode.h"

typedef enum cy_pretokenizer_kind {
    CY_PRETOKENIZER_GPT2,
    CY_PRETOKENIZER_LLAMA3,
    CY_PRETOKENIZER_QWEN2,
    CY_PRETOKENIZER_REGEX,
    CY_PRETOKENIZER_LITERAL,
    CY_PRETOKENIZER_DIGITS,     // each numeric character on its own
    CY_PRETOKENIZER_DIGIT_RUNS, // runs of them
    CY_PRETOKENIZER_ADD_PREFIX_SPACE,
} cy_pretokenizer_kind;

// What happens to the matches of a pattern.
typedef enum cy_pretokenizer_behavior {
    CY_PRETOKENIZER_ISOLATED,
    CY_PRETOKENIZER_REMOVED,
    CY_PRETOKENIZER_MERGED_WITH_PREVIOUS,
    CY_PRETOKENIZER_MERGED_WITH_NEXT,
    CY_PRETOKENIZER_CONTIGUOUS,
} cy_pretokenizer_behavior;

typedef struct cy_pretokenizer_step {
    cy_pretokenizer_kind kind;
    cy_pretokenizer_behavior behavior;
    bool invert;   // the text between matches counts as the match
    void *code;    // owned pcre2_code, of a CY_PRETOKENIZER_REGEX
    char *literal; // owned, of a CY_PRETOKENIZER_LITERAL
} cy_pretokenizer_step;

#define CY_PRETOKENIZER_STEPS_MAX 8

typedef struct cy_pretokenizer {
    cy_pretokenizer_step steps[CY_PRETOKENIZER_STEPS_MAX];
    int count;
    uint8_t *classes; // owned, [CY_UNICODE_POINTS + 1]
} cy_pretokenizer;

typedef struct cy_pretokenizer_scratch {
    void *match;      // owned pcre2_match_data
    cy_text prefixed; // a piece with a space before it
    cy_status status; // the first failure inside a split
} cy_pretokenizer_scratch;

CY_MUST_CHECK cy_status cy_pretokenizer_open(cy_pretokenizer *pretokenizer);
void cy_pretokenizer_close(cy_pretokenizer *pretokenizer);
void cy_pretokenizer_scratch_free(cy_pretokenizer_scratch *scratch);

// Add a step. The regular expression of a known family is scanned by its scanner, unless `general`.
CY_MUST_CHECK cy_status cy_pretokenizer_add(cy_pretokenizer *pretokenizer,
    cy_pretokenizer_kind kind, cy_pretokenizer_behavior behavior, bool invert);
CY_MUST_CHECK cy_status cy_pretokenizer_add_regex(cy_pretokenizer *pretokenizer,
    const char *pattern, cy_pretokenizer_behavior behavior, bool invert, bool general);
CY_MUST_CHECK cy_status cy_pretokenizer_add_literal(cy_pretokenizer *pretokenizer,
    const char *literal, cy_pretokenizer_behavior behavior, bool invert);

// The pattern of a scanner, as tokenizer.json spells it.
const char *cy_pretokenizer_pattern(cy_pretokenizer_kind kind);

// True where a newline that has no space on either side always ends a word: a text may be cut
// behind it and both parts give the words of the whole.
bool cy_pretokenizer_cuts_at_lines(const cy_pretokenizer *pretokenizer);

typedef void (*cy_pretokenizer_emit)(void *context, const unsigned char *piece, size_t bytes);

// Calls emit for each word of text [bytes], in order. No word is empty.
CY_MUST_CHECK cy_status cy_pretokenize(const cy_pretokenizer *pretokenizer,
    cy_pretokenizer_scratch *scratch, const unsigned char *text, size_t bytes,
    cy_pretokenizer_emit emit, void *context);

// ---- parts, for the files of the pretokenizer and the tests

// A scanner returns the length of the first word of text [bytes], bytes > 0.
typedef size_t (*cy_scan)(const uint8_t *classes, const unsigned char *text, size_t bytes);
cy_scan cy_pretokenizer_scanner(cy_pretokenizer_kind kind); // NULL where the kind has none

CY_MUST_CHECK cy_status cy_regex_compile(void **code, const char *pattern);
void cy_regex_free(void *code);

// Calls found(context, first, end) for each match in text [bytes], which need not be UTF-8.
typedef void (*cy_regex_found)(void *context, size_t first, size_t end);
CY_MUST_CHECK cy_status cy_regex_search(const void *code, cy_pretokenizer_scratch *scratch,
    const unsigned char *text, size_t bytes, cy_regex_found found, void *context);

#endif
