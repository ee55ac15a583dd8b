// data/prepare.h: makes a folder of token shards out of text files, and describes what is in one.

#ifndef CY_DATA_PREPARE_H
#define CY_DATA_PREPARE_H

#include "base/text.h"
#include "data/corpus.h"

typedef struct cy_prepare_options {
    cy_corpus_options corpus;
    const char *out;      // borrowed: the folder, which must not be there, or be empty
    int64_t shard_tokens; // a shard ends with the piece of text that fills so many; 0 is 2^28
} cy_prepare_options;

typedef struct cy_prepare_result {
    int64_t tokens;
    int64_t documents;
    int64_t text_bytes;
    int shards;
    int token_bytes;
} cy_prepare_result;

// Writes the shards and a copy of tokenizer.json beside the folder's place, under a name that
// starts with a dot, and renames it when it is whole. What a dead run left there is swept away.
CY_MUST_CHECK cy_status cy_data_prepare(
    cy_prepare_result *result, const cy_prepare_options *options);

// Opens what stands at a path, reads all of it, compares it with what its headers say, and appends
// a description for a person, or a JSON object.
CY_MUST_CHECK cy_status cy_data_inspect(cy_text *out, const char *path, int json);

#endif
