// Makes the system's calls on files and folders, and shows each in the activity of the thread.
#define _GNU_SOURCE
#include "base/io.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- activity

#define NAME_BYTES (CY_ACTIVITY_NAME_WORDS * sizeof(uint64_t))

static _Thread_local cy_activity *shown;
static _Thread_local int depth; // of nested begins

cy_activity *cy_activity_attach(cy_activity *activity)
{
    CY_ASSERT(depth == 0);
    cy_activity *before = shown;
    shown = activity;
    return before;
}

// Only this thread writes the counter, so a load and a store need not be one atomic operation.
static void advance(cy_activity *activity)
{
    const uint64_t count = atomic_load_explicit(&activity->count, memory_order_relaxed);
    atomic_store_explicit(&activity->count, count + 1, memory_order_release);
}

static void show_name(cy_activity *activity, const char *path)
{
    uint64_t words[CY_ACTIVITY_NAME_WORDS] = {0};
    const size_t length = strlen(path);
    const size_t kept = length < NAME_BYTES ? length : NAME_BYTES;
    memcpy(words, path + length - kept, kept);
    for (int i = 0; i < CY_ACTIVITY_NAME_WORDS; i++)
        atomic_store_explicit(&activity->name[i], words[i], memory_order_relaxed);
}

void cy_activity_begin(cy_activity_kind kind, const char *path, int descriptor)
{
    if (shown == NULL) return;
    if (depth++ == 0) {
        if (path != NULL) show_name(shown, path);
        atomic_store_explicit(
            &shown->descriptor, path != NULL ? -1 : descriptor, memory_order_relaxed);
        atomic_store_explicit(&shown->since_ns, cy_clock_ns(), memory_order_relaxed);
        atomic_store_explicit(&shown->kind, (int)kind, memory_order_release);
    }
    advance(shown);
}

void cy_activity_end(void)
{
    if (shown == NULL) return;
    CY_ASSERT(depth > 0);
    if (--depth == 0) atomic_store_explicit(&shown->kind, CY_ACTIVITY_NONE, memory_order_release);
    advance(shown);
}

static const char *doing(int kind)
{
    static const char *const words[] = {
        [CY_ACTIVITY_OPEN] = "opening",
        [CY_ACTIVITY_READ] = "reading",
        [CY_ACTIVITY_WRITE] = "writing",
        [CY_ACTIVITY_SYNC] = "syncing",
        [CY_ACTIVITY_CLOSE] = "closing",
        [CY_ACTIVITY_RENAME] = "renaming",
        [CY_ACTIVITY_REMOVE] = "removing",
        [CY_ACTIVITY_MKDIR] = "making",
        [CY_ACTIVITY_STAT] = "looking at",
        [CY_ACTIVITY_WAIT] = "waiting for",
    };
    return words[kind];
}

// The last part of a path.
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void cy_activity_describe(const cy_activity *activity, int process, char *text, size_t bytes)
{
    const int kind = atomic_load(&activity->kind);
    text[0] = '\0';
    if (kind == CY_ACTIVITY_NONE) return;
    char path[4096] = "";
    const int descriptor = atomic_load_explicit(&activity->descriptor, memory_order_relaxed);
    if (descriptor >= 0) {
        char link[64];
        snprintf(link, sizeof(link), "/proc/%d/fd/%d", process, descriptor);
        const ssize_t length = readlink(link, path, sizeof(path) - 1);
        path[length > 0 ? length : 0] = '\0';
        // The kernel marks a file that was unlinked, for example by another rank that cleans up.
        char *mark = strstr(path, " (deleted)");
        if (mark != NULL && mark[strlen(" (deleted)")] == '\0') *mark = '\0';
    } else {
        uint64_t words[CY_ACTIVITY_NAME_WORDS];
        for (int i = 0; i < CY_ACTIVITY_NAME_WORDS; i++)
            words[i] = atomic_load_explicit(&activity->name[i], memory_order_relaxed);
        memcpy(path, words, sizeof(words));
        path[sizeof(words)] = '\0';
    }
    const int64_t since_ns = atomic_load_explicit(&activity->since_ns, memory_order_relaxed);
    snprintf(text, bytes, "%s %s for %.0f s", doing(kind),
        path[0] != '\0' ? last_part(path) : "a file", (double)(cy_clock_ns() - since_ns) * 1e-9);
}

// ---- calls

#define FILE_MODE   0666
#define FOLDER_MODE 0777

// Makes a call between a begin and an end of the activity, and returns its result.
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
