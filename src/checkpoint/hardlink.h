// checkpoint/hardlink.h: the files of a Hugging Face folder taken into a checkpoint without a copy.
//
// Used inside src/checkpoint only, by one rank alone.

#ifndef CY_CHECKPOINT_HARDLINK_H
#define CY_CHECKPOINT_HARDLINK_H

#include "checkpoint/checkpoint.h"

// Gives the weights' files of `source`, a Hugging Face folder, a second name in `folder` (a hard
// link), reads them once for their checksums, which `source` then holds, and tells rank 0 what lies
// where, as cy_rank_files_write() does. CY_ERR_REQUEST where the two folders are on different file
// systems.
CY_MUST_CHECK cy_status cy_hardlink_files(cy_checkpoint *source, const char *folder);

#endif
