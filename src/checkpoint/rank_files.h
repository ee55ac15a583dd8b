// checkpoint/rank_files.h: what one rank writes of a checkpoint.
//
// Used inside src/checkpoint only. A rank writes its weights to weights-00000.safetensors and the
// rest to optimizer-00000.safetensors, with its number in the names, and tells rank 0 what lies
// where in a file part-00000.json, which is no longer there when the checkpoint stands.

#ifndef CY_CHECKPOINT_RANK_FILES_H
#define CY_CHECKPOINT_RANK_FILES_H

#include "checkpoint/save.h"

// Writes this rank's files into `folder` and forces them to disk, past the page cache, as one of so
// many ranks that write at the same time. *bytes is what was written.
CY_MUST_CHECK cy_status cy_rank_files_write(
    int64_t *bytes, const cy_save *save, const char *folder, int rank, int ranks);

// Rank 0: reads the parts of all ranks and fills in files, tensors and pieces of `checkpoint`,
// which the caller closes, also after a failure. Checks that every tensor is covered once.
CY_MUST_CHECK cy_status cy_rank_files_collect(
    cy_checkpoint *checkpoint, const cy_save *save, const char *folder, int ranks);

// FOLDER/part-00000.json, owned by the caller.
CY_MUST_CHECK cy_status cy_rank_files_part_path(char **path, const char *folder, int rank);

#endif
