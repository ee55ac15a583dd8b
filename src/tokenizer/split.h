// tokenizer/split.h: how a tokenizer cuts text into words, its pre_tokenizer.
//
// A splitter is a chain of steps; each cuts the pieces that the one before it made. The patterns of
// the known families are scanned by hand-written code, all others by PCRE2; both give the same
// pieces, which the tests hold them to. A splitter does not change once it is built and is shared
// between threads; a cy_split_scratch belongs to one thread.

#ifndef CY_TOKENIZER_SPLIT_H
#define CY_TOKENIZER_SPLIT_H

#include "base/text.h"
#include "tokenizer/unicode.h"

typedef enum cy_split_kind {
    CY_SPLIT_GPT2,
    CY_SPLIT_LLAMA3,
    CY_SPLIT_QWEN2,
    CY_SPLIT_REGEX,
    CY_SPLIT_LITERAL,
    CY_SPLIT_DIGITS,     // each numeric character on its own
    CY_SPLIT_DIGIT_RUNS, // runs of them
    CY_SPLIT_SPACE_IN_FRONT,
} cy_split_kind;

// What becomes of the matches of a pattern.
typedef enum cy_split_behavior {
    CY_SPLIT_ISOLATED,
    CY_SPLIT_REMOVED,
    CY_SPLIT_MERGED_WITH_PREVIOUS,
    CY_SPLIT_MERGED_WITH_NEXT,
    CY_SPLIT_CONTIGUOUS,
} cy_split_behavior;

typedef struct cy_split_step {
    cy_split_kind kind;
    cy_split_behavior behavior;
    bool invert;   // the pattern is what stands between matches
    void *code;    // owned pcre2_code, of a CY_SPLIT_REGEX
    char *literal; // owned, of a CY_SPLIT_LITERAL
} cy_split_step;

#define CY_SPLIT_STEPS_MAX 8

typedef struct cy_splitter {
    cy_split_step steps[CY_SPLIT_STEPS_MAX];
    int count;
    uint8_t *classes; // owned, [CY_UNICODE_POINTS + 1]
} cy_splitter;

typedef struct cy_split_scratch {
    void *match;      // owned pcre2_match_data
    cy_text in_front; // a piece with a space before it
    cy_status status; // the first failure inside a split
} cy_split_scratch;

CY_MUST_CHECK cy_status cy_splitter_open(cy_splitter *splitter);
void cy_splitter_close(cy_splitter *splitter);
void cy_split_scratch_free(cy_split_scratch *scratch);

// Adds a step. A regular expression of a known family becomes its scanner unless `general`.
CY_MUST_CHECK cy_status cy_splitter_add(
    cy_splitter *splitter, cy_split_kind kind, cy_split_behavior behavior, bool invert);
CY_MUST_CHECK cy_status cy_splitter_add_regex(cy_splitter *splitter, const char *pattern,
    cy_split_behavior behavior, bool invert, bool general);
CY_MUST_CHECK cy_status cy_splitter_add_literal(
    cy_splitter *splitter, const char *literal, cy_split_behavior behavior, bool invert);

// The pattern of a scanner, as tokenizer.json spells it.
const char *cy_split_pattern(cy_split_kind kind);

// Cutting a text behind a newline that has no space on either side cuts between words, and leaves
// the words on both sides as they are, whatever comes.
bool cy_splitter_cuts_at_lines(const cy_splitter *splitter);

typedef void (*cy_split_emit)(void *context, const unsigned char *piece, size_t bytes);

// Calls emit for each word of text [bytes], in order. No word is empty.
CY_MUST_CHECK cy_status cy_split(const cy_splitter *splitter, cy_split_scratch *scratch,
    const unsigned char *text, size_t bytes, cy_split_emit emit, void *context);

// ---- parts, for split.c and the tests

// The length of the first word of text [bytes], bytes > 0, as a scanner cuts it.
typedef size_t (*cy_scan)(const uint8_t *classes, const unsigned char *text, size_t bytes);
cy_scan cy_split_scanner(cy_split_kind kind); // NULL where the kind has none

CY_MUST_CHECK cy_status cy_regex_compile(void **code, const char *pattern);
void cy_regex_free(void *code);

// Calls found(context, first, end) for each match in text [bytes], which need not be UTF-8.
typedef void (*cy_regex_found)(void *context, size_t first, size_t end);
CY_MUST_CHECK cy_status cy_regex_search(const void *code, cy_split_scratch *scratch,
    const unsigned char *text, size_t bytes, cy_regex_found found, void *context);

#endif
