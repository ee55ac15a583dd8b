#define _GNU_SOURCE
#include "observe/rss.h"

#include "base/file.h"
#include "base/io.h"
#include "observe/proc_number.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

cy_status cy_rss_read(cy_rss *resident)
{
    char status[8192];
    uint64_t now_kb = 0, peak_kb = 0;
    if (cy_file_read_some("/proc/self/status", status, sizeof(status)) > 0 &&
        cy_proc_number(&now_kb, status, "VmRSS") && now_kb > 0) {
        (void)cy_proc_number(&peak_kb, status, "VmHWM");
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
