// checkpoint/hf/export_texts.h: the small files of a Hugging Face folder beside its weights.
//
// Used inside src/checkpoint only.

#ifndef CY_CHECKPOINT_HF_EXPORT_TEXTS_H
#define CY_CHECKPOINT_HF_EXPORT_TEXTS_H

#include "checkpoint/checkpoint.h"

// Writes FOLDER/NAME.
CY_MUST_CHECK cy_status cy_export_text(const char *folder, const char *name, const cy_text *text);

// generation_config.json, and the tokenizer's files where the checkpoint has a tokenizer: copies of
// what the checkpoint holds, otherwise made from the model's shape and the tokenizer.
CY_MUST_CHECK cy_status cy_export_texts(const cy_checkpoint *source, const char *folder);

#endif
