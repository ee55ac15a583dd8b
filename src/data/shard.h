// data/shard.h: a file of token ids, read where they lie. docs/formats/shards.md describes it.
//
// A shard is opened and closed by one owner and read by any thread. A file that is not whole is
// CY_ERR_CORRUPT, which names the file and what does not fit.

#ifndef CY_DATA_SHARD_H
#define CY_DATA_SHARD_H

#include "base/file.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CY_SHARD_MAGIC   "CYTOKENS"
#define CY_SHARD_VERSION 1u

// Little-endian, as the file begins.
typedef struct cy_shard_header {
    char magic[8];
    uint32_t version;
    uint32_t token_bytes; // 2 or 4
    uint64_t token_count;
    uint64_t document_count;
    uint64_t text_bytes;     // of the text that the tokens stand for
    uint64_t tokenizer_hash; // cy_tokenizer_hash
    uint64_t check;          // of the token bytes, see cy_shard_check
    uint32_t vocab_size;     // every token is below it
    int32_t end_token;
} cy_shard_header;

typedef struct cy_shard {
    cy_input_file file;
    cy_shard_header header;
} cy_shard;

// True for a regular file that begins as a shard does, whatever its name.
CY_MUST_CHECK cy_status cy_shard_is_file(bool *shard, const char *path);

CY_MUST_CHECK cy_status cy_shard_open(cy_shard *shard, const char *path);
void cy_shard_close(cy_shard *shard);

// tokens [first, first + count) into out [count]. A file that fails, or is shorter than it was, is
// an error.
CY_MUST_CHECK cy_status cy_shard_read(
    const cy_shard *shard, int32_t *out, int64_t first, int64_t count);

// Goes on with the check of token bytes; starts from 0.
uint64_t cy_shard_check(uint64_t check, const unsigned char *bytes, size_t count);

// Reads all tokens and compares the check and the largest id with the header.
CY_MUST_CHECK cy_status cy_shard_verify(const cy_shard *shard);

// ---- writing

typedef struct cy_shard_writer {
    cy_shard_header header;
    char *path;            // owned
    unsigned char *buffer; // owned
    size_t buffered;       // bytes
    int fd;
} cy_shard_writer;

// Takes token_bytes, tokenizer_hash, vocab_size and end_token from `header`.
CY_MUST_CHECK cy_status cy_shard_create(
    cy_shard_writer *writer, const char *path, const cy_shard_header *header);
CY_MUST_CHECK cy_status cy_shard_add(
    cy_shard_writer *writer, const int32_t *tokens, size_t count, uint64_t text_bytes);

// Writes what is buffered and the header, and sees the file to the disk. The writer is closed,
// whatever the status.
CY_MUST_CHECK cy_status cy_shard_finish(cy_shard_writer *writer);

// Closes and removes the file.
void cy_shard_abandon(cy_shard_writer *writer);

#endif
