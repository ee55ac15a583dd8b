#define _GNU_SOURCE
#include "checkpoint/bytes.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "checkpoint/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

cy_status cy_bytes_open(int *fd, cy_checkpoint *checkpoint, int file)
{
    cy_checkpoint_file *entry = &checkpoint->files[file];
    if (entry->fd < 0) {
        char *path = NULL;
        CY_TRY(cy_folder_join(&path, checkpoint->path, entry->name));
        const cy_status status = cy_file_open(&entry->fd, path);
        cy_memory_free(path);
        CY_TRY(status);
    }
    *fd = entry->fd;
    return CY_OK;
}

cy_status cy_bytes_open_all(cy_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->file_count; i++) {
        int fd = -1;
        CY_TRY(cy_bytes_open(&fd, checkpoint, i));
        if (cy_fd_is_scarce(fd)) break; // the others are opened when they are read
    }
    return CY_OK;
}

cy_status cy_bytes_read(
    cy_checkpoint *checkpoint, int file, uint64_t offset, struct iovec *parts, int count)
{
    int fd = -1;
    CY_TRY(cy_bytes_open(&fd, checkpoint, file));
    while (count > 0) {
        if (parts->iov_len == 0) {
            parts++;
            count--;
            continue;
        }
        const ssize_t got = cy_io_preadv(fd, parts, count, (int64_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return CY_FAIL_ERRNO(CY_ERR_IO, "read %s/%s at byte %" PRIu64, checkpoint->path,
                checkpoint->files[file].name, offset);
        }
        if (got == 0) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s/%s ends at byte %" PRIu64 ": it was longer",
                checkpoint->path, checkpoint->files[file].name, offset);
        }
        offset += (uint64_t)got;
        size_t left = (size_t)got;
        while (count > 0 && left >= parts->iov_len) {
            left -= parts->iov_len;
            parts++;
            count--;
        }
        if (left > 0) {
            parts->iov_base = (char *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    return CY_OK;
}

void cy_bytes_prefetch(const cy_checkpoint *checkpoint, int file, uint64_t offset, uint64_t bytes)
{
    const int fd = checkpoint->files[file].fd;
    if (fd >= 0) posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}
