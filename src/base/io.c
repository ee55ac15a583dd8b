// The system's calls on files and folders, each shown as what this thread does.
#define _GNU_SOURCE
#include "base/io.h"

#include "base/activity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_MODE   0666
#define FOLDER_MODE 0777

// Returns what `call` does, made between a begin and an end.
#define SHOWN(type, kind, path, fd, call)                                                          \
    do {                                                                                           \
        cy_activity_begin((kind), (path), fd);                                                     \
        const type result = (call);                                                                \
        cy_activity_end();                                                                         \
        return result;                                                                             \
    } while (0)

int cy_io_open(const char *path, int flags)
{
    SHOWN(int, CY_ACTIVITY_OPEN, path, -1, open(path, flags, FILE_MODE));
}

int cy_io_open_at(int folder, const char *name, int flags)
{
    SHOWN(int, CY_ACTIVITY_OPEN, name, -1, openat(folder, name, flags, FILE_MODE));
}

int cy_io_close(int fd)
{
    SHOWN(int, CY_ACTIVITY_CLOSE, NULL, fd, close(fd));
}

ssize_t cy_io_read(int fd, void *bytes, size_t count)
{
    SHOWN(ssize_t, CY_ACTIVITY_READ, NULL, fd, read(fd, bytes, count));
}

ssize_t cy_io_pread(int fd, void *bytes, size_t count, int64_t offset)
{
    SHOWN(ssize_t, CY_ACTIVITY_READ, NULL, fd, pread(fd, bytes, count, (off_t)offset));
}

ssize_t cy_io_preadv(int fd, const struct iovec *parts, int count, int64_t offset)
{
    SHOWN(ssize_t, CY_ACTIVITY_READ, NULL, fd, preadv(fd, parts, count, (off_t)offset));
}

ssize_t cy_io_write(int fd, const void *bytes, size_t count)
{
    SHOWN(ssize_t, CY_ACTIVITY_WRITE, NULL, fd, write(fd, bytes, count));
}

ssize_t cy_io_writev(int fd, const struct iovec *parts, int count)
{
    SHOWN(ssize_t, CY_ACTIVITY_WRITE, NULL, fd, writev(fd, parts, count));
}

ssize_t cy_io_pwrite(int fd, const void *bytes, size_t count, int64_t offset)
{
    SHOWN(ssize_t, CY_ACTIVITY_WRITE, NULL, fd, pwrite(fd, bytes, count, (off_t)offset));
}

int cy_io_truncate(int fd, int64_t bytes)
{
    SHOWN(int, CY_ACTIVITY_WRITE, NULL, fd, ftruncate(fd, (off_t)bytes));
}

int cy_io_allocate(int fd, int64_t bytes)
{
    SHOWN(int, CY_ACTIVITY_WRITE, NULL, fd, fallocate(fd, 0, 0, (off_t)bytes));
}

int cy_io_sync(int fd)
{
    SHOWN(int, CY_ACTIVITY_SYNC, NULL, fd, fsync(fd));
}

int cy_io_begin_sync(int fd, int64_t offset, int64_t bytes)
{
    SHOWN(int, CY_ACTIVITY_SYNC, NULL, fd,
        sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE));
}

int cy_io_lock(int fd, int operation)
{
    SHOWN(int, CY_ACTIVITY_OPEN, NULL, fd, flock(fd, operation | LOCK_NB));
}

void *cy_io_map(size_t bytes, int flags, int fd)
{
    cy_activity_begin(CY_ACTIVITY_OPEN, NULL, fd);
    void *map = mmap(NULL, bytes, PROT_READ, flags, fd, 0);
    cy_activity_end();
    return map;
}

int cy_io_unmap(void *map, size_t bytes)
{
    return munmap(map, bytes);
}

int cy_io_rename(const char *from, const char *to)
{
    SHOWN(int, CY_ACTIVITY_RENAME, from, -1, rename(from, to));
}

int cy_io_rename_noreplace(const char *from, const char *to)
{
    SHOWN(int, CY_ACTIVITY_RENAME, from, -1,
        renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE));
}

int cy_io_exchange(const char *one, const char *other)
{
    SHOWN(int, CY_ACTIVITY_RENAME, one, -1,
        renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE));
}

int cy_io_link(const char *from, const char *to)
{
    SHOWN(int, CY_ACTIVITY_MKDIR, to, -1, linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
}

int cy_io_unlink(const char *path)
{
    SHOWN(int, CY_ACTIVITY_REMOVE, path, -1, unlink(path));
}

int cy_io_unlink_at(int folder, const char *name)
{
    SHOWN(int, CY_ACTIVITY_REMOVE, name, -1, unlinkat(folder, name, 0));
}

int cy_io_make_folder(const char *path)
{
    SHOWN(int, CY_ACTIVITY_MKDIR, path, -1, mkdir(path, FOLDER_MODE));
}

int cy_io_remove_folder(const char *path)
{
    SHOWN(int, CY_ACTIVITY_REMOVE, path, -1, rmdir(path));
}

int cy_io_stat(const char *path, struct stat *info)
{
    SHOWN(int, CY_ACTIVITY_STAT, path, -1, stat(path, info));
}

int cy_io_lstat(const char *path, struct stat *info)
{
    SHOWN(int, CY_ACTIVITY_STAT, path, -1, lstat(path, info));
}

int cy_io_fstat(int fd, struct stat *info)
{
    SHOWN(int, CY_ACTIVITY_STAT, NULL, fd, fstat(fd, info));
}

int cy_io_access(const char *path, int mode)
{
    SHOWN(int, CY_ACTIVITY_STAT, path, -1, access(path, mode));
}

int cy_io_access_at(int folder, const char *name, int mode)
{
    SHOWN(int, CY_ACTIVITY_STAT, name, -1, faccessat(folder, name, mode, 0));
}

DIR *cy_io_open_folder(const char *path)
{
    cy_activity_begin(CY_ACTIVITY_STAT, path, -1);
    DIR *folder = opendir(path);
    cy_activity_end();
    return folder;
}

const struct dirent *cy_io_next_entry(DIR *folder)
{
    cy_activity_begin(CY_ACTIVITY_STAT, NULL, dirfd(folder));
    errno = 0;
    const struct dirent *entry = readdir(folder);
    cy_activity_end();
    return entry;
}
