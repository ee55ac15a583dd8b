// tokenizer/added_vocabulary.h: added tokens: texts that become one id wherever they stand.

#ifndef CY_TOKENIZER_ADDED_VOCABULARY_H
#define CY_TOKENIZER_ADDED_VOCABULARY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cy_added_token {
    unsigned char *text; // owned, [bytes]
    size_t bytes;
    int32_t id;
    bool single_word; // only where no word character stands beside it
    bool lstrip;      // swallows the spaces before it
    bool rstrip;      // and those after it
} cy_added_token;

// Start from a zeroed struct.
typedef struct cy_added_vocabulary {
    cy_added_token *tokens; // owned, [count], in order of their bytes once sorted
    size_t count;
    size_t capacity;
    bool first[256]; // bytes that begin a token
} cy_added_vocabulary;

void cy_added_free(cy_added_vocabulary *set);

// Takes over token->text on success only.
CY_MUST_CHECK cy_status cy_added_put(cy_added_vocabulary *set, const cy_added_token *token);

// Call once after the last one.
void cy_added_sort(cy_added_vocabulary *set);

// A token found in a text: its id and what it swallows.
typedef struct cy_added_match {
    int32_t id;
    size_t first;
    size_t end;
} cy_added_match;

// The next token of text [bytes]. *at is where to search; `taken` is the end of what earlier
// matches swallowed. Of tokens that begin at the same place the longest counts. False: no more.
bool cy_added_next(const cy_added_vocabulary *set, cy_added_match *match, size_t *at, size_t taken,
    const uint8_t *classes, const unsigned char *text, size_t bytes);

#endif
