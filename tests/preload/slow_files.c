// A library to be loaded in front of the C library (LD_PRELOAD): a disk that is slow for some
// files.
//
// CY_SLOW_NAMES=PART[:PART...] are parts of the paths of those files; each fsync of one of them
// takes CY_SLOW_MS milliseconds, before it does what it does, and adds a line to CY_SLOW_MARK.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int syncer(int fd);

// Whether one of the parts is in the path.
static int is_slow(const char *path, const char *parts)
{
    while (parts != NULL && *parts != '\0') {
        char part[256];
        const size_t length = strcspn(parts, ":");
        snprintf(part, sizeof(part), "%.*s", (int)length, parts);
        if (part[0] != '\0' && strstr(path, part) != NULL) return 1;
        parts += length + (parts[length] == ':');
    }
    return 0;
}

static void tell(const char *path)
{
    char line[4200];
    const char *mark = getenv("CY_SLOW_MARK");
    const int fd = mark != NULL ? open(mark, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    const int length = snprintf(line, sizeof(line), "%s\n", path);
    if (write(fd, line, (size_t)length) != length) _exit(127);
    close(fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    char link[64], path[4096] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (length > 0 && is_slow(path, getenv("CY_SLOW_NAMES"))) {
        const char *wanted = getenv("CY_SLOW_MS");
        const long ms = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
        const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
        tell(path);
        nanosleep(&pause, NULL);
    }
    void *found = dlsym(RTLD_NEXT, "fsync");
    syncer *next = NULL;
    memcpy(&next, &found, sizeof(next));
    if (next == NULL) _exit(127);
    return next(fd);
}
