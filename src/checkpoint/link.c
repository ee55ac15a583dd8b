#define _GNU_SOURCE
#include "checkpoint/link.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/bytes.h"
#include "checkpoint/checksum.h"
#include "checkpoint/folder.h"
#include "checkpoint/shard.h"
#include "checkpoint/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

// A range of a file and where its checksums go.
typedef struct range {
    int file;
    uint64_t offset, bytes;
    uint64_t **checksums;
} range;

static int by_place(const void *left, const void *right)
{
    const range *a = left;
    const range *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static cy_status link_file(const char *folder, const char *from_folder, const char *name)
{
    char *from = NULL, *to = NULL;
    CY_TRY(cy_folder_join(&from, from_folder, name));
    cy_status status = cy_folder_join(&to, folder, name);
    // A folder of a download cache holds symbolic links: the file is meant, not the link to it.
    if (status == CY_OK && linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) != 0) {
        const bool elsewhere = errno == EXDEV;
        status = CY_FAIL_ERRNO(elsewhere ? CY_ERR_REQUEST : CY_ERR_IO, "link %s to %s", from, to);
        if (elsewhere) {
            cy_error_set_hint(
                "the two are on different file systems: import a copy, without --link");
        }
    }
    cy_memory_free(from);
    cy_memory_free(to);
    return status;
}

static cy_status checksum_range(cy_checkpoint *source, const range *at, char *buffer)
{
    void *checksums = NULL;
    CY_TRY(cy_memory_take(&checksums, (size_t)cy_chunk_count(at->bytes), sizeof(uint64_t)));
    *at->checksums = checksums;
    for (uint64_t done = 0; done < at->bytes; done += CY_CHUNK_BYTES) {
        const uint64_t left = at->bytes - done;
        const uint64_t bytes = left < CY_CHUNK_BYTES ? left : CY_CHUNK_BYTES;
        struct iovec part = {.iov_base = buffer, .iov_len = bytes};
        CY_TRY(cy_bytes_read(source, at->file, at->offset + done, &part, 1));
        (*at->checksums)[done / CY_CHUNK_BYTES] = cy_checksum(buffer, bytes);
    }
    return CY_OK;
}

// From the start of the first file to the end of the last, as the disk likes it.
static cy_status checksum_files(cy_checkpoint *source)
{
    void *memory = NULL, *buffer = NULL;
    const size_t count = (size_t)source->file_count + (size_t)source->piece_count;
    CY_TRY(cy_memory_take(&memory, count, sizeof(range)));
    range *ranges = memory;
    for (int i = 0; i < source->file_count; i++) {
        cy_checkpoint_file *file = &source->files[i];
        ranges[i] = (range){.file = i, .bytes = file->head_bytes, .checksums = &file->checksums};
    }
    for (int64_t i = 0; i < source->piece_count; i++) {
        cy_stored_piece *piece = &source->pieces[i];
        ranges[source->file_count + i] = (range){.file = piece->file,
            .offset = piece->offset,
            .bytes = cy_stored_piece_bytes(piece),
            .checksums = &piece->checksums};
    }
    qsort(ranges, count, sizeof(range), by_place);
    cy_status status = cy_memory_take(&buffer, CY_CHUNK_BYTES, 1);
    for (size_t i = 0; status == CY_OK && i < count; i++)
        status = checksum_range(source, &ranges[i], buffer);
    cy_memory_free(buffer);
    cy_memory_free(memory);
    return status;
}

cy_status cy_link_shard(cy_checkpoint *source, const char *folder)
{
    char *path = NULL;
    cy_text json = {0};
    for (int i = 0; i < source->file_count; i++) {
        CY_TRY(link_file(folder, source->path, source->files[i].name));
    }
    CY_TRY(checksum_files(source));
    CY_TRY(cy_shard_part_path(&path, folder, 0));
    cy_status status = cy_table_to_json(&json, source);
    if (status == CY_OK) status = cy_file_write(path, json.bytes, json.length);
    cy_text_free(&json);
    cy_memory_free(path);
    return status;
}
