// data/source.h: sources: rows of tokens, from shards, text, or token files of other programs.
//
// A source is immutable once it is open; any thread may read it. Each kind has a table of
// functions, and a struct that begins with cy_token_source. Text is tokenized when it is opened.

#ifndef CY_DATA_SOURCE_H
#define CY_DATA_SOURCE_H

#include <cyclotron/tokenizer.h>

#include "base/status.h"

#include <stdbool.h>

typedef struct cy_token_source cy_token_source;

// Identifies the first tokens of a source, however they are stored. Two fingerprints are of the
// same tokens where `tokens` and `sample` are equal, and where `cuts` are equal, `checks` too.
typedef struct cy_fingerprint {
    int64_t tokens;  // how many
    uint64_t sample; // of all tokens up to 2^22, else of 256 runs of 2^14 at even distances
    uint64_t cuts;   // of the ends of the shards, or 1 for a text; 0: not known
    uint64_t checks; // of every token: of the checks in the shards' headers, or of a text's tokens
} cy_fingerprint;

typedef struct cy_token_source_ops {
    const char *name; // "shards", "text", "llm.c", "nanoGPT", "Megatron"
    // Reads tokens [first, first + count) into out [count]; the caller has checked the range.
    cy_status (*read)(const cy_token_source *source, int32_t *out, int64_t first, int64_t count);
    // Sets cuts and checks for the first `tokens` tokens; both are 0 where no stored check covers
    // them.
    cy_status (*check)(const cy_token_source *source, cy_fingerprint *fingerprint);
    void (*close)(cy_token_source *source);
} cy_token_source_ops;

struct cy_token_source {
    const cy_token_source_ops *ops;
    char *path; // owned, for messages
    int64_t token_count;
    int64_t document_count;  // -1 where it is not known
    int64_t text_bytes;      // of the text, -1 where it is not known
    int32_t vocab_size;      // every token is below it; 0 where it is not known
    uint64_t tokenizer_hash; // 0 where it is not known
};

typedef struct cy_source_options {
    const cy_tokenizer *tokenizer; // borrowed; encodes text, and shards must fit it; NULL: none
    const char *field;             // of .jsonl; NULL is "text"
    int threads;                   // for text; 0 is 1
    int32_t vocab_size;            // the reader's, for files that do not store theirs; 0: any token
    bool any_tokenizer;            // accept shards of another tokenizer
} cy_source_options;

// Opens a path: a folder of shards or one shard, a token file of llm.c or nanoGPT (.bin) or of
// Megatron (.bin with .idx), or a text file (.txt, .jsonl, also .gz, .zst). A shard is recognised
// by its first bytes, under any name. *source is owned by the caller.
CY_MUST_CHECK cy_status cy_source_open(
    cy_token_source **source, const char *path, const cy_source_options *options);
void cy_source_close(cy_token_source *source);

// Reads tokens [first, first + count) into out [count]. A token that is not below the vocabulary is
// CY_ERR_CORRUPT, and the message names the file and the place; so is a file that became shorter.
CY_MUST_CHECK cy_status cy_source_read(
    const cy_token_source *source, int32_t *out, int64_t first, int64_t count);

// The fingerprint of tokens [0, tokens), of which there are at most token_count. Reads at most
// 2^22 tokens of a file; the tokens of a text are in memory.
CY_MUST_CHECK cy_status cy_source_fingerprint(
    cy_fingerprint *fingerprint, const cy_token_source *source, int64_t tokens);
bool cy_fingerprint_equal(const cy_fingerprint *one, const cy_fingerprint *other);

// Whether a path names a token file of another program: .bin or .idx.
bool cy_source_is_file(const char *path);

#endif
