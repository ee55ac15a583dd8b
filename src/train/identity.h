// train/identity.h: compares what a run starts from: its tokenizer, data and settings with those of
// its checkpoint, and the files of its ranks with each other.
//
// The identity of a run is stored in its checkpoints (checkpoint/identity.h). A difference that
// cannot be intended, such as another tokenizer, is an error that names checkpoint.accept. A
// difference that may be intended, such as another seed or learning rate, is one line. Every
// process of a run compares its own files, which may lie on a disk of its machine, and the
// processes compare their results: an older copy, or a folder that is not shared, must not be used
// unnoticed.

#ifndef CY_TRAIN_IDENTITY_H
#define CY_TRAIN_IDENTITY_H

#include "checkpoint/identity.h"
#include "train/data_iterator.h"
#include "train/ranks.h"

// The checkpoint that a run starts from. All zeros: there is none.
typedef struct cy_start_point {
    bool from_checkpoint; // or from a Hugging Face folder
    bool weights_only;
    int64_t step;
    uint64_t
        content; // a hash of the checkpoint's checksums; of a Hugging Face folder, of its sizes
} cy_start_point;

// *identity is owned by the caller.
CY_MUST_CHECK cy_status cy_identity_of_run(
    cy_identity *identity, const cy_config *config, const cy_run_data *data);

// Compares a run with the checkpoint or the Hugging Face folder at `path` that it starts from: the
// tokenizer, and, unless only weights are loaded, the sources, the order of samples and the
// settings that determine the next steps. Adds a line, with its line end, to *lines for each
// difference that is no error, and for a checkpoint without an identity. *start, unless NULL, is
// for cy_same_start_check.
CY_MUST_CHECK cy_status cy_identity_compare(cy_text *lines, const cy_identity *run,
    const cy_config *config, const cy_run_data *data, const char *path, bool weights_only,
    cy_start_point *start);

// Compares tokenizer, data and start of all ranks with those of rank 0. Collective over the world.
// After a difference all ranks fail with CY_ERR_REQUEST and the same text: "rank 3 reads other
// tokens than rank 0 in data.txt: 990, rank 0 1000".
CY_MUST_CHECK cy_status cy_same_start_check(cy_engine *engine, const cy_rank *rank,
    const cy_identity *identity, const cy_start_point *start);

#endif
