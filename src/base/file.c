#define _GNU_SOURCE
#include "base/file.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool cy_path_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool cy_path_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool cy_path_is_empty_folder(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return false;
    DIR *folder = opendir(path);
    if (folder == NULL) return false;
    int entries = 0;
    while (readdir(folder) != NULL)
        entries++;
    closedir(folder);
    return entries <= 2; // "." and ".."
}

cy_status cy_file_read(cy_text *text, const char *path, size_t limit)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "open %s", path);
    cy_status status = CY_OK;
    char piece[65536];
    for (;;) {
        const ssize_t got = read(fd, piece, sizeof(piece));
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
    close(fd);
    if (status == CY_OK) status = cy_text_add_bytes(text, "", 0); // an empty file is "", not NULL
    if (status != CY_OK) cy_text_free(text);
    return status;
}

size_t cy_file_read_some(const char *path, char *bytes, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    size_t count = 0;
    while (count + 1 < room) {
        const ssize_t got = read(fd, bytes + count, room - 1 - count);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        count += (size_t)got;
    }
    close(fd);
    bytes[count] = '\0';
    return count;
}

static cy_status write_all(int fd, const char *path, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t put = write(fd, bytes, count);
        if (put < 0) {
            if (errno == EINTR) continue;
            return CY_FAIL_ERRNO(CY_ERR_IO, "write %s", path);
        }
        bytes += put;
        count -= (size_t)put;
    }
    if (fsync(fd) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", path);
    return CY_OK;
}

cy_status cy_file_write(const char *path, const void *bytes, size_t count)
{
    cy_text beside = {0};
    if (path[0] == '\0') return CY_FAIL(CY_ERR_REQUEST, "\"\" is not a place for a file");
    CY_TRY(cy_text_add(&beside, "%s.%ld.tmp", path, (long)getpid()));
    cy_status status;
    const int fd = open(beside.bytes, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "create %s", beside.bytes);
        goto free_name;
    }
    status = write_all(fd, path, bytes, count);
    close(fd);
    if (status == CY_OK && rename(beside.bytes, path) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", beside.bytes, path);
    }
    if (status != CY_OK) unlink(beside.bytes);
free_name:
    cy_text_free(&beside);
    return status;
}

cy_status cy_folder_make(const char *path)
{
    char *copy = NULL;
    CY_TRY(cy_memory_copy_text(&copy, path));
    cy_status status = CY_OK;
    for (char *slash = copy;; slash++) {
        if (*slash != '/' && *slash != '\0') continue;
        const char kept = *slash;
        *slash = '\0';
        if (copy[0] != '\0' && mkdir(copy, 0777) != 0 && errno != EEXIST) {
            status = CY_FAIL_ERRNO(CY_ERR_IO, "make folder %s", copy);
            break;
        }
        *slash = kept;
        if (kept == '\0') break;
    }
    if (status == CY_OK && !cy_path_is_folder(path)) {
        status = CY_FAIL(CY_ERR_IO, "%s is there and is not a folder", path);
    }
    cy_memory_free(copy);
    return status;
}

cy_status cy_mapping_open(cy_mapping *mapping, const char *path)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "open %s", path);
    cy_status status = CY_OK;
    if (fstat(fd, &info) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = CY_FAIL(CY_ERR_IO, "%s is not a file", path);
    } else if (info.st_size == 0) {
        *mapping = (cy_mapping){0};
    } else {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) {
            status = CY_FAIL_ERRNO(CY_ERR_IO, "map %s", path);
        } else {
            *mapping = (cy_mapping){.bytes = bytes, .count = (size_t)info.st_size};
        }
    }
    close(fd); // a mapping keeps the file alive
    return status;
}

void cy_mapping_close(cy_mapping *mapping)
{
    if (mapping->bytes != NULL) munmap(cy_memory_writable(mapping->bytes), mapping->count);
    *mapping = (cy_mapping){0};
}
