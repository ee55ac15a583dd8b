// disk/under_io.h: included in front of src/base/io.c, whose calls on files go to disk/calls.c.

#ifndef CY_TESTS_UNDER_IO_H
#define CY_TESTS_UNDER_IO_H

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int disk_do_open(int folder, const char *path, int flags, mode_t mode);
int disk_do_close(int fd);
ssize_t disk_do_read(int fd, void *bytes, size_t count, off_t offset);
ssize_t disk_do_readv(int fd, const struct iovec *parts, int count, off_t offset);
ssize_t disk_do_write(int fd, const void *bytes, size_t count, off_t offset);
ssize_t disk_do_writev(int fd, const struct iovec *parts, int count);
int disk_do_resize(int fd, off_t bytes, bool allocate);
int disk_do_sync(int fd);
int disk_do_begin_sync(int fd, off_t offset, off_t bytes);
int disk_do_lock(int fd, int operation);
void *disk_do_map(size_t bytes, int protection, int flags, int fd, off_t offset);
int disk_do_rename(const char *from, const char *to, unsigned flags);
int disk_do_link(const char *from, const char *to);
int disk_do_unlink(int folder, const char *path);
int disk_do_mkdir(const char *path, mode_t mode);
int disk_do_rmdir(const char *path);
int disk_do_stat(const char *path, struct stat *info, bool link);
int disk_do_fstat(int fd, struct stat *info);
int disk_do_access(const char *path, int mode);
DIR *disk_do_opendir(const char *path);
struct dirent *disk_do_readdir(DIR *folder);

#ifndef CY_TESTS_DISK_CALLS
// A read or write without an offset goes on where the last one ended.
#define open(path, flags, mode)           disk_do_open(AT_FDCWD, path, flags, mode)
#define openat(folder, path, flags, mode) disk_do_open(folder, path, flags, mode)
#define close(fd)                         disk_do_close(fd)
#define read(fd, bytes, count)            disk_do_read(fd, bytes, count, -1)
#define pread(fd, bytes, count, at)       disk_do_read(fd, bytes, count, at)
#define preadv(fd, parts, count, at)      disk_do_readv(fd, parts, count, at)
#define write(fd, bytes, count)           disk_do_write(fd, bytes, count, -1)
#define pwrite(fd, bytes, count, at)      disk_do_write(fd, bytes, count, at)
#define writev(fd, parts, count)          disk_do_writev(fd, parts, count)
#define ftruncate(fd, bytes)              disk_do_resize(fd, bytes, false)
#define fallocate(fd, mode, first, bytes) disk_do_resize(fd, bytes, true)
#define fsync(fd)                         disk_do_sync(fd)
#define sync_file_range(fd, at, count, f) disk_do_begin_sync(fd, at, count)
#define flock(fd, operation)              disk_do_lock(fd, operation)
#define mmap(at, bytes, prot, f, fd, off) disk_do_map(bytes, prot, f, fd, off)
#define rename(from, to)                  disk_do_rename(from, to, 0)
#define renameat2(a, from, b, to, flags)  disk_do_rename(from, to, flags)
#define linkat(a, from, b, to, flags)     disk_do_link(from, to)
#define unlink(path)                      disk_do_unlink(AT_FDCWD, path)
#define unlinkat(folder, path, flags)     disk_do_unlink(folder, path)
#define mkdir(path, mode)                 disk_do_mkdir(path, mode)
#define rmdir(path)                       disk_do_rmdir(path)
#define stat(path, info)                  disk_do_stat(path, info, false)
#define lstat(path, info)                 disk_do_stat(path, info, true)
#define fstat(fd, info)                   disk_do_fstat(fd, info)
#define access(path, mode)                disk_do_access(path, mode)
#define opendir(path)                     disk_do_opendir(path)
#define readdir(folder)                   disk_do_readdir(folder)
#endif

#endif
