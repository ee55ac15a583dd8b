#include "checkpoint/chunks.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/checksum.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int by_place(const void *left, const void *right)
{
    const cy_chunk_range *a = left;
    const cy_chunk_range *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

// Adds the pieces of one tensor.
static void add_pieces(cy_chunks *chunks, const cy_checkpoint *checkpoint, int tensor)
{
    const cy_stored_tensor *stored = &checkpoint->tensors[tensor];
    for (int64_t j = 0; j < stored->piece_count; j++) {
        const cy_stored_shard *piece = &stored->pieces[j];
        chunks->ranges[chunks->range_count++] = (cy_chunk_range){
            .file = piece->file,
            .offset = piece->offset,
            .bytes = cy_stored_shard_bytes(piece),
            .checksums = piece->checksums,
            .tensor = tensor,
            .piece = piece,
        };
    }
}

static void number_chunks(cy_chunks *chunks)
{
    qsort(chunks->ranges, (size_t)chunks->range_count, sizeof(cy_chunk_range), by_place);
    for (int64_t i = 0; i < chunks->range_count; i++) {
        chunks->ranges[i].first = chunks->count;
        chunks->count += cy_chunk_count(chunks->ranges[i].bytes);
    }
}

cy_status cy_chunks_open(cy_chunks *chunks, const cy_checkpoint *checkpoint)
{
    void *memory = NULL;
    const size_t most = (size_t)(checkpoint->file_count + checkpoint->piece_count);
    CY_TRY(cy_memory_alloc(&memory, most, sizeof(cy_chunk_range)));
    *chunks = (cy_chunks){.ranges = memory};
    for (int i = 0; i < checkpoint->file_count; i++) {
        const cy_checkpoint_file *file = &checkpoint->files[i];
        chunks->ranges[chunks->range_count++] = (cy_chunk_range){
            .file = i, .bytes = file->head_bytes, .checksums = file->checksums, .tensor = -1};
    }
    for (int i = 0; i < checkpoint->tensor_count; i++)
        add_pieces(chunks, checkpoint, i);
    number_chunks(chunks);
    return CY_OK;
}

cy_status cy_chunks_open_tensors(
    cy_chunks *chunks, const cy_checkpoint *checkpoint, const int *tensors, int64_t count)
{
    void *memory = NULL;
    size_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most += (size_t)checkpoint->tensors[tensors[i]].piece_count;
    CY_TRY(cy_memory_alloc(&memory, most, sizeof(cy_chunk_range)));
    *chunks = (cy_chunks){.ranges = memory};
    for (int64_t i = 0; i < count; i++)
        add_pieces(chunks, checkpoint, tensors[i]);
    number_chunks(chunks);
    return CY_OK;
}

void cy_chunks_close(cy_chunks *chunks)
{
    cy_memory_free(chunks->ranges);
    *chunks = (cy_chunks){0};
}

// The last range that begins at or before a chunk: the ranges before it that begin there are empty.
static const cy_chunk_range *range_of(const cy_chunks *chunks, int64_t number)
{
    int64_t low = 0, high = chunks->range_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (chunks->ranges[middle].first <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &chunks->ranges[low];
}

cy_chunk cy_chunks_at(const cy_chunks *chunks, int64_t number)
{
    CY_ASSERT(number >= 0 && number < chunks->count);
    const cy_chunk_range *range = range_of(chunks, number);
    const uint64_t from = (uint64_t)(number - range->first) * CY_CHUNK_BYTES;
    const uint64_t left = range->bytes - from;
    cy_chunk chunk = {
        .range = range,
        .number = number,
        .offset = range->offset + from,
        .bytes = left < CY_CHUNK_BYTES ? left : CY_CHUNK_BYTES,
    };
    if (range->piece != NULL) {
        // A chunk holds whole elements: their sizes are powers of two.
        const uint64_t size = cy_dtype_size(range->piece->piece.dtype);
        chunk.piece = range->piece->piece;
        chunk.piece.first += (int64_t)(from / size);
        chunk.piece.count = (int64_t)(chunk.bytes / size);
    }
    return chunk;
}

void cy_chunk_label(
    char *text, size_t bytes, const cy_checkpoint *checkpoint, const cy_chunk *chunk)
{
    char label[256];
    if (chunk->range->tensor < 0) {
        snprintf(text, bytes, "no tensor: its header or text");
        return;
    }
    cy_tensor_full_name(label, sizeof(label), &checkpoint->tensors[chunk->range->tensor].tensor);
    snprintf(text, bytes, "tensor %s", label);
}

cy_status cy_chunk_check(const cy_checkpoint *checkpoint, const cy_chunk *chunk, const void *data)
{
    char label[300];
    const uint64_t found = cy_checksum(data, chunk->bytes);
    const uint64_t told = chunk->range->checksums[chunk->number - chunk->range->first];
    if (found == told) return CY_OK;
    cy_chunk_label(label, sizeof(label), checkpoint, chunk);
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s/%s: bytes %" PRIu64 " to %" PRIu64 ", of %s, changed since they were written: "
        "checksum %016" PRIx64 ", wanted %016" PRIx64,
        checkpoint->path, checkpoint->files[chunk->range->file].name, chunk->offset,
        chunk->offset + chunk->bytes, label, found, told);
}
