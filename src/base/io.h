// base/io.h: the system's calls on files and folders, one function for each.
//
// All readers and writers of the program come through here: a thread that has an activity
// (base/activity.h) shows each call there, so that who waits for it knows that it lives and what it
// does; and tests put faults in their place, see docs/howto/testing.md. Arguments, results and
// errno are the system's; files are made with mode 0666, folders with 0777. A descriptor is the
// caller's to close. What needs no disk (lseek, fcntl, closedir) is called directly.

#ifndef CY_BASE_IO_H
#define CY_BASE_IO_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

int cy_io_open(const char *path, int flags);
int cy_io_open_at(int folder, const char *name, int flags);
int cy_io_close(int fd);

ssize_t cy_io_read(int fd, void *bytes, size_t count);
ssize_t cy_io_pread(int fd, void *bytes, size_t count, int64_t offset);
ssize_t cy_io_preadv(int fd, const struct iovec *parts, int count, int64_t offset);

ssize_t cy_io_write(int fd, const void *bytes, size_t count);
ssize_t cy_io_writev(int fd, const struct iovec *parts, int count);
ssize_t cy_io_pwrite(int fd, const void *bytes, size_t count, int64_t offset);
int cy_io_truncate(int fd, int64_t bytes);
int cy_io_allocate(int fd, int64_t bytes); // fallocate from the start of the file

int cy_io_sync(int fd);
int cy_io_begin_sync(int fd, int64_t offset, int64_t bytes); // a hint: does not wait

// flock, which does not wait.
int cy_io_lock(int fd, int operation);

// MAP_FAILED as in mmap; for reading, from the start of the file. A page is read when it is looked
// at first: who looks at many shows that (cy_activity_begin).
void *cy_io_map(size_t bytes, int flags, int fd);
int cy_io_unmap(void *map, size_t bytes);

int cy_io_rename(const char *from, const char *to);
int cy_io_rename_noreplace(const char *from, const char *to); // EEXIST where there is a `to`
int cy_io_exchange(const char *one, const char *other);       // both are there and change names
int cy_io_link(const char *from, const char *to); // to the file, where `from` is a symlink
int cy_io_unlink(const char *path);
int cy_io_unlink_at(int folder, const char *name);
int cy_io_make_folder(const char *path);
int cy_io_remove_folder(const char *path);

int cy_io_stat(const char *path, struct stat *info);
int cy_io_lstat(const char *path, struct stat *info);
int cy_io_fstat(int fd, struct stat *info);
int cy_io_access(const char *path, int mode);
int cy_io_access_at(int folder, const char *name, int mode);

DIR *cy_io_open_folder(const char *path);
// NULL with errno 0 at the end; with another one where the folder cannot be read further.
const struct dirent *cy_io_next_entry(DIR *folder);

#endif
