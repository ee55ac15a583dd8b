#define _GNU_SOURCE
#include "checkpoint/hardlink.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "checkpoint/bytes.h"
#include "checkpoint/checksum.h"
#include "checkpoint/chunks.h"
#include "checkpoint/folder.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static cy_status link_file(const char *folder, const char *from_folder, const char *name)
{
    char *from = NULL, *to = NULL;
    CY_TRY(cy_folder_join(&from, from_folder, name));
    cy_status status = cy_folder_join(&to, folder, name);
    // A folder of a download cache holds symbolic links: the file is meant, not the link to it.
    if (status == CY_OK && cy_io_link(from, to) != 0) {
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

static cy_status checksum_range(
    cy_checkpoint *source, const cy_chunks *chunks, const cy_chunk_range *range, char *buffer)
{
    void *memory = NULL;
    const int64_t count = cy_chunk_count(range->bytes);
    CY_TRY(cy_memory_alloc(&memory, (size_t)count, sizeof(uint64_t)));
    uint64_t *checksums = memory;
    if (range->piece == NULL) {
        source->files[range->file].checksums = checksums;
    } else {
        source->pieces[range->piece - source->pieces].checksums = checksums;
    }
    for (int64_t i = 0; i < count; i++) {
        const cy_chunk chunk = cy_chunks_at(chunks, range->first + i);
        struct iovec part = {.iov_base = buffer, .iov_len = chunk.bytes};
        CY_TRY(cy_bytes_read(source, range->file, chunk.offset, &part, 1));
        checksums[i] = cy_checksum(buffer, chunk.bytes);
    }
    return CY_OK;
}

// From the start of the first file to the end of the last, as the disk likes it.
static cy_status checksum_files(cy_checkpoint *source)
{
    cy_chunks chunks;
    void *buffer = NULL;
    CY_TRY(cy_chunks_open(&chunks, source));
    cy_status status = cy_memory_alloc(&buffer, CY_CHUNK_BYTES, 1);
    for (int64_t i = 0; status == CY_OK && i < chunks.range_count; i++)
        status = checksum_range(source, &chunks, &chunks.ranges[i], buffer);
    cy_memory_free(buffer);
    cy_chunks_close(&chunks);
    return status;
}

cy_status cy_hardlink_files(cy_checkpoint *source, const char *folder)
{
    char *path = NULL;
    cy_text json = {0};
    for (int i = 0; i < source->file_count; i++) {
        CY_TRY(link_file(folder, source->path, source->files[i].name));
    }
    CY_TRY(checksum_files(source));
    CY_TRY(cy_rank_files_part_path(&path, folder, 0));
    cy_status status = cy_checkpoint_to_json(&json, source);
    if (status == CY_OK) status = cy_file_write_unsynced(path, json.bytes, json.length);
    cy_text_free(&json);
    cy_memory_free(path);
    return status;
}
