// tokenizer/tokenizer.h: the inside of a cy_tokenizer: its parts, added tokens, reading and writing
// of tokenizer.json. The public face is cyclotron/tokenizer.h.

#ifndef CY_TOKENIZER_TOKENIZER_H
#define CY_TOKENIZER_TOKENIZER_H

#include <cyclotron/tokenizer.h>

#include "base/output.h"
#include "base/text.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenizer.h"

#include <pthread.h>

// ---- added tokens

// Added tokens are texts that become one id wherever they stand.
typedef struct cy_added_token {
    unsigned char *text; // owned, [bytes]
    size_t bytes;
    int32_t id;
    bool single_word; // matches only where no word character stands beside it
    bool lstrip;      // takes the spaces before it into the match
    bool rstrip;      // takes the spaces after it into the match
} cy_added_token;

// Start from a zeroed struct.
typedef struct cy_added_vocabulary {
    cy_added_token *tokens; // owned, [count], in the order of their bytes after cy_added_sort
    size_t count;
    size_t capacity;
    bool first[256]; // bytes that begin a token
} cy_added_vocabulary;

void cy_added_free(cy_added_vocabulary *set);

// Adds a token; takes over token->text on success only.
CY_MUST_CHECK cy_status cy_added_put(cy_added_vocabulary *set, const cy_added_token *token);

// Call it once, after the last token.
void cy_added_sort(cy_added_vocabulary *set);

// A token found in a text: its id, and the bytes [first, end) that it replaces.
typedef struct cy_added_match {
    int32_t id;
    size_t first;
    size_t end;
} cy_added_match;

// Finds the next token in text [bytes], from *at on, and moves *at behind it; `taken` is the end of
// the match before. Of tokens that begin at the same place the longest one matches. False: no more.
bool cy_added_next(const cy_added_vocabulary *set, cy_added_match *match, size_t *at, size_t taken,
    const uint8_t *classes, const unsigned char *text, size_t bytes);

// ---- the tokenizer

// The state that one thread needs to encode; kept by the tokenizer between calls, with its cache of
// words.
typedef struct cy_encoder {
    struct cy_encoder *next;       // in the list of idle encoders
    const cy_tokenizer *tokenizer; // borrowed
    cy_pretokenizer_scratch split;
    cy_bpe_scratch bpe;
    cy_text composed;
    cy_tokens *out; // borrowed, during a call
    cy_status status;
} cy_encoder;

struct cy_tokenizer {
    cy_bpe bpe;
    cy_pretokenizer pretokenizer;
    cy_added_vocabulary added;        // searched in the text as it is
    cy_added_vocabulary added_normal; // searched in the normalised text
    bool compose;                     // the normalizer is NFC
    cy_tokens before;                 // what the post_processor puts before a text
    cy_tokens after;
    int32_t end_token;
    cy_text json;         // the file, as it was read
    uint64_t hash;        // of the file's bytes
    uint64_t fingerprint; // of all parts of the file that decide ids
    pthread_mutex_t lock; // guards idle
    cy_encoder *idle;     // owned
};

// Fills an empty tokenizer from tokenizer->json. `general` uses PCRE2 even for patterns that have a
// scanner: the tests compare the two.
CY_MUST_CHECK cy_status cy_tokenizer_parse(cy_tokenizer *tokenizer, bool general);

CY_MUST_CHECK cy_status cy_tokenizer_open_general(
    cy_tokenizer **tokenizer, const char *json, size_t bytes, const char *name, bool general);

// True where a text may be cut behind a newline that has no space on either side and its parts may
// be encoded separately.
bool cy_tokenizer_cuts_at_lines(const cy_tokenizer *tokenizer);

// Recognises a tokenizer.json that this program trained.
extern const cy_output_kind cy_tokenizer_kind;

// Writes a tokenizer.json; token 0 is the end token.
CY_MUST_CHECK cy_status cy_tokenizer_write(
    cy_text *json, const cy_bpe_trained *trained, cy_tokenizer_style style);

// Opens the pretokenizer of a style.
CY_MUST_CHECK cy_status cy_pretokenizer_open_style(
    cy_pretokenizer *pretokenizer, cy_tokenizer_style style);

#endif
