// data/prepare.h: makes a folder of token shards out of text files, and describes what is in one.

#ifndef CY_DATA_PREPARE_H
#define CY_DATA_PREPARE_H

#include "base/text.h"
#include "data/corpus.h"

typedef struct cy_prepare_options {
    cy_corpus_options corpus;
    const char *out;      // borrowed: the folder, which must not exist or must be empty
    int64_t shard_tokens; // a shard ends with the chunk of text that reaches this number; 0: 2^28
} cy_prepare_options;

typedef struct cy_prepare_result {
    int64_t tokens;
    int64_t documents;
    int64_t text_bytes;
    int shards;
    int token_bytes;
} cy_prepare_result;

// Writes the shards and a copy of tokenizer.json into a folder beside the wanted one, whose name
// begins with a dot, and renames it when it is complete. Removes such folders of runs that died.
CY_MUST_CHECK cy_status cy_data_prepare(
    cy_prepare_result *result, const cy_prepare_options *options);

// Reads all of a folder of shards, a shard or a .bin file, compares it with its headers, and
// appends a description: text for people, or a JSON object.
CY_MUST_CHECK cy_status cy_data_inspect(cy_text *out, const char *path, int json);

#endif
