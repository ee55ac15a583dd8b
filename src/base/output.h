// base/output.h: files and folders that a command writes for its user, and locks of folders.
//
// A file is written under a temporary name in the same folder, synced and renamed. It replaces only
// a regular file that begins and ends as outputs of its kind do: never a folder, a device, a pipe,
// a symbolic link, an input, or a file of another program.

#ifndef CY_BASE_OUTPUT_H
#define CY_BASE_OUTPUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

// The text by which a file of a kind is recognised. NULL: not compared.
typedef struct cy_output_signature {
    const char *begins; // its first bytes
    const char *holds;  // anywhere in its first CY_OUTPUT_HEAD bytes
    const char *ends;   // its last bytes
} cy_output_signature;

#define CY_OUTPUT_HEAD       4096
#define CY_OUTPUT_SIGNATURES 2

// A kind of output. Every file of the kind that the program writes has one of its marks.
typedef struct cy_output_kind {
    const char *name;                                // "a table of runs", for messages
    cy_output_signature marks[CY_OUTPUT_SIGNATURES]; // all NULL: none
} cy_output_kind;

// Pictures. Their writers put the comment on a line of its own after the opening tag.
#define CY_OUTPUT_SVG_COMMENT "<!-- drawn by cyclotron -->"
extern const cy_output_kind cy_output_svg;

// Checks that a file of that kind may be written to `path`, which need not exist. CY_ERR_REQUEST
// names what exists there and is not replaced. Commands also call it before long work.
CY_MUST_CHECK cy_status cy_output_check(const char *path, const cy_output_kind *kind);

// Writes bytes [count], which have a mark of the kind, whole or not at all. It fails where
// cy_output_check fails.
CY_MUST_CHECK cy_status cy_output_write(
    const char *path, const cy_output_kind *kind, const void *bytes, size_t count);

// ---- locks of folders: one run at a time uses a folder, on any machine

// A use of a folder. Each has a lock file of its own, so that one run may have two uses of a
// folder.
typedef struct cy_folder_lock_kind {
    const char *file;  // borrowed: a name in the folder
    const char *doing; // borrowed: "saves its checkpoints in", for the message
    const char *hint;  // borrowed: what to do when another run holds it
} cy_folder_lock_kind;

// Locks FOLDER/FILE, and makes the file where it does not exist. The lock holds until the
// descriptor *fd is closed or the process ends in any way. Where another run holds it:
// CY_ERR_REQUEST with the process and host of that run.
CY_MUST_CHECK cy_status cy_folder_lock_acquire(
    int *fd, const char *folder, const cy_folder_lock_kind *use);

// Whether the lock file that is open as `fd` still has the name `path`. A lock keeps other runs out
// only that long: the folder may have been deleted or moved away. A failed look is CY_ERR_IO.
CY_MUST_CHECK cy_status cy_folder_lock_is_held(bool *held, int fd, const char *path);

// ---- pending folders: a folder has a temporary name until it is complete
//
// Each attempt has a name of its own, so several may write the same folder at once: the first that
// is complete gets the final name, and the others fail. A lock in the folder shows that its writer
// is alive. The next attempt for the same final name removes the folders of dead writers.

typedef struct cy_pending_folder {
    char *place;  // owned: the final path
    char *parent; // owned
    char *making; // owned: PARENT/.NAME.0123456789abcdef.tmp; not made yet
    int lock;     // descriptor; -1: not made yet
} cy_pending_folder;

// Fails where the path exists and is not an empty folder. Changes nothing on the disk.
CY_MUST_CHECK cy_status cy_pending_folder_open(cy_pending_folder *place, const char *path);

// Makes the folders above the final path, removes the folders of dead attempts, and makes the
// folder `making`. To be called before a file is written.
CY_MUST_CHECK cy_status cy_pending_folder_make(cy_pending_folder *place);

// Where status is CY_OK, renames the folder `making` to its final path; otherwise removes it.
// Returns `status`, or the failure of the rename. Frees the struct.
CY_MUST_CHECK cy_status cy_pending_folder_close(cy_pending_folder *place, cy_status status);

#endif
