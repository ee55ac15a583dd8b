#include "checkpoint/manifest.h"

#include "base/memory.h"
#include "checkpoint/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t cy_chunk_count(uint64_t bytes)
{
    return (int64_t)((bytes + CY_CHUNK_BYTES - 1) / CY_CHUNK_BYTES);
}

cy_status cy_checkpoint_file_head(cy_checkpoint_file *file, const void *bytes, size_t count)
{
    void *checksums = NULL;
    CY_TRY(cy_memory_alloc(&checksums, (size_t)cy_chunk_count(count), sizeof(uint64_t)));
    file->head_bytes = count;
    file->checksums = checksums;
    for (size_t done = 0, i = 0; done < count; done += CY_CHUNK_BYTES, i++) {
        const size_t left = count - done;
        file->checksums[i] =
            cy_checksum((const char *)bytes + done, left < CY_CHUNK_BYTES ? left : CY_CHUNK_BYTES);
    }
    return CY_OK;
}

uint64_t cy_stored_shard_bytes(const cy_stored_shard *piece)
{
    return (uint64_t)piece->piece.count * cy_dtype_size(piece->piece.dtype);
}

void cy_tensor_full_name(char *text, size_t bytes, const cy_global_tensor *tensor)
{
    const bool weight = tensor->kind == CY_TENSOR_WEIGHT;
    snprintf(text, bytes, "%s%s%s", weight ? "" : cy_tensor_kind_name(tensor->kind),
        weight ? "" : " of ", tensor->name);
}

static int by_kind_and_name(const void *left, const void *right)
{
    const cy_stored_tensor *a = left;
    const cy_stored_tensor *b = right;
    if (a->tensor.kind != b->tensor.kind) return a->tensor.kind < b->tensor.kind ? -1 : 1;
    return strcmp(a->tensor.name, b->tensor.name);
}

static cy_status check_cover(const cy_stored_tensor *stored, const char *where)
{
    char label[256];
    void *pieces = NULL;
    CY_TRY(cy_memory_alloc(&pieces, (size_t)stored->piece_count, sizeof(cy_tensor_shard)));
    for (int64_t i = 0; i < stored->piece_count; i++) {
        ((cy_tensor_shard *)pieces)[i] = stored->pieces[i].piece;
    }
    cy_tensor_full_name(label, sizeof(label), &stored->tensor);
    const cy_status status = cy_tensor_shards_check_cover(
        pieces, stored->piece_count, label, stored->tensor.rows, stored->tensor.cols);
    if (status != CY_OK) cy_error_prefix("%s: ", where);
    cy_memory_free(pieces);
    return status;
}

cy_status cy_checkpoint_finalize(cy_checkpoint *checkpoint, const char *where, bool part)
{
    const int count = checkpoint->tensor_count;
    if (count > 0) {
        qsort(checkpoint->tensors, (size_t)count, sizeof(*checkpoint->tensors), by_kind_and_name);
    }
    for (int i = 0; i < count; i++) {
        const cy_stored_tensor *stored = &checkpoint->tensors[i];
        if (i > 0 && by_kind_and_name(stored - 1, stored) == 0) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "%s: tensor %s is there twice", where, stored->tensor.name);
        }
        if (!part) CY_TRY(check_cover(stored, where));
    }
    return CY_OK;
}

const cy_stored_tensor *cy_checkpoint_find(
    const cy_checkpoint *checkpoint, cy_tensor_kind kind, const char *name)
{
    const cy_stored_tensor key = {.tensor = {.name = name, .kind = kind}};
    if (checkpoint->tensor_count == 0) return NULL;
    return bsearch(&key, checkpoint->tensors, (size_t)checkpoint->tensor_count,
        sizeof(*checkpoint->tensors), by_kind_and_name);
}
