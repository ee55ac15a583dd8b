// base/file.h: whole files and folders.

#ifndef CY_BASE_FILE_H
#define CY_BASE_FILE_H

#include "base/text.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

// Whether something, or a folder, stands at a path. What cannot be looked at is not taken for what
// is not there: but for a path that does not exist, each failure is CY_ERR_IO.
CY_MUST_CHECK cy_status cy_path_find(bool *there, const char *path);
CY_MUST_CHECK cy_status cy_path_find_folder(bool *there, const char *path);

// The same for messages and advice: false too where it cannot be looked at.
bool cy_path_exists(const char *path);
bool cy_path_is_folder(const char *path);

// A folder with nothing in it, not a link to one.
CY_MUST_CHECK cy_status cy_path_find_empty_folder(bool *empty, const char *path);

// Opens a regular file for reading; the caller closes *fd. A folder, a pipe, a socket or a device
// is CY_ERR_IO at once: opening one never waits, and a device is not read.
CY_MUST_CHECK cy_status cy_file_open(int *fd, const char *path);

// The same for what is read once from its beginning to its end: a pipe or a socket will do, and
// opening a pipe waits for its writer.
CY_MUST_CHECK cy_status cy_file_open_stream(int *fd, const char *path);

// Whether so many descriptors are in use that one like `fd`, which was just opened, should not be
// kept for long: half of what the process may have.
bool cy_fd_is_scarce(int fd);

// Reads all of a regular file into *text, which must be zeroed; more than `limit` bytes are an
// error.
CY_MUST_CHECK cy_status cy_file_read(cy_text *text, const char *path, size_t limit);

// Reads up to room - 1 bytes of a file, such as the system makes in /proc, and a zero behind them.
// Returns how many; 0 where there is no such file or nothing in it. Allocates nothing.
size_t cy_file_read_some(const char *path, char *bytes, size_t room);

// For a name that no other process, thread or machine gives to anything.
uint64_t cy_file_unique_number(void);

// A name in the folder of `path` that nothing has, for what will be renamed to `path`. *beside must
// be zeroed and is owned by the caller.
CY_MUST_CHECK cy_status cy_path_temporary(cy_text *beside, const char *path);

// Writes bytes [count] to a new file with such a name and forces them to the disk. The caller
// renames or removes it. An empty path is CY_ERR_REQUEST.
CY_MUST_CHECK cy_status cy_file_write_temporary(
    cy_text *beside, const char *path, const void *bytes, size_t count);

// Writes a file whole or not at all, and replaces a regular file that stands there: for files in
// folders of the program's own. What a user names is written by base/output.h. The file has its
// name on the disk, too, when this returns.
CY_MUST_CHECK cy_status cy_file_write(const char *path, const void *bytes, size_t count);

// The same for one of several files of a folder that the caller forces to the disk after the last
// (cy_folder_sync): until then a loss of power may take the file's name.
CY_MUST_CHECK cy_status cy_file_write_unsynced(const char *path, const void *bytes, size_t count);

// Makes a folder and those above it, on the disk too; one that is there already is fine.
CY_MUST_CHECK cy_status cy_folder_make(const char *path);

// Removes a folder and the files in it. One that is not there is fine; of a link the link alone
// goes.
CY_MUST_CHECK cy_status cy_folder_remove(const char *path);

// Forces the entries of a folder, or of the folder that a file is in, to disk.
CY_MUST_CHECK cy_status cy_folder_sync(const char *path);
CY_MUST_CHECK cy_status cy_folder_sync_above(const char *path);

// The next name in a folder that cy_io_open_folder opened, without "." and ".."; NULL behind the
// last. `path` is for the message where the folder cannot be read further.
CY_MUST_CHECK cy_status cy_folder_next(const char **name, DIR *folder, const char *path);

#endif
