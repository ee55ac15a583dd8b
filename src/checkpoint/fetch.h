// checkpoint/fetch.h: one chunk out of a file, checked, and into the pieces that want it.
//
// A chunk that is checked is read once: past the page cache to the fetcher's buffer, many bytes at
// a time, or plainly: straight to its place where it is dense there and of the same type, and
// through the buffer otherwise. Of a chunk that another rank checks exactly the wanted bytes are
// read. Used inside src/checkpoint only. A fetcher belongs to one thread; several work on one
// checkpoint, whose files must be open. Load plans are read only.

#ifndef CY_CHECKPOINT_FETCH_H
#define CY_CHECKPOINT_FETCH_H

#include "checkpoint/chunks.h"
#include "checkpoint/direct_io.h"

// A piece to fill, and which of the checkpoint's tensors it is of.
typedef struct cy_read_item {
    int tensor;
    const cy_tensor_shard *piece; // borrowed
} cy_read_item;

typedef struct cy_load_plan {
    cy_read_item *list; // owned, [count], sorted by tensor
    int64_t count;
} cy_load_plan;

// Looks up what the pieces want and checks that it is there in a shape and a type that will do.
// Arguments as of cy_checkpoint_load.
CY_MUST_CHECK cy_status cy_load_plan_open(cy_load_plan *plan, const cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count);
void cy_load_plan_close(cy_load_plan *plan);

// How many of a chunk's bytes are wanted; those that two pieces want count twice.
uint64_t cy_load_plan_bytes(const cy_load_plan *plan, const cy_chunk *chunk);

typedef struct cy_fetcher cy_fetcher;

// What a fetcher's buffer holds: a chunk and its neighbours, in whole disk blocks.
#define CY_FETCH_BYTES ((size_t)3 << 19)

// `buffer` [CY_FETCH_BYTES] is borrowed and begins on a page.
CY_MUST_CHECK cy_status cy_fetcher_open(
    cy_fetcher **fetcher, cy_checkpoint *checkpoint, const cy_load_plan *plan, char *buffer);

// Adds what was read to *traffic.
void cy_fetcher_close(cy_fetcher *fetcher, cy_checkpoint_traffic *traffic);

// Reads bytes [offset, offset + bytes) of a file, whose blocks the buffer must have room for, past
// the page cache, for calls of cy_fetch with chunks that lie in them. Where that does not work
// cy_fetch reads, and says what is wrong.
void cy_fetcher_read_block(
    cy_fetcher *fetcher, const cy_direct_file *file, int number, uint64_t offset, uint64_t bytes);

// Fills what is wanted of a chunk; with `checked` all of it is compared with its checksum.
CY_MUST_CHECK cy_status cy_fetch(cy_fetcher *fetcher, const cy_chunk *chunk, bool checked);

#endif
