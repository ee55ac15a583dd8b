#define _GNU_SOURCE
#include "cli/process_start.h"

#include "base/clock.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Field 22 of /proc/self/stat: clock ticks since the system booted.
#define START_FIELD 22

// The field after the process's name, which may hold spaces, is number 3.
static double start_since_boot_s(const char *stat)
{
    const char *at = strrchr(stat, ')');
    if (at == NULL) return -1;
    for (int field = 2; field < START_FIELD; field++) {
        at = strchr(at + 1, ' ');
        if (at == NULL) return -1;
    }
    return strtod(at, NULL) / (double)sysconf(_SC_CLK_TCK);
}

double cy_process_start_s(void)
{
    const double now = cy_clock_s();
    struct timespec boot;
    cy_text stat = {0};
    if (cy_file_read(&stat, "/proc/self/stat", 4096) != CY_OK) return now;
    const double start = start_since_boot_s(stat.bytes);
    cy_text_free(&stat);
    if (start < 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return now;
    const double age = (double)boot.tv_sec + (double)boot.tv_nsec * 1e-9 - start;
    return age > 0 ? now - age : now;
}
