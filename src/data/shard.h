// data/shard.h: a file of token ids, read in place. docs/formats/shards.md describes the format.
//
// One owner opens and closes a shard; any thread may read it. A damaged file is CY_ERR_CORRUPT; the
// message names the file and what does not fit.

#ifndef CY_DATA_SHARD_H
#define CY_DATA_SHARD_H

#include "base/file.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CY_SHARD_MAGIC   "CYTOKENS"
#define CY_SHARD_VERSION 1u

// The first bytes of the file, little-endian.
typedef struct cy_shard_header {
    char magic[8];
    uint32_t version;
    uint32_t token_bytes; // 2 or 4
    uint64_t token_count;
    uint64_t document_count;
    uint64_t text_bytes;     // of the text that was encoded
    uint64_t tokenizer_hash; // cy_tokenizer_hash
    uint64_t check;          // of the token bytes, see cy_shard_check
    uint32_t vocab_size;     // every token is below it
    int32_t end_token;
} cy_shard_header;

typedef struct cy_shard {
    cy_input_file file;
    cy_shard_header header;
} cy_shard;

// True for a regular file that begins like a shard, under any name.
CY_MUST_CHECK cy_status cy_shard_is_file(bool *shard, const char *path);

CY_MUST_CHECK cy_status cy_shard_open(cy_shard *shard, const char *path);
void cy_shard_close(cy_shard *shard);

// Reads tokens [first, first + count) into out [count]. A file that became shorter is an error.
CY_MUST_CHECK cy_status cy_shard_read(
    const cy_shard *shard, int32_t *out, int64_t first, int64_t count);

// Continues the check of token bytes; the first call passes 0.
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

// Writes the buffer and the header, forces the file to the disk, and closes the writer, also on
// failure.
CY_MUST_CHECK cy_status cy_shard_finish(cy_shard_writer *writer);

// Closes and removes the file.
void cy_shard_abandon(cy_shard_writer *writer);

#endif
