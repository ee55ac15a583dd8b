// train/identity.h: whether a run goes on with the tokenizer and the data of its checkpoint.
//
// The identity of a run is what its checkpoints keep (checkpoint/identity.h). A difference that
// nobody can mean is an error that names checkpoint.accept; one that may be meant is one line.
// Every process of a run compares for itself; one of them tells.

#ifndef CY_TRAIN_IDENTITY_H
#define CY_TRAIN_IDENTITY_H

#include "checkpoint/identity.h"
#include "train/data_iterator.h"
#include "train/ranks.h"

// What a run starts from. All zeros: from nothing.
typedef struct cy_start_point {
    bool from_checkpoint; // or from a Hugging Face folder
    bool weights_only;
    int64_t step;
    uint64_t content; // a hash of what the checkpoint holds; of a Hugging Face folder, of its sizes
} cy_start_point;

// *identity is owned by the caller.
CY_MUST_CHECK cy_status cy_identity_of_run(
    cy_identity *identity, const cy_config *config, const cy_run_data *data);

// Compares a run with the checkpoint or the Hugging Face folder at `path` that it starts from: the
// tokenizer, and, unless only weights are taken, sources, order and settings. Adds one line to
// *lines, each with its line end, for each difference that is let pass, and for a checkpoint
// without an identity. *start, unless NULL, is what to compare between ranks.
CY_MUST_CHECK cy_status cy_identity_compare(cy_text *lines, const cy_identity *run,
    const cy_config *config, const cy_run_data *data, const char *path, bool weights_only,
    cy_start_point *start);

// Collective over the world. CY_ERR_REQUEST, on every rank with the same text, where a rank has
// something else than rank 0: "rank 3 reads other tokens than rank 0 in data.txt: ...".
CY_MUST_CHECK cy_status cy_same_start_check(cy_engine *engine, const cy_rank *rank,
    const cy_identity *identity, const cy_start_point *start);

#endif
