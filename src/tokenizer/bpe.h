// tokenizer/bpe.h: byte-pair encoding: a vocabulary, merges in order of rank, and words into ids.
//
// A cy_bpe does not change once it is filled and is shared between threads; a cy_bpe_scratch, with
// its cache of words, belongs to one thread.

#ifndef CY_TOKENIZER_BPE_H
#define CY_TOKENIZER_BPE_H

#include <cyclotron/tokenizer.h>

#include "base/status.h"

#include <stdbool.h>

// Ids above this are taken for damage: tables are as long as the highest id.
#define CY_BPE_ID_MAX (1 << 24)

typedef enum cy_bpe_kind {
    CY_BPE_NONE,  // no token has this id
    CY_BPE_BYTES, // of the model: part of words
    CY_BPE_TEXT,  // an added token, or one of the model that no bytes spell
} cy_bpe_kind;

typedef struct cy_bpe_token {
    size_t first; // of its bytes in the pool
    uint32_t bytes;
    cy_bpe_kind kind;
    bool special; // decoding may leave it out
} cy_bpe_token;

typedef struct cy_bpe_pair {
    uint64_t pair; // left << 32 | right; UINT64_MAX where the slot is free
    int32_t rank;
    int32_t id;
} cy_bpe_pair;

typedef struct cy_bpe {
    unsigned char *pool; // owned: the bytes of all tokens
    size_t pool_bytes;
    size_t pool_capacity;
    cy_bpe_token *tokens; // owned, [count]
    size_t tokens_capacity;
    int32_t count;         // highest id plus one
    int32_t byte_ids[256]; // -1 where a byte has no token
    int32_t unknown;       // id for such a byte, or -1: it is dropped
    bool fuse_unknown;     // one id for a run of them
    bool ignore_merges;    // a word that is a token needs no merges
    cy_bpe_pair *pairs;    // owned, [pairs_mask + 1], open addressing
    size_t pairs_mask;
    int32_t *words; // owned, [words_mask + 1]: ids of CY_BPE_BYTES tokens by their bytes, -1 free
    size_t words_mask;
} cy_bpe;

void cy_bpe_free(cy_bpe *bpe);

// Puts a token in place; an id that is taken is CY_ERR_CORRUPT.
CY_MUST_CHECK cy_status cy_bpe_put(
    cy_bpe *bpe, int32_t id, const void *bytes, size_t count, cy_bpe_kind kind);

// Makes room for merges, then takes them; the same pair again replaces its rank.
CY_MUST_CHECK cy_status cy_bpe_reserve_merges(cy_bpe *bpe, size_t count);
void cy_bpe_put_merge(cy_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id);

// Call once after the last token of the model: finds the tokens of single bytes and makes tokens
// findable by their bytes. Fails where two have the same.
CY_MUST_CHECK cy_status cy_bpe_index(cy_bpe *bpe);

// The token of the model with these bytes, or -1.
int32_t cy_bpe_find(const cy_bpe *bpe, const unsigned char *bytes, size_t count);

typedef struct cy_bpe_cached cy_bpe_cached;

typedef struct cy_bpe_scratch {
    cy_bpe_cached *slots; // owned, [slot_mask + 1]
    size_t slot_mask;
    size_t used;
    unsigned char *words; // owned: the bytes of cached words
    size_t words_length;
    size_t words_capacity;
    cy_tokens ids;   // of cached words
    void *long_word; // owned: room for a word too long for the stack
    size_t long_word_capacity;
} cy_bpe_scratch;

void cy_bpe_scratch_free(cy_bpe_scratch *scratch);

// Appends the ids of a word [count] to *out.
CY_MUST_CHECK cy_status cy_bpe_encode(const cy_bpe *bpe, cy_bpe_scratch *scratch, cy_tokens *out,
    const unsigned char *word, size_t count);

CY_MUST_CHECK cy_status cy_tokens_add(cy_tokens *tokens, const int32_t *ids, size_t count);

#endif
