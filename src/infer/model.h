// infer/model.h: opening a folder for inference: the shape and dtype of its model, its tokenizer,
// its weights in a decoder.

#ifndef CY_INFER_MODEL_H
#define CY_INFER_MODEL_H

#include <cyclotron/tokenizer.h>

#include "checkpoint/checkpoint.h"
#include "infer/decoder.h"

// The folder `given` names: a checkpoint, the newest of a folder of them, or a Hugging Face folder.
// *dtype is that of its training, or of its files.
CY_MUST_CHECK cy_status cy_model_find(
    cy_checkpoint *checkpoint, cy_dtype *dtype, const char *given);

// Reads a dtype that models compute in, as the command line names it.
CY_MUST_CHECK cy_status cy_model_dtype(cy_dtype *dtype, const char *name);

// The tokenizer.json of the folder. *tokenizer is owned by the caller.
CY_MUST_CHECK cy_status cy_model_tokenizer(
    cy_tokenizer **tokenizer, const cy_checkpoint *checkpoint);

// Fills the weights of an opened decoder.
CY_MUST_CHECK cy_status cy_model_load(cy_decoder *decoder, cy_checkpoint *checkpoint);

#endif
