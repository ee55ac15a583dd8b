// checkpoint/file_io.h: writes the files of a checkpoint, and reads byte ranges of them.
//
// A state that is written or read once needs no copy in the page cache: the cache would take a
// fresh page for each page of the file, fill it and throw it away. So the writer and the direct
// reads go past it (O_DIRECT), in whole blocks of CY_DIRECT_ALIGN bytes. Not every file system
// takes such calls: the writer then writes through the page cache, and whoever reads keeps
// cy_bytes_read beside cy_direct_read.
//
// Used inside src/checkpoint only. One thread uses a writer; a direct file may be read from several
// threads; cy_bytes_read opens files, so one thread calls it until all files are open.

#ifndef CY_CHECKPOINT_FILE_IO_H
#define CY_CHECKPOINT_FILE_IO_H

#include "checkpoint/checkpoint.h"

#include <sys/uio.h>

// ---- a file of known length, written from front to back

#define CY_FILE_WRITER_BLOCKS_MAX 4

typedef struct cy_file_writer cy_file_writer;

// Creates the file and reserves room for `total` bytes where the file system can, so that a full
// disk shows before anything is written. `blocks`, at most CY_FILE_WRITER_BLOCKS_MAX, is how many
// blocks of 1 MiB the writer has: the caller fills one while threads write the others; with 1 the
// caller writes it when it is full; with 0 the file goes through the page cache.
CY_MUST_CHECK cy_status cy_file_writer_open(
    cy_file_writer **writer, const char *path, uint64_t total, int blocks);

// Adds bytes in any portions. A write that failed may show in a later call.
CY_MUST_CHECK cy_status cy_file_writer_add(cy_file_writer *writer, const void *bytes, size_t count);

// Forces the bytes to disk and closes; accepts NULL. Fails when fewer than `total` bytes were
// added. With `keep` false it only closes: call it so after a write that failed.
CY_MUST_CHECK cy_status cy_file_writer_close(cy_file_writer *writer, bool keep);

// ---- reads past the page cache

// The alignment that every disk and file system in use takes; one that wants more refuses the read.
#define CY_DIRECT_ALIGN ((uint64_t)4096)

typedef struct cy_direct_file {
    int fd;         // -1: the file system has no such reads
    void *map;      // owned, [bytes]: never touched, only asked which of its pages are cached
    uint64_t bytes; // length of the file
} cy_direct_file;

// Opens a file of `bytes` bytes. Where it cannot be opened this way, fd is -1: that is no failure,
// since cy_bytes_read works or says what is wrong.
void cy_direct_open(cy_direct_file *file, const char *path, uint64_t bytes);
void cy_direct_close(cy_direct_file *file);

// The blocks that hold [offset, offset + bytes): where they begin, and how many bytes they are.
uint64_t cy_direct_block_offset(uint64_t offset);
uint64_t cy_direct_block_bytes(uint64_t offset, uint64_t bytes);

// True when the page cache holds all of these bytes, or may.
bool cy_direct_is_cached(const cy_direct_file *file, uint64_t offset, uint64_t bytes);

// Reads the blocks that hold [offset, offset + bytes) to `memory`, [cy_direct_block_bytes(...)],
// which begins at a multiple of CY_DIRECT_ALIGN. The first wanted byte then lies at
// memory[offset - cy_direct_block_offset(offset)]. False when the disk or the file system refused,
// or when the file is shorter.
bool cy_direct_read(const cy_direct_file *file, char *memory, uint64_t offset, uint64_t bytes);

// ---- byte ranges of a checkpoint's files, through the page cache

// The descriptor of file number `file`, which is opened on the first call and closed with the
// checkpoint.
CY_MUST_CHECK cy_status cy_bytes_open(int *fd, cy_checkpoint *checkpoint, int file);

// Opens all files, as long as the process has plenty of descriptors left.
CY_MUST_CHECK cy_status cy_bytes_open_all(cy_checkpoint *checkpoint);

// Fills the parts, [count], at most 1024, with the bytes that follow `offset`. Changes `parts`.
CY_MUST_CHECK cy_status cy_bytes_read(
    cy_checkpoint *checkpoint, int file, uint64_t offset, struct iovec *parts, int count);

// Asks the system to bring these bytes into memory while something else is done: a hint, nothing
// more. The file must have been opened.
void cy_bytes_prefetch(const cy_checkpoint *checkpoint, int file, uint64_t offset, uint64_t bytes);

#endif
