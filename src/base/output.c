// Puts an output at its place, where nothing stands that must not be replaced.
#define _GNU_SOURCE
#include "base/output.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL 64

const cy_output_kind cy_output_svg = {
    .name = "a picture",
    .marks = {{.begins = "<svg xmlns=\"http://www.w3.org/2000/svg\"",
        .holds = "\n" CY_OUTPUT_SVG_COMMENT "\n",
        .ends = "</svg>\n"}},
};

// The first and the last bytes of a file.
typedef struct ends {
    const char *head; // [head_count]
    size_t head_count;
    const char *tail; // [tail_count]
    size_t tail_count;
} ends;

static bool has_signature(const cy_output_signature *mark, const ends *file)
{
    if (mark->begins == NULL && mark->holds == NULL && mark->ends == NULL) return false;
    if (mark->begins != NULL) {
        const size_t length = strlen(mark->begins);
        if (file->head_count < length || memcmp(file->head, mark->begins, length) != 0)
            return false;
    }
    if (mark->ends != NULL) {
        const size_t length = strlen(mark->ends);
        CY_ASSERT(length <= TAIL);
        if (file->tail_count < length) return false;
        if (memcmp(file->tail + file->tail_count - length, mark->ends, length) != 0) return false;
    }
    return mark->holds == NULL ||
        memmem(file->head, file->head_count, mark->holds, strlen(mark->holds)) != NULL;
}

static bool is_of_kind(const cy_output_kind *kind, const ends *file)
{
    for (int i = 0; i < CY_OUTPUT_SIGNATURES; i++) {
        if (has_signature(&kind->marks[i], file)) return true;
    }
    return false;
}

// Up to `count` bytes at `offset`; how many there are.
static cy_status read_at(
    size_t *got_out, int fd, const char *path, char *to, size_t count, off_t offset)
{
    size_t got = 0;
    while (got < count) {
        const ssize_t some = cy_io_pread(fd, to + got, count - got, offset + (off_t)got);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read %s", path);
        if (some == 0) break;
        got += (size_t)some;
    }
    *got_out = got;
    return CY_OK;
}

// A regular file, opened at `fd`.
static cy_status look_into(bool *own, int fd, const char *path, const cy_output_kind *kind)
{
    char head[CY_OUTPUT_HEAD], tail[TAIL];
    struct stat info;
    if (cy_io_fstat(fd, &info) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", path);
    const off_t last = info.st_size > TAIL ? info.st_size - TAIL : 0;
    ends file = {.head = head, .tail = tail};
    CY_TRY(read_at(&file.head_count, fd, path, head, sizeof(head), 0));
    CY_TRY(read_at(&file.tail_count, fd, path, tail, sizeof(tail), last));
    *own = S_ISREG(info.st_mode) && is_of_kind(kind, &file);
    return CY_OK;
}

static const char *what_stands(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISLNK(mode)) return "a symbolic link";
    if (S_ISREG(mode)) return NULL;
    return S_ISFIFO(mode) || S_ISSOCK(mode) ? "a pipe" : "a device";
}

static cy_status refuse(const char *path, const cy_output_kind *kind, const char *stands)
{
    const cy_status status = stands != NULL
        ? CY_FAIL(CY_ERR_REQUEST, "%s is %s: it is not replaced by %s", path, stands, kind->name)
        : CY_FAIL(CY_ERR_REQUEST,
              "%s is there and is not %s that cyclotron wrote: it is not replaced", path,
              kind->name);
    cy_error_set_hint("name another file%s", stands != NULL ? "" : ", or remove that one");
    return status;
}

// *there: a file that may be replaced stands there.
static cy_status look_at_place(bool *there, const char *path, const cy_output_kind *kind)
{
    struct stat info;
    *there = false;
    if (path[0] == '\0') return CY_FAIL(CY_ERR_REQUEST, "\"\" is not a place for a file");
    if (cy_io_lstat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return CY_OK; // writing says what is wrong
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    const char *stands = what_stands(info.st_mode);
    if (stands != NULL) return refuse(path, kind, stands);
    const int fd = cy_io_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT) return CY_OK; // it is gone again
        return CY_FAIL_ERRNO(CY_ERR_IO, "open %s, which would be replaced", path);
    }
    const cy_status status = look_into(there, fd, path, kind);
    cy_io_close(fd);
    CY_TRY(status);
    return *there ? CY_OK : refuse(path, kind, NULL);
}

cy_status cy_output_check(const char *path, const cy_output_kind *kind)
{
    bool there;
    return look_at_place(&there, path, kind);
}

// Where nothing stood, what has come to stand there in the meantime is not replaced either: *taken.
static cy_status move(bool *taken, const char *from, const char *to, bool there)
{
    *taken = false;
    if (!there && cy_io_rename_noreplace(from, to) == 0) return CY_OK;
    if (!there && errno == EEXIST) {
        *taken = true;
        return CY_OK;
    }
    // Some file systems know only the plain call.
    if (!there && errno != EINVAL && errno != ENOSYS) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", from, to);
    }
    if (cy_io_rename(from, to) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", from, to);
    return CY_OK;
}

cy_status cy_output_write(
    const char *path, const cy_output_kind *kind, const void *bytes, size_t count)
{
    const size_t tail = count < TAIL ? count : TAIL;
    const ends made = {bytes, count < CY_OUTPUT_HEAD ? count : CY_OUTPUT_HEAD,
        (const char *)bytes + (count - tail), tail};
    CY_ASSERT(is_of_kind(kind, &made)); // or it could not be replaced the next time
    bool there, taken = false;
    CY_TRY(look_at_place(&there, path, kind));
    cy_text beside = {0};
    cy_status status = cy_file_write_temporary(&beside, path, bytes, count);
    if (status == CY_OK) {
        do {
            status = look_at_place(&there, path, kind);
            if (status == CY_OK) status = move(&taken, beside.bytes, path, there);
        } while (status == CY_OK && taken);
        if (status != CY_OK) {
            cy_io_unlink(beside.bytes);
        } else {
            status = cy_folder_sync_above(path);
        }
    }
    cy_text_free(&beside);
    return status;
}
