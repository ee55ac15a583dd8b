// tokenizer/tokenizer.h: the parts of a cy_tokenizer, for the files that make and use it.

#ifndef CY_TOKENIZER_TOKENIZER_H
#define CY_TOKENIZER_TOKENIZER_H

#include <cyclotron/tokenizer.h>

#include "base/output.h"
#include "base/text.h"
#include "tokenizer/added_vocabulary.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenizer.h"

#include <pthread.h>

// What one thread needs to encode; kept by the tokenizer between calls, with its cache of words.
typedef struct cy_encoder {
    struct cy_encoder *next;       // of those that are idle
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
    cy_added_vocabulary added;        // looked for in the text as it is
    cy_added_vocabulary added_normal; // looked for in the normalised text
    bool compose;                     // the normalizer is NFC
    cy_tokens before;                 // what the post_processor puts before a text
    cy_tokens after;
    int32_t end_token;
    cy_text json;         // the file, as it was read
    uint64_t hash;        // of the file's bytes
    uint64_t fingerprint; // of what decides ids
    pthread_mutex_t lock; // guards idle
    cy_encoder *idle;     // owned
};

// Fills the parts of an empty tokenizer from tokenizer->json. `general` takes PCRE2 for patterns
// that a scanner knows, for the tests.
CY_MUST_CHECK cy_status cy_tokenizer_parse(cy_tokenizer *tokenizer, bool general);

CY_MUST_CHECK cy_status cy_tokenizer_open_general(
    cy_tokenizer **tokenizer, const char *json, size_t bytes, const char *name, bool general);

// True where a text may be cut behind a newline that has no space on either side, and the parts be
// encoded apart.
bool cy_tokenizer_cuts_at_lines(const cy_tokenizer *tokenizer);

// What a training gives: the bytes of each token in order of ids, and merges in order of rank.
typedef struct cy_bpe_trained {
    cy_text bytes;
    size_t *ends; // owned, [count]: of each token in bytes
    size_t count;
    size_t ends_capacity;
    int32_t (*merges)[2]; // owned, [merge_count]
    size_t merge_count;
    size_t merges_capacity;
} cy_bpe_trained;

void cy_bpe_trained_free(cy_bpe_trained *trained);

CY_MUST_CHECK cy_status cy_bpe_train(cy_bpe_trained *trained, const cy_pretokenizer *pretokenizer,
    const cy_tokenizer_text *texts, size_t count, const cy_tokenizer_train_options *options);

// How a tokenizer.json that was trained here is recognised.
extern const cy_output_kind cy_tokenizer_kind;

// Writes a tokenizer.json; token 0 is the end token.
CY_MUST_CHECK cy_status cy_tokenizer_write(
    cy_text *json, const cy_bpe_trained *trained, cy_tokenizer_style style);

// The pretokenizer of a style.
CY_MUST_CHECK cy_status cy_pretokenizer_open_style(
    cy_pretokenizer *pretokenizer, cy_tokenizer_style style);

#endif
