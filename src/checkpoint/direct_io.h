// checkpoint/direct_io.h: reading files from the disk, past the page cache (O_DIRECT).
//
// A state that is read once needs no copy in the page cache: its pages would be taken, filled,
// copied from and thrown away. Such reads go by whole blocks of CY_DIRECT_ALIGN bytes, into memory
// that begins at a multiple of it. Not every file system has them; whoever reads keeps the plain
// way beside this one. Used inside src/checkpoint only. A file may be read from several threads.

#ifndef CY_CHECKPOINT_DIRECT_IO_H
#define CY_CHECKPOINT_DIRECT_IO_H

#include <stdbool.h>
#include <stdint.h>

// What every disk and file system in use takes; one that wants more refuses the read.
#define CY_DIRECT_ALIGN ((uint64_t)4096)

typedef struct cy_direct_file {
    int fd;    // -1: the file system has no such reads
    void *map; // owned, [bytes]: never touched, only asked what of it is cached
    uint64_t bytes;
} cy_direct_file;

// Opens a file of so many bytes. What cannot be opened this way has fd -1: no failure, since the
// plain way will do, or says what is wrong.
void cy_direct_open(cy_direct_file *file, const char *path, uint64_t bytes);
void cy_direct_close(cy_direct_file *file);

// The blocks that hold [offset, offset + bytes): where they begin, and how many bytes they are.
uint64_t cy_direct_block_offset(uint64_t offset);
uint64_t cy_direct_block_bytes(uint64_t offset, uint64_t bytes);

// True when the page cache holds all of these bytes, or may.
bool cy_direct_is_cached(const cy_direct_file *file, uint64_t offset, uint64_t bytes);

// Reads the blocks that hold [offset, offset + bytes) to `memory`, [cy_direct_block_bytes(...)],
// aligned: the first wanted byte comes to lie at offset - cy_direct_block_offset(offset). False
// when the disk or the file system refused, or the file is shorter.
bool cy_direct_read(const cy_direct_file *file, char *memory, uint64_t offset, uint64_t bytes);

#endif
