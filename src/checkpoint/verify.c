#include "base/memory.h"
#include "checkpoint/bytes.h"
#include "checkpoint/checksum.h"
#include "checkpoint/table.h"

#include <inttypes.h>
#include <stdlib.h>

// The disk reads this far ahead of the checksums. A window moves on in steps of a quarter.
#define AHEAD_BYTES ((uint64_t)32 << 20)

// A range of a file with its checksums: the head of a file or a piece of a tensor.
typedef struct checked_range {
    int file;
    uint64_t offset, bytes;
    const uint64_t *checksums;
    const cy_global_tensor *tensor; // NULL: a file's head
} checked_range;

static int by_place(const void *left, const void *right)
{
    const checked_range *a = left;
    const checked_range *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int64_t list_ranges(
    checked_range *ranges, const cy_checkpoint *checkpoint, cy_tensor_kind kinds)
{
    int64_t count = 0;
    for (int i = 0; i < checkpoint->file_count; i++) {
        const cy_checkpoint_file *file = &checkpoint->files[i];
        ranges[count++] =
            (checked_range){.file = i, .bytes = file->head_bytes, .checksums = file->checksums};
    }
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        const cy_stored_tensor *stored = &checkpoint->tensors[i];
        if (stored->tensor.kind >= kinds) continue;
        for (int64_t j = 0; j < stored->piece_count; j++) {
            const cy_stored_piece *piece = &stored->pieces[j];
            ranges[count++] = (checked_range){
                .file = piece->file,
                .offset = piece->offset,
                .bytes = cy_stored_piece_bytes(piece),
                .checksums = piece->checksums,
                .tensor = &stored->tensor,
            };
        }
    }
    qsort(ranges, (size_t)count, sizeof(*ranges), by_place);
    return count;
}

static cy_status wrong_chunk(const cy_checkpoint *checkpoint, const checked_range *range,
    uint64_t offset, uint64_t bytes, uint64_t found, uint64_t told)
{
    char label[256] = "no tensor: its header or text";
    if (range->tensor != NULL) cy_tensor_label(label, sizeof(label), range->tensor);
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s/%s: bytes %" PRIu64 " to %" PRIu64 ", of %s%s, changed since they were written: "
        "checksum %016" PRIx64 ", wanted %016" PRIx64,
        checkpoint->path, checkpoint->files[range->file].name, offset, offset + bytes,
        range->tensor != NULL ? "tensor " : "", label, found, told);
}

// The chunk [from, from + bytes) of a file was read: what follows is asked for, a window at a time,
// whatever rank it is that will check it.
static void expect(const cy_checkpoint *checkpoint, int file, uint64_t from, uint64_t bytes)
{
    const uint64_t step = AHEAD_BYTES / 4, next = from + bytes;
    if (from > 0 && from / step == next / step) return;
    const uint64_t end = checkpoint->files[file].bytes;
    const uint64_t until = next + AHEAD_BYTES < end ? next + AHEAD_BYTES : end;
    if (next < until) cy_bytes_expect(checkpoint, file, next, until - next);
}

// Checks the chunks whose first byte, counted over all ranges, lies in [from, to); `start` is that
// of the range.
static cy_status verify_range(cy_checkpoint *checkpoint, const checked_range *range, uint64_t start,
    uint64_t from, uint64_t to, char *buffer, cy_checkpoint_traffic *traffic)
{
    for (uint64_t done = 0; done < range->bytes; done += CY_CHUNK_BYTES) {
        if (start + done < from || start + done >= to) continue;
        const uint64_t left = range->bytes - done;
        const uint64_t bytes = left < CY_CHUNK_BYTES ? left : CY_CHUNK_BYTES;
        struct iovec part = {.iov_base = buffer, .iov_len = bytes};
        CY_TRY(cy_bytes_read(checkpoint, range->file, range->offset + done, &part, 1));
        expect(checkpoint, range->file, range->offset + done, bytes);
        traffic->verify_bytes += (int64_t)bytes;
        const uint64_t found = cy_checksum(buffer, bytes);
        const uint64_t told = range->checksums[done / CY_CHUNK_BYTES];
        if (found != told) {
            return wrong_chunk(checkpoint, range, range->offset + done, bytes, found, told);
        }
    }
    return CY_OK;
}

static cy_status verify_share(cy_checkpoint *checkpoint, cy_tensor_kind kinds,
    cy_checkpoint_ranks ranks, cy_checkpoint_traffic *traffic)
{
    void *ranges = NULL, *buffer = NULL;
    const size_t most = (size_t)(checkpoint->file_count + checkpoint->piece_count);
    CY_TRY(cy_memory_take(&ranges, most, sizeof(checked_range)));
    cy_status status = cy_memory_take(&buffer, CY_CHUNK_BYTES, 1);
    const checked_range *list = ranges;
    const int64_t count = list_ranges(ranges, checkpoint, kinds);
    uint64_t total = 0, start = 0;
    for (int64_t i = 0; i < count; i++)
        total += list[i].bytes;
    const uint64_t size = (uint64_t)ranks.size, rank = (uint64_t)ranks.rank;
    const uint64_t from = total / size * rank;
    const uint64_t to = rank + 1 == size ? total : total / size * (rank + 1);
    for (int64_t i = 0; status == CY_OK && i < count; i++) {
        if (start < to && start + list[i].bytes > from) {
            status = verify_range(checkpoint, &list[i], start, from, to, buffer, traffic);
        }
        start += list[i].bytes;
    }
    cy_memory_free(buffer);
    cy_memory_free(ranges);
    return status;
}

cy_status cy_checkpoint_verify(cy_checkpoint *checkpoint, cy_tensor_kind kinds,
    cy_checkpoint_ranks ranks, cy_checkpoint_traffic *traffic)
{
    cy_status worst = CY_OK;
    if (checkpoint->foreign) return CY_OK; // on all ranks alike
    const cy_status mine = verify_share(checkpoint, kinds, ranks, traffic);
    CY_TRY(ranks.agree(ranks.context, &worst, mine));
    if (mine == CY_OK && worst != CY_OK) {
        return CY_FAIL(CY_ERR_PEER, "another rank could not verify %s", checkpoint->path);
    }
    return mine;
}
