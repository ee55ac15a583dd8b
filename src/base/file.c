// Reads and writes whole files, makes and removes folders, and reads files at any place.
#define _GNU_SOURCE
#include "base/file.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

bool cy_path_exists(const char *path)
{
    struct stat info;
    return cy_io_stat(path, &info) == 0;
}

bool cy_path_is_folder(const char *path)
{
    struct stat info;
    return cy_io_stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static cy_status look(bool *there, bool *folder, const char *path)
{
    struct stat info;
    *there = *folder = false;
    if (cy_io_stat(path, &info) == 0) {
        *there = true;
        *folder = S_ISDIR(info.st_mode);
        return CY_OK;
    }
    if (errno == ENOENT || errno == ENOTDIR) return CY_OK;
    return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
}

cy_status cy_path_find(bool *there, const char *path)
{
    bool folder;
    return look(there, &folder, path);
}

cy_status cy_path_find_folder(bool *there, const char *path)
{
    bool any;
    return look(&any, there, path);
}

cy_status cy_folder_next(const char **name, DIR *folder, const char *path)
{
    const struct dirent *entry;
    do {
        entry = cy_io_next_entry(folder);
    } while (
        entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    if (entry == NULL && errno != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read folder %s", path);
    *name = entry != NULL ? entry->d_name : NULL;
    return CY_OK;
}

cy_status cy_path_find_empty_folder(bool *empty, const char *path)
{
    struct stat info;
    const char *name = NULL;
    *empty = false;
    if (cy_io_lstat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return CY_OK;
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    if (!S_ISDIR(info.st_mode)) return CY_OK;
    DIR *folder = cy_io_open_folder(path);
    if (folder == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", path);
    const cy_status status = cy_folder_next(&name, folder, path);
    closedir(folder);
    *empty = status == CY_OK && name == NULL;
    return status;
}

static const char *kind_name(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

static cy_status check_kind(const char *path, mode_t mode, bool stream)
{
    if (S_ISREG(mode) || (stream && (S_ISFIFO(mode) || S_ISSOCK(mode)))) return CY_OK;
    return CY_FAIL(CY_ERR_IO, "%s is %s, not a regular file", path, kind_name(mode));
}

// Without O_NONBLOCK, opening a pipe without a writer never returns.
static int open_at_once(const char *path)
{
    struct stat info;
    const int fd = cy_io_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    // A regular file with a lease is not opened at once: a blocking open waits until the holder has
    // given up the lease.
    if (fd < 0 && errno == EWOULDBLOCK && cy_io_stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        return cy_io_open(path, O_RDONLY | O_CLOEXEC);
    }
    return fd;
}

static cy_status open_to_read(int *fd, const char *path, bool stream)
{
    struct stat info;
    // Opening a pipe waits for its writer, so the kind of file is known before it is opened.
    if (stream && cy_io_stat(path, &info) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "open %s", path);
    const bool waits = stream && S_ISFIFO(info.st_mode);
    const int made = waits ? cy_io_open(path, O_RDONLY | O_CLOEXEC) : open_at_once(path);
    if (made < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "open %s", path);
    const cy_status status = cy_io_fstat(made, &info) != 0
        ? CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", path)
        : check_kind(path, info.st_mode, stream);
    if (status != CY_OK) {
        cy_io_close(made);
        return status;
    }
    *fd = made;
    return CY_OK;
}

cy_status cy_file_open(int *fd, const char *path)
{
    return open_to_read(fd, path, false);
}

cy_status cy_file_open_stream(int *fd, const char *path)
{
    return open_to_read(fd, path, true);
}

// The system assigns the lowest free descriptor, so a high one means that many are in use.
bool cy_fd_is_scarce(int fd)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
    return (rlim_t)fd >= limit.rlim_cur / 2;
}

cy_status cy_file_read(cy_text *text, const char *path, size_t limit)
{
    int fd = -1;
    CY_TRY(cy_file_open(&fd, path));
    cy_status status = CY_OK;
    char piece[65536];
    for (;;) {
        const ssize_t got = cy_io_read(fd, piece, sizeof(piece));
        if (got == 0) break;
        if (got < 0) {
            if (errno == EINTR) continue;
            status = CY_FAIL_ERRNO(CY_ERR_IO, "read %s", path);
            break;
        }
        if (text->length + (size_t)got > limit) {
            status = CY_FAIL(CY_ERR_CORRUPT, "%s: more than %zu bytes", path, limit);
            break;
        }
        status = cy_text_add_bytes(text, piece, (size_t)got);
        if (status != CY_OK) break;
    }
    cy_io_close(fd);
    if (status == CY_OK) status = cy_text_add_bytes(text, "", 0); // an empty file is "", not NULL
    if (status != CY_OK) cy_text_free(text);
    return status;
}

size_t cy_file_read_some(const char *path, char *bytes, size_t room)
{
    const int fd = open_at_once(path);
    if (fd < 0) return 0;
    size_t count = 0;
    while (count + 1 < room) {
        const ssize_t got = cy_io_read(fd, bytes + count, room - 1 - count);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        count += (size_t)got;
    }
    cy_io_close(fd);
    bytes[count] = '\0';
    return count;
}

static cy_status write_all(int fd, const char *path, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t put = cy_io_write(fd, bytes, count);
        if (put < 0) {
            if (errno == EINTR) continue;
            return CY_FAIL_ERRNO(CY_ERR_IO, "write %s", path);
        }
        bytes += put;
        count -= (size_t)put;
    }
    if (cy_io_sync(fd) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", path);
    return CY_OK;
}

uint64_t cy_file_unique_number(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == (ssize_t)sizeof(number)) return number;
    // The system has no random numbers yet. Threads differ in the addresses of their stacks.
    return (uint64_t)cy_clock_ns() ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)&number << 20;
}

// Makes an unused name in the folder of `path`.
static cy_status temporary_name(cy_text *beside, const char *path)
{
    const char *slash = strrchr(path, '/');
    const int folder = slash != NULL ? (int)(slash + 1 - path) : 0;
    // The temporary name does not contain the file's name, which may have the maximal length.
    return cy_text_add(
        beside, "%.*s.cyclotron-%016" PRIx64 ".tmp", folder, path, cy_file_unique_number());
}

cy_status cy_file_write_temporary(
    cy_text *beside, const char *path, const void *bytes, size_t count)
{
    cy_text made = {0};
    if (path[0] == '\0') return CY_FAIL(CY_ERR_REQUEST, "\"\" is not a place for a file");
    CY_TRY(temporary_name(&made, path));
    const int fd = cy_io_open(made.bytes, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
    cy_status status = CY_OK;
    if (fd < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "create a file beside %s", path);
    } else {
        status = write_all(fd, path, bytes, count);
        cy_io_close(fd);
        if (status != CY_OK) cy_io_unlink(made.bytes);
    }
    if (status == CY_OK) {
        *beside = made;
    } else {
        cy_text_free(&made);
    }
    return status;
}

cy_status cy_file_write_unsynced(const char *path, const void *bytes, size_t count)
{
    cy_text beside = {0};
    struct stat info;
    if (cy_io_lstat(path, &info) != 0) {
        if (errno != ENOENT) return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    } else if (!S_ISREG(info.st_mode)) {
        return CY_FAIL(CY_ERR_IO, "%s is not a regular file: it is not replaced", path);
    }
    cy_status status = CY_OK;
    CY_TRY(cy_file_write_temporary(&beside, path, bytes, count));
    if (cy_io_rename(beside.bytes, path) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", beside.bytes, path);
        cy_io_unlink(beside.bytes);
    }
    cy_text_free(&beside);
    return status;
}

cy_status cy_file_write(const char *path, const void *bytes, size_t count)
{
    CY_TRY(cy_file_write_unsynced(path, bytes, count));
    return cy_folder_sync_above(path);
}

// Whether a path is relative to a working directory that was deleted.
static bool starts_in_deleted_folder(const char *path)
{
    char folder[PATH_MAX];
    return path[0] != '/' && getcwd(folder, sizeof(folder)) == NULL && errno == ENOENT;
}

// The name of a new folder is on the disk only after the folder above it was synced.
static cy_status make_one(const char *path)
{
    if (path[0] == '\0') return CY_OK;
    if (cy_io_make_folder(path) == 0) return cy_folder_sync_above(path);
    if (errno == EEXIST) return CY_OK;
    const cy_status status = CY_FAIL_ERRNO(CY_ERR_IO, "make folder %s", path);
    if (!starts_in_deleted_folder(path)) return status;
    return CY_FAIL(CY_ERR_IO,
        "make folder %s: the working directory, to which the path is relative, was deleted", path);
}

cy_status cy_folder_make(const char *path)
{
    char *copy = NULL;
    bool folder = false;
    CY_TRY(cy_memory_copy_text(&copy, path));
    cy_status status = CY_OK;
    for (char *slash = copy; status == CY_OK; slash++) {
        if (*slash != '/' && *slash != '\0') continue;
        const char kept = *slash;
        *slash = '\0';
        status = make_one(copy);
        *slash = kept;
        if (kept == '\0') break;
    }
    cy_memory_free(copy);
    if (status == CY_OK) status = cy_path_find_folder(&folder, path);
    if (status == CY_OK && !folder) {
        status = cy_path_exists(path)
            ? CY_FAIL(CY_ERR_IO, "%s is there and is not a folder", path)
            : CY_FAIL(CY_ERR_IO, "%s is a symbolic link that leads nowhere", path);
    }
    return status;
}

static cy_status remove_entries(const char *path, DIR *entries)
{
    const char *name = NULL;
    CY_TRY(cy_folder_next(&name, entries, path));
    while (name != NULL) {
        if (cy_io_unlink_at(dirfd(entries), name) != 0 && errno != ENOENT) {
            return CY_FAIL_ERRNO(CY_ERR_IO, "remove %s/%s", path, name);
        }
        CY_TRY(cy_folder_next(&name, entries, path));
    }
    return CY_OK;
}

cy_status cy_folder_remove(const char *path)
{
    struct stat info;
    if (cy_io_lstat(path, &info) != 0) {
        return errno == ENOENT ? CY_OK : CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    // What a link leads to is somebody else's.
    if (!S_ISDIR(info.st_mode)) {
        if (cy_io_unlink(path) == 0 || errno == ENOENT) return CY_OK;
        return CY_FAIL_ERRNO(CY_ERR_IO, "remove %s", path);
    }
    DIR *entries = cy_io_open_folder(path);
    if (entries == NULL && errno == ENOENT) return CY_OK;
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", path);
    const cy_status status = remove_entries(path, entries);
    closedir(entries);
    CY_TRY(status);
    if (cy_io_remove_folder(path) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "remove folder %s", path);
    return CY_OK;
}

cy_status cy_folder_sync(const char *path)
{
    const int fd = cy_io_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", path);
    cy_status status = CY_OK;
    // Some file systems cannot sync a folder and return EINVAL.
    if (cy_io_sync(fd) != 0 && errno != EINVAL) status = CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", path);
    cy_io_close(fd);
    return status;
}

cy_status cy_folder_sync_above(const char *path)
{
    cy_text folder = {0};
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    CY_TRY(cy_text_add(&folder, "%.*s", length > 0 ? (int)length : 1, length > 0 ? path : "."));
    const cy_status status = cy_folder_sync(folder.bytes);
    cy_text_free(&folder);
    return status;
}

// ---- input files

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
        if (all && left == 0) return CY_OK; // also for an empty file, which has no buffer
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
