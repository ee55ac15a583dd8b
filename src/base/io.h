// base/io.h: the system's calls on files and folders, one function for each.
//
// All reads and writes of the program go through these functions. A thread that has an activity
// shows each call there, so that a rank that waits for it sees that it is alive and what it does.
// Tests replace the calls by ones that fail (docs/howto/testing.md). Arguments, results and errno
// are the system's; files are made with mode 0666, folders with 0777. The caller closes a
// descriptor. Calls that need no disk (lseek, fcntl, closedir) are made directly.

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

// ---- activity: the call on a file that a thread is in
//
// A call on a file may last long. An activity lies in memory that other threads, or other processes
// of the machine, read. A rank's thread shows there every call on a file that it makes. One thread
// writes an activity; any thread may read it.

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
    CY_ACTIVITY_STAT, // reads the size of a file, the names in a folder
    CY_ACTIVITY_WAIT, // waits for another thread of the process, which is in such a call
} cy_activity_kind;

// All zeros: no call.
typedef struct cy_activity {
    _Atomic uint64_t count;   // of begins and ends: it changes as long as calls return
    _Atomic int64_t since_ns; // of cy_clock_ns, at the last begin
    _Atomic int kind;
    _Atomic int descriptor;                        // of the file; -1: it is known by its name
    _Atomic uint64_t name[CY_ACTIVITY_NAME_WORDS]; // the last bytes of a path, padded with zeros
} cy_activity;

// From now on this thread shows its calls in `activity` (borrowed; NULL: it shows none). Returns
// the activity that it used before.
cy_activity *cy_activity_attach(cy_activity *activity);

// Begin and end of a call. `path` names the file, or, where it is NULL, the descriptor. A call
// inside another is counted but not shown. Both keep errno.
void cy_activity_begin(cy_activity_kind kind, const char *path, int descriptor);
void cy_activity_end(void);

// Whether the thread is in a call.
static inline bool cy_activity_in_progress(const cy_activity *activity)
{
    return atomic_load(&activity->kind) != CY_ACTIVITY_NONE;
}

// Describes the call in a buffer, such as "syncing weights-00001.safetensors for 1800 s"; ""
// without a call. `process` is the one that owns the descriptor.
void cy_activity_describe(const cy_activity *activity, int process, char *text, size_t bytes);

// ---- calls

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

// Maps the start of a file for reading; MAP_FAILED as in mmap. The first access to a page reads it
// from the disk, so a thread that accesses many pages shows that with cy_activity_begin.
void *cy_io_map(size_t bytes, int flags, int fd);
int cy_io_unmap(void *map, size_t bytes);

int cy_io_rename(const char *from, const char *to);
int cy_io_rename_noreplace(const char *from, const char *to); // EEXIST where there is a `to`
int cy_io_exchange(const char *one, const char *other);       // both exist and swap names
int cy_io_link(const char *from, const char *to); // to the target, where `from` is a symlink
int cy_io_unlink(const char *path);
int cy_io_unlink_at(int folder, const char *name);
int cy_io_make_folder(const char *path);
int cy_io_remove_folder(const char *path);

int cy_io_stat(const char *path, struct stat *info);
int cy_io_lstat(const char *path, struct stat *info);
int cy_io_fstat(int fd, struct stat *info);
int cy_io_access(const char *path, int mode);

DIR *cy_io_open_folder(const char *path);
// NULL with errno 0 at the end; NULL with another errno where the folder cannot be read further.
const struct dirent *cy_io_next_entry(DIR *folder);

#endif
