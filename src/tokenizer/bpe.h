// tokenizer/bpe.h: byte-pair encoding: a vocabulary, merges in order of rank, words into ids, and
// training.
//
// A cy_bpe does not change once it is filled and is shared between threads; a cy_bpe_scratch, with
// its cache of words, belongs to one thread.

#ifndef CY_TOKENIZER_BPE_H
#define CY_TOKENIZER_BPE_H

#include <cyclotron/tokenizer.h>

#include "base/text.h"
#include "tokenizer/pretokenizer.h"

#include <stdbool.h>

// Files with higher ids are rejected as damaged: tables are as long as the highest id.
#define CY_BPE_ID_MAX (1 << 24)

typedef enum cy_bpe_kind {
    CY_BPE_NONE,  // no token has this id
    CY_BPE_BYTES, // a token of the model that spells bytes: words are made of these
    CY_BPE_TEXT,  // an added token, or one of the model that spells no bytes
} cy_bpe_kind;

typedef struct cy_bpe_token {
    size_t first; // byte of the token in the pool
    uint32_t bytes;
    cy_bpe_kind kind;
    bool special; // decoding can skip it
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
    int32_t unknown;       // id of a byte that has no token; -1: such bytes are dropped
    bool fuse_unknown;     // a run of such bytes gets one id
    bool ignore_merges;    // a word that is a token is not built by merges
    cy_bpe_pair *pairs;    // owned, [pairs_mask + 1], open addressing
    size_t pairs_mask;
    int32_t *words; // owned, [words_mask + 1]: ids of CY_BPE_BYTES tokens by their bytes, -1 free
    size_t words_mask;
} cy_bpe;

void cy_bpe_free(cy_bpe *bpe);

// Adds a token; an id that is taken is CY_ERR_CORRUPT.
CY_MUST_CHECK cy_status cy_bpe_put(
    cy_bpe *bpe, int32_t id, const void *bytes, size_t count, cy_bpe_kind kind);

// Reserves room for merges, then adds them; adding a pair again replaces its rank.
CY_MUST_CHECK cy_status cy_bpe_reserve_merges(cy_bpe *bpe, size_t count);
void cy_bpe_put_merge(cy_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id);

// Builds the index by bytes; call it once, after the last token of the model. CY_ERR_CORRUPT where
// two tokens have the same bytes.
CY_MUST_CHECK cy_status cy_bpe_index(cy_bpe *bpe);

// Finds the token of the model with these bytes; -1 where there is none.
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
    void *long_word; // owned: work space for words that are too long for the stack
    size_t long_word_capacity;
} cy_bpe_scratch;

void cy_bpe_scratch_free(cy_bpe_scratch *scratch);

// Appends the ids of a word [count] to *out.
CY_MUST_CHECK cy_status cy_bpe_encode(const cy_bpe *bpe, cy_bpe_scratch *scratch, cy_tokens *out,
    const unsigned char *word, size_t count);

CY_MUST_CHECK cy_status cy_tokens_add(cy_tokens *tokens, const int32_t *ids, size_t count);

// ---- training

// A trained vocabulary: the bytes of each token in order of ids, and merges in order of rank.
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

// Token 0 is the end token. Stops early when no pair is left to merge.
CY_MUST_CHECK cy_status cy_bpe_train(cy_bpe_trained *trained, const cy_pretokenizer *pretokenizer,
    const cy_tokenizer_text *texts, size_t count, const cy_tokenizer_train_options *options);

typedef struct cy_word {
    uint64_t hash;
    size_t first; // of its bytes in the pool
    uint32_t bytes;
    int64_t times;
} cy_word;

// The distinct words of texts. Start from a zeroed struct. A table belongs to one thread.
typedef struct cy_word_table {
    cy_word *words; // owned, [count], in the order in which they were first met
    size_t count;
    size_t words_capacity;
    unsigned char *pool; // owned: the bytes of the words
    size_t pool_bytes;
    size_t pool_capacity;
    uint32_t *slots; // owned, [slot_mask + 1]: index in words plus one, 0 free
    size_t slot_mask;
    cy_status status; // of the first word that could not be added
} cy_word_table;

void cy_word_table_free(cy_word_table *table);

// Counts the words of all texts, each line on its own, on `threads` threads. The words and their
// counts do not depend on the threads; their order does.
CY_MUST_CHECK cy_status cy_words_count(cy_word_table *table, const cy_pretokenizer *pretokenizer,
    const cy_tokenizer_text *texts, size_t count, int threads);

#endif
