// base/input_file.h: a regular file that is read at any place, by any thread.
//
// Read by calls and not mapped: a mapped file that is cut, or whose disk fails, ends the process
// with SIGBUS; a call returns it. The length is that at opening, and a file that has become shorter
// or another one is CY_ERR_CORRUPT. Its descriptor stays open as long as the process has plenty;
// beyond half of what it may have, a file is opened for each read.

#ifndef CY_BASE_INPUT_FILE_H
#define CY_BASE_INPUT_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct cy_input_file {
    char *path; // owned
    uint64_t bytes;
    uint64_t device, inode; // which file it is
    int fd;                 // owned; -1: opened for each read
} cy_input_file;

CY_MUST_CHECK cy_status cy_input_open(cy_input_file *file, const char *path);

// A file that is all zeros is closed.
void cy_input_close(cy_input_file *file);

// bytes [offset, offset + count) of the file, which has them, into to [count].
CY_MUST_CHECK cy_status cy_input_read(
    const cy_input_file *file, void *to, uint64_t offset, size_t count);

// The lines of a file, one after the other. Start from {.file = ...}; free with cy_lines_free.
typedef struct cy_lines {
    const cy_input_file *file; // borrowed
    char *buffer;              // owned
    size_t room, first, end;   // of the buffer; [first, end) is read and not handed out
    uint64_t read;             // bytes of the file
    int64_t number;            // of the last line, from 1
} cy_lines;

#define CY_LINE_BYTES_MAX ((size_t)1 << 24)

// *line [*length] is the next line without its end, borrowed until the next call, or NULL behind
// the last. One of more than CY_LINE_BYTES_MAX bytes is CY_ERR_CORRUPT.
CY_MUST_CHECK cy_status cy_lines_next(cy_lines *lines, const char **line, size_t *length);
void cy_lines_free(cy_lines *lines);

#endif
