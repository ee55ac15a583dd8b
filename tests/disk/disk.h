// disk/disk.h: a disk that fails and forgets, under all calls on files of this process.
//
// src/base/io.c is compiled a second time for the programs that use it, with the functions of
// disk/under_io.h in the place of the system's. They make the real call in a folder of a file
// system in memory and keep a second account of it: of every file, what a program sees and what has
// reached the disk, page by page; of every folder, the names that are there and the changes of
// names that no fsync of the folder has forced out yet. A fault makes one call, or all of a kind
// from one on, fail, come back short or late. A crash ends everything: no later call has an effect,
// and what is left is what had been forced to the disk and a random part of the rest.
//
// Paths outside of the folder are the system's. Any thread may make calls; one thread makes the
// calls of this header while no other is inside of a call.

#ifndef CY_TESTS_DISK_H
#define CY_TESTS_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum disk_call {
    DISK_OPEN,
    DISK_READ,
    DISK_WRITE,
    DISK_RESIZE, // ftruncate and fallocate
    DISK_SYNC,
    DISK_HINT, // sync_file_range, mmap, an open with O_DIRECT: what fails there costs time only
    DISK_CLOSE,
    DISK_LOCK,
    DISK_RENAME,
    DISK_LINK,
    DISK_REMOVE,
    DISK_MAKE,
    DISK_LOOK, // stat, access
    DISK_LIST, // opendir, readdir
    DISK_CALLS,
} disk_call;

typedef enum disk_fault_kind {
    DISK_EIO,   // one call fails
    DISK_FULL,  // writes, and what makes files and names, fail with ENOSPC: one or all from one on
    DISK_EINTR, // a read or a write is interrupted before its first byte
    DISK_SHORT, // a read or a write does a part
    DISK_SLOW,  // the clock of base/clock.h goes on by hours, other threads by a bit
    DISK_DYING, // reads, writes and fsync fail with EIO from one call on
    DISK_CRASH, // power is lost before or after a call
    DISK_EIO_THEN_CRASH,
    DISK_FAULT_KINDS,
} disk_fault_kind;

extern const char *const disk_fault_names[DISK_FAULT_KINDS];

// A call that a run made: which one, on what, and how many such on the same before it. Names that
// the program draws at random are the same here.
typedef struct disk_place {
    disk_call call;
    uint32_t path_hash;
    int ordinal;
    bool splits;   // a read or write of more than a byte
    bool makes;    // may need room: an open that creates, a write, a name
    char name[64]; // the last part of the path
} disk_place;

typedef struct disk_plan {
    disk_fault_kind kind;
    disk_place at;
    disk_place crash_at; // of DISK_EIO_THEN_CRASH
    bool stays;          // of DISK_FULL: until the run has ended
    bool after;          // of a crash: the call had its effect
    uint32_t part;       // of DISK_SHORT: which
} disk_plan;

// What happened to the plan.
typedef struct disk_result {
    int faults;     // calls that a fault changed
    int error;      // errno of the first that failed; 0: none did
    disk_call call; // of the first fault
    char path[512]; // of the first fault, below the folder
    bool crashed;
} disk_result;

// Makes an empty folder in memory, removed at the end of the process. disk_root is its path.
void disk_open(const char *root);
void disk_close(void);
const char *disk_root(void);

// ---- images: what a case starts from

typedef struct disk_image disk_image;

// All that is in the folder now, however it came there.
disk_image *disk_image_take(void);
void disk_image_free(disk_image *image);

// Makes the folder hold the image and nothing else, all of it forced to the disk.
void disk_image_put(const disk_image *image);

// How many files and folders two images differ in, but for those whose path `ignore` takes;
// the first of them in `which`.
int disk_image_differences(const disk_image *one, const disk_image *other,
    bool (*ignore)(const char *path), char *which, size_t bytes);

// The part of an image below a folder, which may be missing: then it has no entries.
disk_image *disk_image_below(const disk_image *image, const char *folder);
int disk_image_count(const disk_image *image);
// The bytes of a file, or NULL.
const char *disk_image_bytes(const disk_image *image, const char *path, size_t *count);
// The same of file number `index` among those in `folder` whose names begin so.
const char *disk_image_find(
    const disk_image *image, const char *folder, const char *begin, int index, size_t *count);

// ---- runs

// Between these two all calls are counted, and `plan` (NULL: none) happens.
void disk_begin(const disk_plan *plan);
void disk_end(disk_result *result);

// The calls of the run that ended last: [*count], until the next begins.
const disk_place *disk_places(int *count);

// What is left when power is lost now, or was lost in the run that ended: each call draws another
// remainder from `seed`. `mode` says how in words.
disk_image *disk_image_left(uint64_t seed, const char **mode);

const char *disk_call_name(disk_call call);

#endif
