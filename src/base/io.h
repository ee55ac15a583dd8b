// base/io.h: the system's calls on files and folders, one function for each.
//
// All readers and writers of the program come through here: a thread that has an activity
// (base/io.h) shows each call there, so that who waits for it knows that it lives and what it
// does; and tests put faults in their place, see docs/howto/testing.md. Arguments, results and
// errno are the system's; files are made with mode 0666, folders with 0777. A descriptor is the
// caller's to close. What needs no disk (lseek, fcntl, closedir) is called directly.

#ifndef CY_BASE_IO_H
#define CY_BASE_IO_H

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

// ---- activity
//
// what a thread does that may last long without a word to anybody: calls on files.
//
// An activity is a place that others read: in the memory of the process, or in memory that the
// processes of a machine share. A rank's thread is given one and shows there every call on a file
// that it makes (base/io.h). One thread writes an activity, everybody reads it.

#define CY_ACTIVITY_NAME_WORDS 8

typedef enum cy_activity_kind {
    CY_ACTIVITY_NONE,
    CY_ACTIVITY_OPEN,
    CY_ACTIVITY_READ,
    CY_ACTIVITY_WRITE,
    CY_ACTIVITY_SYNC,
    CY_ACTIVITY_CLOSE,
    CY_ACTIVITY_RENAME,
    CY_ACTIVITY_REMOVE,
    CY_ACTIVITY_MKDIR,
    CY_ACTIVITY_STAT, // at a file's size, a folder's names
    CY_ACTIVITY_WAIT, // for another thread of the process, which does any of these
} cy_activity_kind;

// All zeros: nothing is done.
typedef struct cy_activity {
    _Atomic uint64_t count;   // of begins and ends: it changes as long as calls come back
    _Atomic int64_t since_ns; // of cy_clock_ns, at the last begin
    _Atomic int kind;
    _Atomic int descriptor;                        // that the call is on; -1: the name says it
    _Atomic uint64_t name[CY_ACTIVITY_NAME_WORDS]; // the last bytes of a path, padded with zeros
} cy_activity;

// This thread shows what it does on `activity` (borrowed; NULL: nowhere) from now on. Returns where
// it did before.
cy_activity *cy_activity_attach(cy_activity *activity);

// Around what the thread does with a file, which is named by `path` or, where that is NULL, by its
// descriptor. One inside of another is not shown, but counts. They keep errno.
void cy_activity_begin(cy_activity_kind kind, const char *path, int descriptor);
void cy_activity_end(void);

// Whether something is being done.
static inline bool cy_activity_in_progress(const cy_activity *activity)
{
    return atomic_load(&activity->kind) != CY_ACTIVITY_NONE;
}

// "syncing weights-00001.safetensors for 1800 s" into a buffer; "" where nothing is being done.
// `process` is whose descriptors these are.
void cy_activity_describe(const cy_activity *activity, int process, char *text, size_t bytes);

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
