#define _GNU_SOURCE
#include "base/input_file.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

cy_status cy_input_open(cy_input_file *file, const char *path)
{
    struct stat info;
    cy_input_file made = {.fd = -1};
    CY_TRY(cy_file_open(&made.fd, path));
    cy_status status = cy_memory_copy_text(&made.path, path);
    if (status == CY_OK && cy_io_fstat(made.fd, &info) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", path);
    }
    if (status != CY_OK) {
        cy_io_close(made.fd);
        cy_memory_free(made.path);
        return status;
    }
    made.bytes = (uint64_t)info.st_size;
    made.device = (uint64_t)info.st_dev;
    made.inode = (uint64_t)info.st_ino;
    if (cy_fd_is_scarce(made.fd)) {
        cy_io_close(made.fd);
        made.fd = -1;
    }
    *file = made;
    return CY_OK;
}

void cy_input_close(cy_input_file *file)
{
    if (file->path != NULL && file->fd >= 0) cy_io_close(file->fd);
    cy_memory_free(file->path);
    *file = (cy_input_file){.fd = -1};
}

static cy_status open_again(int *fd, const cy_input_file *file)
{
    struct stat info;
    CY_TRY(cy_file_open(fd, file->path));
    const bool known = cy_io_fstat(*fd, &info) == 0;
    if (known && (uint64_t)info.st_dev == file->device && (uint64_t)info.st_ino == file->inode) {
        return CY_OK;
    }
    const cy_status status = known
        ? CY_FAIL(CY_ERR_CORRUPT, "%s was replaced while it was in use", file->path)
        : CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", file->path);
    cy_io_close(*fd);
    return status;
}

static cy_status fail_short(int fd, const cy_input_file *file)
{
    struct stat info = {0};
    if (cy_io_fstat(fd, &info) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", file->path);
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s has %lld bytes, it had %" PRIu64 " when it was opened: it was cut while it was in use",
        file->path, (long long)info.st_size, file->bytes);
}

static cy_status read_all(
    int fd, const cy_input_file *file, char *to, uint64_t offset, size_t count)
{
    while (count > 0) {
        const ssize_t got = cy_io_pread(fd, to, count, (int64_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return CY_FAIL_ERRNO(CY_ERR_IO, "read %s at byte %" PRIu64, file->path, offset);
        }
        if (got == 0) return fail_short(fd, file);
        to += got;
        offset += (uint64_t)got;
        count -= (size_t)got;
    }
    return CY_OK;
}

cy_status cy_input_read(const cy_input_file *file, void *to, uint64_t offset, size_t count)
{
    CY_ASSERT(offset <= file->bytes && count <= file->bytes - offset);
    if (file->fd >= 0) return read_all(file->fd, file, to, offset, count);
    int fd = -1;
    CY_TRY(open_again(&fd, file));
    const cy_status status = read_all(fd, file, to, offset, count);
    cy_io_close(fd);
    return status;
}

// ---- lines

#define PIECE_BYTES ((size_t)65536)

static cy_status read_more(cy_lines *lines)
{
    const size_t left = lines->end - lines->first;
    const uint64_t unread = lines->file->bytes - lines->read;
    const size_t some = unread < PIECE_BYTES ? (size_t)unread : PIECE_BYTES;
    if (left > CY_LINE_BYTES_MAX) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: line %" PRId64 " has more than %zu bytes",
            lines->file->path, lines->number + 1, CY_LINE_BYTES_MAX);
    }
    if (left > 0) memmove(lines->buffer, lines->buffer + lines->first, left);
    lines->first = 0;
    lines->end = left;
    void *block = lines->buffer;
    CY_TRY(cy_memory_grow(&block, &lines->room, left + some, 1));
    lines->buffer = block;
    CY_TRY(cy_input_read(lines->file, lines->buffer + left, lines->read, some));
    lines->read += some;
    lines->end += some;
    return CY_OK;
}

cy_status cy_lines_next(cy_lines *lines, const char **line, size_t *length)
{
    *line = NULL;
    *length = 0;
    for (size_t searched = 0;;) {
        const size_t left = lines->end - lines->first;
        const bool all = lines->read == lines->file->bytes;
        if (all && left == 0) return CY_OK; // of an empty file there is no buffer either
        const char *from = lines->buffer == NULL ? NULL : lines->buffer + lines->first;
        const char *end = left > searched ? memchr(from + searched, '\n', left - searched) : NULL;
        if (end == NULL && !all) {
            searched = left;
            CY_TRY(read_more(lines));
            continue;
        }
        *line = from;
        *length = end != NULL ? (size_t)(end - from) : left;
        lines->first += *length + (end != NULL);
        lines->number++;
        return CY_OK;
    }
}

void cy_lines_free(cy_lines *lines)
{
    cy_memory_free(lines->buffer);
    *lines = (cy_lines){0};
}
