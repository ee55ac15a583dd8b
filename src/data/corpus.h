// data/corpus.h: encodes files of text into one row of tokens, on several threads.
//
// The tokens do not depend on the number of threads. Each document ends with the end token.

#ifndef CY_DATA_CORPUS_H
#define CY_DATA_CORPUS_H

#include <cyclotron/tokenizer.h>

#include "base/status.h"

#include <stdbool.h>

// Receives the next tokens [count], which encode text_bytes of text and end so many documents.
typedef cy_status (*cy_corpus_emit)(
    void *context, const int32_t *tokens, size_t count, uint64_t text_bytes, uint64_t documents);

// Called from time to time with the bytes of all files that were read. Returning false stops with
// CY_ERR_STOPPED.
typedef bool (*cy_corpus_progress)(void *context, int64_t done_bytes, int64_t total_bytes);

typedef struct cy_corpus_options {
    const cy_tokenizer *tokenizer; // borrowed
    const char *const *paths;      // borrowed, [count]: see data/document.h
    int count;
    const char *field;           // of .jsonl; NULL is "text"
    int32_t end_token;           // -1: the tokenizer's, which must have one
    int threads;                 // 0 is 1
    cy_corpus_progress progress; // or NULL
    void *progress_context;      // borrowed
} cy_corpus_options;

CY_MUST_CHECK cy_status cy_corpus_encode(
    const cy_corpus_options *options, cy_corpus_emit emit, void *context);

#endif
