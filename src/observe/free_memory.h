// observe/free_memory.h: the memory that the system can still give.
//
// From /proc/meminfo, and from the control group of this process and those above it (version 1 or
// 2), whose limits a container or a batch system sets. Memory that holds files the system can drop
// counts as free. Read anew at each call; safe from any thread; allocates nothing. What the system
// does not tell is no failure: who asks then knows nothing to refuse by.

#ifndef CY_OBSERVE_FREE_MEMORY_H
#define CY_OBSERVE_FREE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

typedef struct cy_free_memory {
    size_t total_bytes;     // of the machine; 0: not told
    size_t available_bytes; // of the machine, without swapping; 0: not told
    size_t bytes;           // what this process can still get, swap included; SIZE_MAX: not told
    // Which control group's limit `bytes` follows from: a number that is the same for all processes
    // under that limit; 0 for the machine itself.
    uint64_t group;
} cy_free_memory;

// `root` stands before /proc and /sys: "" but in tests.
cy_free_memory cy_free_memory_read(const char *root);

// The memory that this process may still map, whether or not there is any behind it.
typedef struct cy_address_room {
    size_t bytes;       // SIZE_MAX: as much as there is
    const char *limit;  // what sets an end to it: "ulimit -v" or "ulimit -d"
    size_t limit_bytes; // its value
} cy_address_room;

cy_address_room cy_address_room_read(const char *root);

#endif
