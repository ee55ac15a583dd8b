// checkpoint/file_io.h: a file of known length, written from front to back.
//
// With blocks of its own it goes past the page cache (O_DIRECT): what is added is copied to one
// block of 1 MiB, while threads of the writer write the others. The page cache would copy as well,
// and take a fresh page for each page of the file. A file system without such writes is written to
// plainly. One thread uses a writer. Used inside src/checkpoint only.

#ifndef CY_CHECKPOINT_FILE_IO_H
#define CY_CHECKPOINT_FILE_IO_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CY_FILE_WRITER_BLOCKS_MAX 4

typedef struct cy_file_writer cy_file_writer;

// Creates the file and reserves room for `total` bytes where the file system can, so that a full
// disk shows before anything is written. `blocks`, at most CY_FILE_WRITER_BLOCKS_MAX: one less is
// written at the same time; 1: the caller writes it, when it is full; 0: through the page cache.
CY_MUST_CHECK cy_status cy_file_writer_open(
    cy_file_writer **writer, const char *path, uint64_t total, int blocks);

// Adds bytes in any portions. A write that failed may show in a later call.
CY_MUST_CHECK cy_status cy_file_writer_add(cy_file_writer *writer, const void *bytes, size_t count);

// Forces the bytes to disk and closes; accepts NULL. A file that is not complete is a failure; call
// it in any case, after a failed write too, with `keep` false: then it only closes.
CY_MUST_CHECK cy_status cy_file_writer_close(cy_file_writer *writer, bool keep);

#endif
