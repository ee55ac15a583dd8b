// checkpoint/identity.h: reads and writes the identity of a checkpoint's tokenizer and data.
//
// It is the manifest's member `identity`: a fingerprint of the tokenizer, one of each source of the
// data, and the settings that decide the order of samples. docs/formats/checkpoint.md describes it.
// train/identity.h compares two identities.

#ifndef CY_CHECKPOINT_IDENTITY_H
#define CY_CHECKPOINT_IDENTITY_H

#include "checkpoint/checkpoint.h"
#include "data/source.h"

#define CY_IDENTITY_PATH_BYTES 1024

typedef struct cy_source_identity {
    char path[CY_IDENTITY_PATH_BYTES]; // for messages, and to tell a change from a choice
    double weight;                     // 0: by size
    cy_fingerprint whole;
    cy_fingerprint start; // without the last tokens, which may change when more text follows
} cy_source_identity;

typedef struct cy_identity {
    uint64_t tokenizer; // cy_tokenizer_fingerprint; 0: the data has none
    int64_t seed;
    int64_t seq_length;
    int64_t num_samples;   // 0: all
    int64_t batch_samples; // samples of a step, over all replicas
    double validation_fraction;
    cy_source_identity *sources; // owned, [source_count]
    int source_count;
} cy_identity;

void cy_identity_free(cy_identity *identity);

// Adds it as a JSON object.
CY_MUST_CHECK cy_status cy_identity_to_json(cy_text *json, const cy_identity *identity);

// Reads checkpoint->identity_json, which must not be NULL. *identity is owned by the caller.
CY_MUST_CHECK cy_status cy_identity_read(cy_identity *identity, const cy_checkpoint *checkpoint);

// The fingerprint of a tokenizer that is not byte-level BPE: it equals that of no run.
#define CY_TOKENIZER_OTHER UINT64_MAX

// The fingerprint of the tokenizer that a model was trained with: from its manifest, otherwise from
// the tokenizer.json in its folder; 0 where there is neither.
CY_MUST_CHECK cy_status cy_identity_tokenizer(
    uint64_t *fingerprint, const cy_checkpoint *checkpoint);

// Fails with CY_ERR_REQUEST where `tokenizer`, the tokenizer.json of a checkpoint, is not the one
// that its model was trained with. A checkpoint without a fingerprint passes.
CY_MUST_CHECK cy_status cy_identity_check_own_tokenizer(
    const cy_checkpoint *checkpoint, const cy_tokenizer *tokenizer);

#endif
