// tokenizer/train_words.h: the words of the training texts, each once, with how often it stands
// there.

#ifndef CY_TOKENIZER_TRAIN_WORDS_H
#define CY_TOKENIZER_TRAIN_WORDS_H

#include <cyclotron/tokenizer.h>

#include "tokenizer/pretokenizer.h"

typedef struct cy_word {
    uint64_t hash;
    size_t first; // of its bytes in the pool
    uint32_t bytes;
    int64_t times;
} cy_word;

// Start from a zeroed struct. A table belongs to one thread.
typedef struct cy_word_table {
    cy_word *words; // owned, [count], in the order in which they were first met
    size_t count;
    size_t words_capacity;
    unsigned char *pool; // owned: the bytes of the words
    size_t pool_bytes;
    size_t pool_capacity;
    uint32_t *slots; // owned, [slot_mask + 1]: index in words plus one, 0 free
    size_t slot_mask;
    cy_status status; // the first failure of an add
} cy_word_table;

void cy_word_table_free(cy_word_table *table);

// Counts the words of all texts, each line on its own, on `threads` threads. Which words there are
// and how often does not depend on the threads; their order does.
CY_MUST_CHECK cy_status cy_words_count(cy_word_table *table, const cy_pretokenizer *pretokenizer,
    const cy_tokenizer_text *texts, size_t count, int threads);

#endif
