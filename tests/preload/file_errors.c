// A library to be loaded in front of the C library (LD_PRELOAD): a disk that fails for some files,
// and a clock that is set.
//
// CY_ERROR_NAME=PART is a part of the paths of those files and CY_ERROR_CODE=NUMBER the errno of
// calls that fail on them: what makes files and folders, gives them room, writes them and forces
// them to the disk, with CY_ERROR_READS=yes reads too. CY_ERROR_AFTER=N calls of each process
// succeed before (0) and CY_ERROR_COUNT=N fail (all); each that fails adds a line to CY_ERROR_MARK:
// the call and the path.
//
// CY_CLOCK_STEP_S=SECONDS is added to the time of day CY_CLOCK_AFTER_MS after the first look at it;
// the first look after that adds a line to CY_CLOCK_MARK.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

// Adds a line to the file that the variable `name` names.
static void tell(const char *name, const char *call, const char *path)
{
    char line[4200];
    const char *mark = getenv(name);
    const int fd = mark != NULL
        ? (int)syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600)
        : -1;
    if (fd < 0) return;
    const int length = snprintf(line, sizeof(line), "%s %s\n", call, path);
    if (syscall(SYS_write, fd, line, (size_t)length) != length) _exit(127);
    close(fd);
}

// Whether this call on a path fails, with errno set.
static int fails_at(const char *call, const char *path)
{
    static atomic_long calls;
    const char *part = getenv("CY_ERROR_NAME");
    if (part == NULL || strstr(path, part) == NULL) return 0;
    const long number_of = atomic_fetch_add(&calls, 1) - number("CY_ERROR_AFTER", 0);
    const long count = number("CY_ERROR_COUNT", 0);
    if (number_of < 0 || (count > 0 && number_of >= count)) return 0;
    tell("CY_ERROR_MARK", call, path);
    errno = (int)number("CY_ERROR_CODE", EIO);
    return 1;
}

static int fails(const char *call, int fd)
{
    char link[64], path[4096] = "";
    if (getenv("CY_ERROR_NAME") == NULL) return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    return length > 0 && fails_at(call, path);
}

static int fails_reading(const char *call, int fd)
{
    return getenv("CY_ERROR_READS") != NULL && fails(call, fd);
}

PUBLIC int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if ((flags & O_CREAT) != 0 && fails_at("open", path)) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

PUBLIC int mkdir(const char *path, mode_t mode)
{
    return fails_at("mkdir", path) ? -1 : (int)syscall(SYS_mkdir, path, mode);
}

PUBLIC ssize_t write(int fd, const void *bytes, size_t count)
{
    return fails("write", fd) ? -1 : syscall(SYS_write, fd, bytes, count);
}

PUBLIC ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return fails("writev", fd) ? -1 : syscall(SYS_writev, fd, parts, count);
}

PUBLIC ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return fails("pwrite", fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, offset);
}

PUBLIC int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return fails("fallocate", fd) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

PUBLIC int ftruncate(int fd, off_t bytes)
{
    return fails("ftruncate", fd) ? -1 : (int)syscall(SYS_ftruncate, fd, bytes);
}

PUBLIC ssize_t read(int fd, void *bytes, size_t count)
{
    return fails_reading("read", fd) ? -1 : syscall(SYS_read, fd, bytes, count);
}

PUBLIC ssize_t pread(int fd, void *bytes, size_t count, off_t offset)
{
    return fails_reading("pread", fd) ? -1 : syscall(SYS_pread64, fd, bytes, count, offset);
}

PUBLIC ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
    return fails_reading("preadv", fd) ? -1 : syscall(SYS_preadv, fd, parts, count, offset, 0L);
}

PUBLIC int fsync(int fd)
{
    return fails("fsync", fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

// ---- the time of day

static long long now_ns(clockid_t clock)
{
    struct timespec at;
    if (syscall(SYS_clock_gettime, clock, &at) != 0) _exit(127);
    return (long long)at.tv_sec * 1000000000 + at.tv_nsec;
}

static time_t step_of_clock(void)
{
    static _Atomic long long first;
    static atomic_int told;
    const long step = number("CY_CLOCK_STEP_S", 0);
    if (step == 0) return 0;
    const long long now = now_ns(CLOCK_MONOTONIC);
    long long none = 0;
    atomic_compare_exchange_strong(&first, &none, now);
    if (now - atomic_load(&first) < number("CY_CLOCK_AFTER_MS", 0) * 1000000LL) return 0;
    if (!atomic_exchange(&told, 1)) tell("CY_CLOCK_MARK", "clock", program_invocation_short_name);
    return step;
}

PUBLIC int clock_gettime(clockid_t clock, struct timespec *at)
{
    const int status = (int)syscall(SYS_clock_gettime, clock, at);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += step_of_clock();
    return status;
}

PUBLIC int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    (void)zone;
    const long long now = now_ns(CLOCK_REALTIME);
    at->tv_sec = (time_t)(now / 1000000000) + step_of_clock();
    at->tv_usec = now % 1000000000 / 1000;
    return 0;
}

PUBLIC time_t time(time_t *at)
{
    const time_t now = (time_t)(now_ns(CLOCK_REALTIME) / 1000000000) + step_of_clock();
    if (at != NULL) *at = now;
    return now;
}
