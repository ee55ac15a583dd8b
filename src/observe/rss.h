// observe/rss.h: the memory that the system holds for this process.
//
// The figures are the whole process's: ranks that are threads share them. From /proc where there is
// one, else from getrusage, which knows the peak only. Safe from any thread; allocates nothing.

#ifndef CY_OBSERVE_RSS_H
#define CY_OBSERVE_RSS_H

#include "base/status.h"

#include <stddef.h>

typedef struct cy_rss {
    size_t now_bytes;  // resident now; the peak where the system does not tell
    size_t peak_bytes; // the most since the start, or since the last reset
} cy_rss;

CY_MUST_CHECK cy_status cy_rss_read(cy_rss *resident);

// Starts the peak anew from what is resident now. CY_ERR_UNSUPPORTED where the system cannot.
CY_MUST_CHECK cy_status cy_rss_reset_peak(void);

#endif
