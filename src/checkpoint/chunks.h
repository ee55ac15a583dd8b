// checkpoint/chunks.h: all bytes of a checkpoint's files as chunks of at most 1 MiB, the unit in
// which they have checksums and in which they are read.
//
// A chunk lies in the head of a file or in one stored piece, never in two. Chunks are numbered in
// the order of files and offsets, alike on every rank. Used inside src/checkpoint only; a list is
// plain data that borrows from the checkpoint and may be read from any thread.

#ifndef CY_CHECKPOINT_CHUNKS_H
#define CY_CHECKPOINT_CHUNKS_H

#include "checkpoint/checkpoint.h"

typedef struct cy_chunk_range {
    int file;
    uint64_t offset, bytes;
    const uint64_t *checksums;    // borrowed, [chunks]; NULL in a Hugging Face folder
    int tensor;                   // its place in the checkpoint's tensors; -1 for a file's head
    const cy_stored_shard *piece; // borrowed; NULL for a file's head
    int64_t first;                // number of its first chunk
} cy_chunk_range;

typedef struct cy_chunks {
    cy_chunk_range *ranges; // owned, [range_count]
    int64_t range_count;
    int64_t count; // of chunks
} cy_chunks;

typedef struct cy_chunk {
    const cy_chunk_range *range; // borrowed
    int64_t number;
    uint64_t offset; // in the file
    uint64_t bytes;
    cy_tensor_shard piece; // the elements; none of a file's head
} cy_chunk;

CY_MUST_CHECK cy_status cy_chunks_open(cy_chunks *chunks, const cy_checkpoint *checkpoint);
void cy_chunks_close(cy_chunks *chunks);

cy_chunk cy_chunks_at(const cy_chunks *chunks, int64_t number);

// Fails with CY_ERR_CORRUPT, file, tensor and bytes, unless `data` [chunk->bytes] is what was
// written.
CY_MUST_CHECK cy_status cy_chunk_check(
    const cy_checkpoint *checkpoint, const cy_chunk *chunk, const void *data);

// "tensor model.norm.weight", or what else the chunk is of.
void cy_chunk_label(
    char *text, size_t bytes, const cy_checkpoint *checkpoint, const cy_chunk *chunk);

#endif
