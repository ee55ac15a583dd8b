// checkpoint/fetch.h: divides files into chunks, and reads chunks into the shards that want them.
//
// A chunk is at most 1 MiB of a file: the unit that has a checksum and that is read. It lies in the
// head of a file or in one stored shard, never in two. Chunks are numbered in the order of files
// and offsets, so a number means the same chunk on every rank.
//
// A chunk that is checked is read once: past the page cache into the fetcher's buffer, several
// chunks at a time; or through the page cache, straight to its place where it is dense there and of
// the same type, otherwise through the buffer. Of a chunk that another rank checks, exactly the
// wanted bytes are read.
//
// Used inside src/checkpoint only. A list of chunks and a load plan are plain data that borrow from
// the checkpoint and may be read from any thread. A fetcher belongs to one thread; several fetchers
// work on one checkpoint, whose files must be open.

#ifndef CY_CHECKPOINT_FETCH_H
#define CY_CHECKPOINT_FETCH_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/file_io.h"
#include "device/device.h"

// ---- chunks

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
    cy_tensor_shard piece; // its elements; empty for a file's head
} cy_chunk;

// All chunks of the checkpoint. On failure nothing is owned.
CY_MUST_CHECK cy_status cy_chunks_open(cy_chunks *chunks, const cy_checkpoint *checkpoint);

// The chunks of some tensors alone, [count] places in the checkpoint's tensors, each once: for a
// load that checks nothing.
CY_MUST_CHECK cy_status cy_chunks_open_tensors(
    cy_chunks *chunks, const cy_checkpoint *checkpoint, const int *tensors, int64_t count);
void cy_chunks_close(cy_chunks *chunks);

// Chunk `number`, 0 <= number < chunks->count.
cy_chunk cy_chunks_at(const cy_chunks *chunks, int64_t number);

// Fails with CY_ERR_CORRUPT, naming file, tensor and bytes, unless `data` [chunk->bytes] has the
// checksum that was written.
CY_MUST_CHECK cy_status cy_chunk_check(
    const cy_checkpoint *checkpoint, const cy_chunk *chunk, const void *data);

// "tensor model.norm.weight", or which other part of a file the chunk belongs to.
void cy_chunk_label(
    char *text, size_t bytes, const cy_checkpoint *checkpoint, const cy_chunk *chunk);

// ---- what a rank wants

// A tensor shard to fill, and which of the checkpoint's tensors it is part of.
typedef struct cy_read_item {
    int tensor;
    const cy_tensor_shard *piece; // borrowed
} cy_read_item;

typedef struct cy_load_plan {
    cy_read_item *list; // owned, [count], sorted by tensor
    int64_t count;
} cy_load_plan;

// Finds the stored tensors that the shards want and checks that each has the same shape and a type
// that can be converted. Arguments as of cy_checkpoint_load.
CY_MUST_CHECK cy_status cy_load_plan_open(cy_load_plan *plan, const cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count);
void cy_load_plan_close(cy_load_plan *plan);

// How many of a chunk's bytes are wanted; bytes that two shards want count twice.
uint64_t cy_load_plan_bytes(const cy_load_plan *plan, const cy_chunk *chunk);

// ---- reading a chunk

typedef struct cy_fetcher cy_fetcher;

// The size of a fetcher's buffer, which holds a chunk and its neighbours in whole disk blocks.
#define CY_FETCH_BYTES ((size_t)3 << 19)

// `buffer` [CY_FETCH_BYTES] is borrowed and begins on a page. `device` holds the memory of the
// shards. Where the host has no access to it, the fetcher copies through a queue of its own.
CY_MUST_CHECK cy_status cy_fetcher_open(cy_fetcher **fetcher, cy_checkpoint *checkpoint,
    const cy_load_plan *plan, char *buffer, cy_device *device);

// Adds what was read to *traffic.
void cy_fetcher_close(cy_fetcher *fetcher, cy_checkpoint_traffic *traffic);

// Reads bytes [offset, offset + bytes) of file number `number` past the page cache into the buffer,
// which must have room for their blocks. Later calls of cy_fetch take chunks that lie in them from
// there. Where this read fails, cy_fetch reads for itself and says what is wrong.
void cy_fetcher_read_block(
    cy_fetcher *fetcher, const cy_direct_file *file, int number, uint64_t offset, uint64_t bytes);

// Fills what is wanted of a chunk, in memory of the device when it returns; with `checked` all of
// it is compared with its checksum.
CY_MUST_CHECK cy_status cy_fetch(cy_fetcher *fetcher, const cy_chunk *chunk, bool checked);

#endif
