// checkpoint/hf/reader.h: a Hugging Face folder as a checkpoint of weights.
//
// Used inside src/checkpoint only; see checkpoint.h for the rules.

#ifndef CY_CHECKPOINT_HF_READER_H
#define CY_CHECKPOINT_HF_READER_H

#include "checkpoint/checkpoint.h"

// Reads config.json and the headers of model.safetensors, or of the files that
// model.safetensors.index.json names. `checkpoint` is zeroed but for its path; what is filled in is
// closed by the caller also after a failure.
CY_MUST_CHECK cy_status cy_hf_open(cy_checkpoint *checkpoint);

#endif
