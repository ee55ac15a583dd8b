// base/file.h: whole files and folders, and files that are read at any offset.
//
// Functions return a status and write outputs only on success. Any thread may call them; a
// cy_input_file may be read by several threads at once.

#ifndef CY_BASE_FILE_H
#define CY_BASE_FILE_H

#include "base/status.h"
#include "base/text.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Whether a path exists, or is a folder. A path that cannot be examined is not taken for one that
// does not exist: every failure but "no such path" is CY_ERR_IO.
CY_MUST_CHECK cy_status cy_path_find(bool *there, const char *path);
CY_MUST_CHECK cy_status cy_path_find_folder(bool *there, const char *path);

// The same for messages and advice. They are false also where the path cannot be examined.
bool cy_path_exists(const char *path);
bool cy_path_is_folder(const char *path);

// Whether a path is an empty folder, and not a link to one.
CY_MUST_CHECK cy_status cy_path_find_empty_folder(bool *empty, const char *path);

// Opens a regular file for reading; the caller closes *fd. A folder, a pipe, a socket or a device
// is CY_ERR_IO: the call never waits for one and reads no device.
CY_MUST_CHECK cy_status cy_file_open(int *fd, const char *path);

// The same for a file that is read once from beginning to end. It may be a pipe or a socket;
// opening a pipe waits for its writer.
CY_MUST_CHECK cy_status cy_file_open_stream(int *fd, const char *path);

// Whether descriptors are scarce: half of those that the process may have are in use. `fd` was just
// opened. Where it is true, descriptors should not be kept open for long.
bool cy_fd_is_scarce(int fd);

// Reads all of a regular file into *text, which must be zeroed. A file of more than `limit` bytes
// is CY_ERR_CORRUPT.
CY_MUST_CHECK cy_status cy_file_read(cy_text *text, const char *path, size_t limit);

// Reads up to room - 1 bytes of a file of the system, such as those in /proc, and adds a zero.
// Returns the number of bytes; 0 where the file does not exist or is empty. Allocates nothing.
size_t cy_file_read_some(const char *path, char *bytes, size_t room);

// A number for a name that no other thread, process or machine uses.
uint64_t cy_file_unique_number(void);

// Writes bytes [count] to a new file in the folder of `path`, under an unused name, and syncs it.
// The caller renames it to `path` or removes it. *beside must be zeroed and gets the name; the
// caller owns it. An empty path is CY_ERR_REQUEST.
CY_MUST_CHECK cy_status cy_file_write_temporary(
    cy_text *beside, const char *path, const void *bytes, size_t count);

// Writes a file whole or not at all, and replaces a regular file of that name. It serves files in
// folders of the program's own; base/output.h writes files that a user names. When it returns, the
// name is on the disk too.
CY_MUST_CHECK cy_status cy_file_write(const char *path, const void *bytes, size_t count);

// The same for one of several files of a folder. The caller syncs the folder after the last of them
// (cy_folder_sync); until then a loss of power may lose the file's name.
CY_MUST_CHECK cy_status cy_file_write_unsynced(const char *path, const void *bytes, size_t count);

// Makes a folder and those above it, and syncs their names. A folder that exists is not an error.
CY_MUST_CHECK cy_status cy_folder_make(const char *path);

// Removes a folder and the files in it, or a link itself and nothing behind it. A folder that does
// not exist is not an error.
CY_MUST_CHECK cy_status cy_folder_remove(const char *path);

// Syncs the entries of a folder, or of the folder that contains a path, to the disk.
CY_MUST_CHECK cy_status cy_folder_sync(const char *path);
CY_MUST_CHECK cy_status cy_folder_sync_above(const char *path);

// Reads the next name of a folder that cy_io_open_folder opened, without "." and ".."; NULL after
// the last. `path` is for the message of a failure.
CY_MUST_CHECK cy_status cy_folder_next(const char **name, DIR *folder, const char *path);

// ---- input files: regular files that any thread reads at any offset
//
// They are read by calls and not mapped: a mapped file that is truncated, or whose disk fails,
// kills the process with SIGBUS, while a call returns an error. The length is that at opening; a
// file that has become shorter or was replaced is CY_ERR_CORRUPT. The descriptor stays open unless
// descriptors are scarce; then the file is opened for each read.

typedef struct cy_input_file {
    char *path; // owned
    uint64_t bytes;
    uint64_t device, inode; // identify the file
    int fd;                 // owned; -1: opened for each read
} cy_input_file;

CY_MUST_CHECK cy_status cy_input_open(cy_input_file *file, const char *path);

// Closing a zeroed struct does nothing.
void cy_input_close(cy_input_file *file);

// Reads bytes [offset, offset + count) into to [count]. The range must lie in the file.
CY_MUST_CHECK cy_status cy_input_read(
    const cy_input_file *file, void *to, uint64_t offset, size_t count);

// The lines of a file in order. Start from {.file = ...}; free with cy_lines_free.
typedef struct cy_lines {
    const cy_input_file *file; // borrowed
    char *buffer;              // owned
    size_t room, first, end;   // of the buffer; [first, end) is read and not yet returned
    uint64_t read;             // bytes of the file so far
    int64_t number;            // of the last line returned, from 1
} cy_lines;

#define CY_LINE_BYTES_MAX ((size_t)1 << 24)

// Reads the next line. *line [*length] has no line end and is valid until the next call; it is NULL
// after the last line. A line of more than CY_LINE_BYTES_MAX bytes is CY_ERR_CORRUPT.
CY_MUST_CHECK cy_status cy_lines_next(cy_lines *lines, const char **line, size_t *length);
void cy_lines_free(cy_lines *lines);

#endif
