// base/folder_lock.h: a folder that one run at a time may use, whichever machine it is on.

#ifndef CY_BASE_FOLDER_LOCK_H
#define CY_BASE_FOLDER_LOCK_H

#include "base/status.h"

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

#endif
