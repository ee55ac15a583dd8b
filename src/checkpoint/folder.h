// checkpoint/folder.h: names, lists, locks and sweeps a folder of checkpoints.
//
// A checkpoint of step 100 is the folder step-00000100; an entry whose name begins with ".step-" is
// being written or being removed. Failures name the path.

#ifndef CY_CHECKPOINT_FOLDER_H
#define CY_CHECKPOINT_FOLDER_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

// The steps of the checkpoints in a folder, ascending. *steps is owned by the caller.
CY_MUST_CHECK cy_status cy_folder_steps(int64_t **steps, int *count, const char *folder);

// Fails where the name of a checkpoint after `step` is a symbolic link without a target. The newest
// checkpoint may be on a disk that is not mounted.
CY_MUST_CHECK cy_status cy_folder_check_links(const char *folder, int64_t step);

// The number of entries with the name of a checkpoint, complete or not, for a message; 0 where the
// folder cannot be read.
int cy_folder_step_names(const char *folder);

// Removes PATH in FOLDER, which does not have, or no longer has, the name of a checkpoint. The
// names are forced to the disk first: otherwise a loss of power could bring the old name back to a
// folder that has lost files. Succeeds where PATH is missing.
CY_MUST_CHECK cy_status cy_folder_remove_renamed(const char *folder, const char *path);

// FOLDER/step-00000100, or with prefix "." and suffix ".tmp" FOLDER/.step-00000100.tmp. *path is
// owned by the caller.
CY_MUST_CHECK cy_status cy_folder_step_path(
    char **path, const char *folder, const char *prefix, int64_t step, const char *suffix);

// FOLDER/NAME, owned by the caller.
CY_MUST_CHECK cy_status cy_folder_join(char **path, const char *folder, const char *name);

// Removes what dead runs left: every entry that begins with ".step-". *count is how many.
CY_MUST_CHECK cy_status cy_folder_sweep(int *count, const char *folder);

#define CY_FOLDER_LOCK_NAME ".lock"

// Holds FOLDER/.lock until the descriptor is closed or the process ends, however it ends.
CY_MUST_CHECK cy_status cy_folder_lock(int *fd, const char *folder);

#endif
