// base/output.h: files that a command writes for its user.
//
// A file is written beside its place under a name that nothing else has, forced to the disk and
// renamed. What stands at its place is replaced only where it is a regular file that begins and
// ends as the outputs of its kind do: never a folder, a device, a pipe, a symbolic link, an input,
// or a file of another program.

#ifndef CY_BASE_OUTPUT_H
#define CY_BASE_OUTPUT_H

#include "base/status.h"

#include <stddef.h>

// How a file of a kind is recognised. NULL: it may be anything.
typedef struct cy_output_signature {
    const char *begins; // its first bytes
    const char *holds;  // stands somewhere in its first CY_OUTPUT_HEAD bytes
    const char *ends;   // its last bytes
} cy_output_signature;

#define CY_OUTPUT_HEAD       4096
#define CY_OUTPUT_SIGNATURES 2

// Text of a fixed form: every file that the program writes of a kind has one of its marks.
typedef struct cy_output_kind {
    const char *name;                                // "a table of runs", for messages
    cy_output_signature marks[CY_OUTPUT_SIGNATURES]; // all NULL: none
} cy_output_kind;

// Pictures. Whoever draws one puts the comment on a line of its own behind the opening tag.
#define CY_OUTPUT_SVG_COMMENT "<!-- drawn by cyclotron -->"
extern const cy_output_kind cy_output_svg;

// Whether a file of that kind may be put at `path`, which need not be there. CY_ERR_REQUEST names
// what stands there and is not replaced. To be asked before long work as well.
CY_MUST_CHECK cy_status cy_output_check(const char *path, const cy_output_kind *kind);

// Writes bytes [count], which have a mark of the kind, whole or not at all. A place that is taken
// is refused as cy_output_check refuses it.
CY_MUST_CHECK cy_status cy_output_write(
    const char *path, const cy_output_kind *kind, const void *bytes, size_t count);

// ---- locks of folders
//
// a folder that one run at a time may use, whichever machine it is on.

// A way to use a folder. Each has a file of its own, so that one run may use a folder in two ways.
typedef struct cy_folder_lock_kind {
    const char *file;  // borrowed: a name in the folder
    const char *doing; // borrowed: "saves its checkpoints in", for the message
    const char *hint;  // borrowed: what to do when another run does
} cy_folder_lock_kind;

// Holds FOLDER/FILE, made where it is not there, until the descriptor *fd is closed or the process
// ends, however it ends. Where another run holds it: CY_ERR_REQUEST with its process and host.
CY_MUST_CHECK cy_status cy_folder_lock_acquire(
    int *fd, const char *folder, const cy_folder_lock_kind *use);

// ---- pending folders
//
// a folder that is made beside its place and renamed when it is whole.
//
// Each attempt has a name of its own, so several may make the same folder at once: the first that
// is whole gets the name, the others are refused then. A lock in the folder says that its maker
// lives. What dead ones left is removed by the next that makes a folder of that name.

typedef struct cy_pending_folder {
    char *place;  // owned: where the folder will stand
    char *parent; // owned
    char *making; // owned: PARENT/.NAME.0123456789abcdef.tmp; not made yet
    int lock;     // -1: not made yet
} cy_pending_folder;

// A path that is taken, unless by an empty folder, is refused. Changes nothing there.
CY_MUST_CHECK cy_status cy_pending_folder_open(cy_pending_folder *place, const char *path);

// To be called before something is written: makes the folders above the place, removes what dead
// attempts left beside it, and makes the folder `making`.
CY_MUST_CHECK cy_status cy_pending_folder_make(cy_pending_folder *place);

// With CY_OK gives the folder `making` its name; otherwise removes it. Returns `status`, or what
// went wrong in naming it. Frees the place.
CY_MUST_CHECK cy_status cy_pending_folder_close(cy_pending_folder *place, cy_status status);

#endif
