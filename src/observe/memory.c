// Reads how much memory is free, for the machine and for the control groups of this process, and
// how much memory the process holds.

#define _GNU_SOURCE
#include "observe/memory.h"

#include "base/file.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// The number behind `key` and a space or colon at the beginning of a line, in the line's own unit,
// as in /proc/meminfo or memory.stat; the first number of the text where the key is "". Of several
// lines with the key the first counts. False where there is no number, as behind a limit that says
// "max".
static bool find_number(uint64_t *number, const char *text, const char *key)
{
    const size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0) continue;
        const char *from = line + length;
        if (length > 0 && *from != ' ' && *from != ':') continue;
        char *end = NULL;
        const uint64_t found = strtoull(from + (*from == ':'), &end, 10);
        if (end == from + (*from == ':')) return false;
        *number = found;
        return true;
    }
    return false;
}

// ---- memory that the system can still give

#define TEXT_BYTES 16384 // of a file; the largest has about 3000
#define PATH_BYTES 4096

// The files of a control group, for each version of control groups.
typedef struct group_files {
    const char *controller; // as /proc/self/cgroup lists it
    const char *mount;
    const char *limit, *usage;
    const char *inactive, *active; // of memory.stat: files in memory, which the system can drop
} group_files;

static const group_files versions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
        "total_inactive_file", "total_active_file"},
};

// Reads folder/name; false where there is no such file.
static bool read_text(char text[TEXT_BYTES], const char *root, const char *folder, const char *name)
{
    char path[PATH_BYTES];
    const int length = snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
    return length < PATH_BYTES && cy_file_read_some(path, text, TEXT_BYTES) > 0;
}

static bool read_number(
    uint64_t *number, const char *root, const char *folder, const char *name, const char *key)
{
    char text[TEXT_BYTES];
    return read_text(text, root, folder, name) && find_number(number, text, key);
}

static uint64_t less(uint64_t from, uint64_t what)
{
    return from > what ? from - what : 0;
}

// Reduces the free memory to what one control group leaves.
static void hold_to_group(cy_free_memory *memory, const char *root, const char *folder,
    const group_files *files, uint64_t swap)
{
    uint64_t limit = 0, usage = 0, inactive = 0, active = 0;
    if (!read_number(&limit, root, folder, files->limit, "")) return;
    if (!read_number(&usage, root, folder, files->usage, "")) return;
    // Where these cannot be read, the memory of files counts as used.
    (void)read_number(&inactive, root, folder, "memory.stat", files->inactive);
    (void)read_number(&active, root, folder, "memory.stat", files->active);
    const uint64_t left = less(limit, less(usage, inactive + active));
    if (left > SIZE_MAX - swap || left + swap >= memory->bytes) return;
    memory->bytes = left + swap;
    char path[PATH_BYTES];
    struct stat info;
    const int length = snprintf(path, sizeof(path), "%s%s", root, folder);
    if (length < PATH_BYTES && cy_io_stat(path, &info) == 0) memory->group = info.st_ino;
}

// Applies the limits of the group and of those above it. In a container the path may be that of the
// host, of which only the top is visible.
static void hold_to_groups(
    cy_free_memory *memory, const char *root, char *group, const group_files *files, uint64_t swap)
{
    for (;;) {
        char folder[PATH_BYTES];
        const int length = snprintf(folder, sizeof(folder), "%s%s", files->mount, group);
        if (length < PATH_BYTES) hold_to_group(memory, root, folder, files, swap);
        char *last = strrchr(group, '/');
        if (last == NULL) return;
        *last = '\0';
    }
}

// Whether a list of names between commas has this one.
static bool has_name(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list;; at++) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
        at = strchr(at, ',');
        if (at == NULL) return false;
    }
}

// Lines are "number:controllers:path"; version 2 lists no controllers.
static void follow_groups(cy_free_memory *memory, const char *root, char *lines, uint64_t swap)
{
    for (char *line = lines, *next = NULL; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        const size_t length = strlen(group);
        if (length > 0 && group[length - 1] == '/') group[length - 1] = '\0';
        for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
            if (has_name(controllers + 1, versions[i].controller)) {
                hold_to_groups(memory, root, group, &versions[i], swap);
            }
        }
    }
}

cy_free_memory cy_free_memory_read(const char *root)
{
    cy_free_memory memory = {.bytes = SIZE_MAX};
    uint64_t total = 0, available = 0, swap = 0;
    char text[TEXT_BYTES];
    if (read_text(text, root, "/proc", "meminfo")) {
        (void)find_number(&total, text, "MemTotal");
        (void)find_number(&swap, text, "SwapFree");
        memory.total_bytes = total * 1024;
        if (find_number(&available, text, "MemAvailable")) {
            memory.available_bytes = available * 1024;
            memory.bytes = (available + swap) * 1024;
        }
    }
    // A group may have less swap than the machine: the result is too large then, never too small.
    if (read_text(text, root, "/proc/self", "cgroup")) {
        follow_groups(&memory, root, text, swap * 1024);
    }
    return memory;
}

// Holds the room to one limit, of which the field `key` of /proc/self/status tells what is used.
static void hold_to_limit(
    cy_address_room *room, rlim_t limit, const char *name, const char *status, const char *key)
{
    uint64_t used = 0;
    if (limit == RLIM_INFINITY || !find_number(&used, status, key)) return;
    const uint64_t left = less(limit, used * 1024);
    if (left >= room->bytes) return;
    *room = (cy_address_room){.bytes = left, .limit = name, .limit_bytes = limit};
}

cy_address_room cy_address_room_read(const char *root)
{
    struct rlimit limit;
    cy_address_room room = {.bytes = SIZE_MAX, .limit = ""};
    char text[TEXT_BYTES];
    if (!read_text(text, root, "/proc/self", "status")) return room;
    if (getrlimit(RLIMIT_AS, &limit) == 0)
        hold_to_limit(&room, limit.rlim_cur, "ulimit -v", text, "VmSize");
    if (getrlimit(RLIMIT_DATA, &limit) == 0)
        hold_to_limit(&room, limit.rlim_cur, "ulimit -d", text, "VmData");
    return room;
}

// ---- memory of this process

cy_status cy_rss_read(cy_rss *resident)
{
    char status[8192];
    uint64_t now_kb = 0, peak_kb = 0;
    if (cy_file_read_some("/proc/self/status", status, sizeof(status)) > 0 &&
        find_number(&now_kb, status, "VmRSS") && now_kb > 0) {
        (void)find_number(&peak_kb, status, "VmHWM");
        if (peak_kb < now_kb) peak_kb = now_kb;
        *resident = (cy_rss){.now_bytes = now_kb * 1024, .peak_bytes = peak_kb * 1024};
        return CY_OK;
    }
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "the process's memory");
    }
    const size_t peak = (size_t)usage.ru_maxrss * 1024;
    *resident = (cy_rss){.now_bytes = peak, .peak_bytes = peak};
    return CY_OK;
}

cy_status cy_rss_reset_peak(void)
{
    const int fd = cy_io_open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "resetting the peak of memory");
    const ssize_t put = cy_io_write(fd, "5", 1); // proc(5): resets the peak resident set size
    const int reason = errno;
    cy_io_close(fd);
    errno = reason;
    if (put != 1) return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "resetting the peak of memory");
    return CY_OK;
}
