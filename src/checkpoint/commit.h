// checkpoint/commit.h: what rank 0 does for a checkpoint: begin it, complete it, give it its
// name.
//
// Used inside src/checkpoint only. The folder `pending` has a name that starts with a dot; `target`
// is where the checkpoint will stand.

#ifndef CY_CHECKPOINT_COMMIT_H
#define CY_CHECKPOINT_COMMIT_H

#include "checkpoint/save.h"

// Checks the texts and makes an empty folder in `folder`.
CY_MUST_CHECK cy_status cy_commit_begin(
    const cy_save *save, const char *folder, const char *pending);

// When all ranks have written: adds the copied files and the manifest, removes the ranks' parts,
// forces the folder to disk.
CY_MUST_CHECK cy_status cy_commit_manifest(const cy_save *save, const char *pending, int ranks);

// Renames. What stands at `target` is taken away in the same instant where the file system can
// exchange two names, otherwise it is first renamed to `old`. `folder` holds them all. The files of
// what was replaced stay under a name that a sweep of the folder removes.
CY_MUST_CHECK cy_status cy_commit_rename(
    const char *folder, const char *pending, const char *target, const char *old);

#endif
