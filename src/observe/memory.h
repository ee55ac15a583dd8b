// observe/memory.h: the memory that the system can still give, and the memory that this process
// holds.
//
// Free memory comes from /proc/meminfo, and from the control group of this process and those above
// it (version 1 or 2), whose limits a container or a batch system sets. Memory that holds files
// which the system can drop counts as free. What the system does not tell is no failure: it is
// reported as not known. The process's memory comes from /proc where there is one, else from
// getrusage, which knows the peak only; ranks that are threads share these figures.
//
// Everything is read anew at each call. Safe from any thread; allocates nothing.

#ifndef CY_OBSERVE_MEMORY_H
#define CY_OBSERVE_MEMORY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

// ---- memory that the system can still give

typedef struct cy_free_memory {
    size_t total_bytes;     // of the machine; 0: not known
    size_t available_bytes; // of the machine, without swapping; 0: not known
    size_t bytes;           // what this process can still get, swap included; SIZE_MAX: not known
    // The control group whose limit `bytes` follows from: the same number for all processes under
    // that limit; 0 for the machine itself.
    uint64_t group;
} cy_free_memory;

// `root` is put before /proc and /sys: "", except in tests.
cy_free_memory cy_free_memory_read(const char *root);

// The memory that this process may still map, whether or not there is any behind it.
typedef struct cy_address_room {
    size_t bytes;       // SIZE_MAX: there is no limit
    const char *limit;  // what sets the limit: "ulimit -v" or "ulimit -d"
    size_t limit_bytes; // its value
} cy_address_room;

cy_address_room cy_address_room_read(const char *root);

// ---- memory of this process

typedef struct cy_rss {
    size_t now_bytes;  // resident now; the peak where the system tells nothing else
    size_t peak_bytes; // the most since the start, or since the last reset
} cy_rss;

CY_MUST_CHECK cy_status cy_rss_read(cy_rss *resident);

// Resets the peak to what is resident now. CY_ERR_UNSUPPORTED where the system cannot.
CY_MUST_CHECK cy_status cy_rss_reset_peak(void);

#endif
