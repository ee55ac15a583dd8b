// data/source.h: a row of tokens, wherever they come from.
//
// A source is immutable once it is open; any thread may read it. The kinds are a table of two
// functions each: folders of shards, text that is tokenized when it is opened, and token files of
// other programs. A backend's struct begins with cy_token_source.

#ifndef CY_DATA_SOURCE_H
#define CY_DATA_SOURCE_H

#include <cyclotron/tokenizer.h>

#include "base/status.h"

#include <stdbool.h>

typedef struct cy_token_source cy_token_source;

// What the first tokens of a source are known by, wherever they are stored. Two are of the same
// tokens where `tokens` and `sample` are equal, and `checks` too where both have equal `cuts`.
typedef struct cy_fingerprint {
    int64_t tokens;  // how many
    uint64_t sample; // of all tokens up to 2^22, else of 256 stretches of 2^14 at even distances
    uint64_t cuts;   // of how the tokens lie in shards, or that they are of a text; 0: not known
    uint64_t checks; // of every token: of the checks in the shards' headers, or of a text's tokens
} cy_fingerprint;

typedef struct cy_token_source_ops {
    const char *name; // "shards", "text", ...
    // tokens [first, first + count) into out [count]; the range was checked
    cy_status (*read)(const cy_token_source *source, int32_t *out, int64_t first, int64_t count);
    // sets cuts and checks for the first `tokens` tokens; both 0 where nothing stored covers them
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
    const cy_tokenizer *tokenizer; // borrowed; NULL unless text is to be read or ids are to fit it
    const char *field;             // of .jsonl; NULL is "text"
    int threads;                   // for text; 0 is 1
    int32_t vocab_size;            // the reader's, for files that do not say theirs; 0: any token
    bool any_tokenizer;            // take shards of another tokenizer than this one
} cy_source_options;

// Opens what stands at a path: a folder of shards or one shard, a token file of llm.c or nanoGPT
// (.bin) or of Megatron (.bin with .idx), or a text file (.txt, .jsonl, also .gz, .zst). A shard is
// known by how it begins, whatever its name.
// *source is owned by the caller.
CY_MUST_CHECK cy_status cy_source_open(
    cy_token_source **source, const char *path, const cy_source_options *options);
void cy_source_close(cy_token_source *source);

// tokens [first, first + count) into out [count]. A token that is not below the vocabulary is
// CY_ERR_CORRUPT, which names the file and the place; so is a file that is shorter than it was.
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
