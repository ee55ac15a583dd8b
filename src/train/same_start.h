// train/same_start.h: whether all ranks of a run begin with the same tokenizer, data and
// checkpoint.
//
// Each process reads its own, which may lie on a disk of its machine: a copy that is older than the
// others, or a folder that is not shared, would otherwise be trained on without a word.

#ifndef CY_TRAIN_SAME_START_H
#define CY_TRAIN_SAME_START_H

#include "checkpoint/identity.h"
#include "train/ranks.h"

// What a run starts from. All zeros: from nothing.
typedef struct cy_start_point {
    bool from_checkpoint; // or from a Hugging Face folder
    bool weights_only;
    int64_t step;
    uint64_t content; // a hash of what the checkpoint holds; of a Hugging Face folder, of its sizes
} cy_start_point;

cy_start_point cy_start_point_of(const cy_checkpoint *checkpoint, bool weights_only);

// Collective over the world. CY_ERR_REQUEST, on every rank with the same text, where a rank has
// something else than rank 0: "rank 3 reads other tokens than rank 0 in data.txt: ...".
CY_MUST_CHECK cy_status cy_same_start_check(cy_engine *engine, const cy_rank *rank,
    const cy_identity *identity, const cy_start_point *start);

#endif
