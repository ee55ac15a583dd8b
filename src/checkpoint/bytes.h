// checkpoint/bytes.h: reading byte ranges of a checkpoint's files.
//
// Used inside src/checkpoint only. A file is opened when it is first read, or held, and closed
// with the checkpoint.

#ifndef CY_CHECKPOINT_BYTES_H
#define CY_CHECKPOINT_BYTES_H

#include "checkpoint/checkpoint.h"

#include <sys/uio.h>

// The descriptor of a file of the table.
CY_MUST_CHECK cy_status cy_bytes_open(int *fd, cy_checkpoint *checkpoint, int file);

// Opens all files, as long as the process has plenty of descriptors left.
CY_MUST_CHECK cy_status cy_bytes_open_all(cy_checkpoint *checkpoint);

// Fills the parts, [count], at most 1024, with the bytes that follow `offset`. Changes `parts`.
CY_MUST_CHECK cy_status cy_bytes_read(
    cy_checkpoint *checkpoint, int file, uint64_t offset, struct iovec *parts, int count);

// Asks the system to bring these bytes into memory while something else is done: a hint, nothing
// more. The file must have been read from.
void cy_bytes_prefetch(const cy_checkpoint *checkpoint, int file, uint64_t offset, uint64_t bytes);

#endif
