#define _GNU_SOURCE
#include "observe/resident.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// The number of kB behind a key of /proc/self/status; 0 when the key is not there.
static size_t kilobytes_of(const char *status, const char *key)
{
    const char *found = strstr(status, key);
    return found != NULL ? strtoul(found + strlen(key), NULL, 10) : 0;
}

cy_status cy_resident_read(cy_resident *resident)
{
    char status[8192];
    if (cy_file_read_some("/proc/self/status", status, sizeof(status)) > 0) {
        const size_t now = kilobytes_of(status, "\nVmRSS:") * 1024;
        const size_t peak = kilobytes_of(status, "\nVmHWM:") * 1024;
        if (now > 0) {
            *resident = (cy_resident){.now_bytes = now, .peak_bytes = peak > now ? peak : now};
            return CY_OK;
        }
    }
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "the process's memory");
    }
    const size_t peak = (size_t)usage.ru_maxrss * 1024;
    *resident = (cy_resident){.now_bytes = peak, .peak_bytes = peak};
    return CY_OK;
}

cy_status cy_resident_reset_peak(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "resetting the peak of memory");
    const ssize_t put = write(fd, "5", 1); // proc(5): resets the peak resident set size
    const int reason = errno;
    close(fd);
    errno = reason;
    if (put != 1) return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "resetting the peak of memory");
    return CY_OK;
}
