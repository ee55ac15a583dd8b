// A library to be loaded in front of the C library (LD_PRELOAD): a disk that fails for some files,
// and a clock that is set.
//
// CY_ERROR_NAME=PART is a part of the paths of those files and CY_ERROR_CODE=NUMBER the errno of
// calls that fail on them: writes and fsync, with CY_ERROR_READS=yes reads too. CY_ERROR_AFTER=N
// calls of each process succeed before (0) and CY_ERROR_COUNT=N fail (all); each that fails adds a
// line to CY_ERROR_MARK.
//
// CY_CLOCK_STEP_S=SECONDS is added to the time of day CY_CLOCK_AFTER_MS after the first look at it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

static void tell(const char *path)
{
    char line[4200];
    const char *mark = getenv("CY_ERROR_MARK");
    const int fd = mark != NULL ? open(mark, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    const int length = snprintf(line, sizeof(line), "%s\n", path);
    if (syscall(SYS_write, fd, line, (size_t)length) != length) _exit(127);
    close(fd);
}

// Whether this call on a file fails, with errno set.
static int fails(int fd)
{
    static atomic_long calls;
    const char *part = getenv("CY_ERROR_NAME");
    char link[64], path[4096] = "";
    if (part == NULL) return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0 || strstr(path, part) == NULL) return 0;
    const long call = atomic_fetch_add(&calls, 1) - number("CY_ERROR_AFTER", 0);
    const long count = number("CY_ERROR_COUNT", 0);
    if (call < 0 || (count > 0 && call >= count)) return 0;
    tell(path);
    errno = (int)number("CY_ERROR_CODE", EIO);
    return 1;
}

static int fails_reading(int fd)
{
    return getenv("CY_ERROR_READS") != NULL && fails(fd);
}

PUBLIC ssize_t write(int fd, const void *bytes, size_t count)
{
    return fails(fd) ? -1 : syscall(SYS_write, fd, bytes, count);
}

PUBLIC ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return fails(fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, offset);
}

PUBLIC ssize_t read(int fd, void *bytes, size_t count)
{
    return fails_reading(fd) ? -1 : syscall(SYS_read, fd, bytes, count);
}

PUBLIC ssize_t pread(int fd, void *bytes, size_t count, off_t offset)
{
    return fails_reading(fd) ? -1 : syscall(SYS_pread64, fd, bytes, count, offset);
}

PUBLIC int fsync(int fd)
{
    return fails(fd) ? -1 : (int)syscall(SYS_fsync, fd);
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
    const long step = number("CY_CLOCK_STEP_S", 0);
    if (step == 0) return 0;
    const long long now = now_ns(CLOCK_MONOTONIC);
    long long none = 0;
    atomic_compare_exchange_strong(&first, &none, now);
    return now - atomic_load(&first) >= number("CY_CLOCK_AFTER_MS", 0) * 1000000LL ? step : 0;
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
