// base/file.h: whole files and folders.

#ifndef CY_BASE_FILE_H
#define CY_BASE_FILE_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

bool cy_path_exists(const char *path);
bool cy_path_is_folder(const char *path);

// A folder with nothing in it, not a link to one.
bool cy_path_is_empty_folder(const char *path);

// Reads all of a file into *text, which must be zeroed; more than `limit` bytes are an error.
CY_MUST_CHECK cy_status cy_file_read(cy_text *text, const char *path, size_t limit);

// Reads up to room - 1 bytes of a file, such as the system makes in /proc, and a zero behind them.
// Returns how many; 0 where there is no such file or nothing in it. Allocates nothing.
size_t cy_file_read_some(const char *path, char *bytes, size_t room);

// Writes a file whole or not at all: beside its place, fsync, rename. An empty path is
// CY_ERR_REQUEST.
CY_MUST_CHECK cy_status cy_file_write(const char *path, const void *bytes, size_t count);

// Makes a folder and those above it; one that is there already is fine.
CY_MUST_CHECK cy_status cy_folder_make(const char *path);

// A read-only mapping of a whole file; an empty file maps to NULL and 0 bytes.
typedef struct cy_mapping {
    const unsigned char *bytes; // owned
    size_t count;
} cy_mapping;

CY_MUST_CHECK cy_status cy_mapping_open(cy_mapping *mapping, const char *path);
void cy_mapping_close(cy_mapping *mapping);

#endif
