// checkpoint/hf/hf.h: imports and exports Hugging Face folders.
//
// cy_checkpoint_open opens a Hugging Face folder as it is. Importing makes a checkpoint of it, with
// checksums; exporting makes a folder that transformers loads. Both stream their bytes into a
// folder beside the target and rename it, and refuse a target that exists. One rank alone calls
// them. Failures name the file and the tensor and leave nothing behind.

#ifndef CY_CHECKPOINT_HF_HF_H
#define CY_CHECKPOINT_HF_HF_H

#include "checkpoint/checkpoint.h"

// The weights that a model needs, as global tensors [*count] of dtype fp32. *tensors is owned by
// the caller: one block, with the names in it.
CY_MUST_CHECK cy_status cy_checkpoint_weights_of(
    cy_global_tensor **tensors, int *count, const cy_model_shape *shape);

// Makes `to` a checkpoint of step 0 with the weights of `from` in the dtype that they have. With
// `link` its files are hard links to those of the folder: nothing is copied, and a later write to
// the folder's files changes the checkpoint's, which its checksums show. CY_ERR_REQUEST where the
// two would be on different file systems.
CY_MUST_CHECK cy_status cy_checkpoint_import(const char *from, const char *to, bool link);

typedef struct cy_export_options {
    bool keep_dtype; // of the stored tensors; otherwise `dtype`
    cy_dtype dtype;
    uint64_t shard_bytes; // above it the weights are several files with an index
} cy_export_options;

// Makes `to` a folder of config.json, model.safetensors or several shards with an index,
// generation_config.json and, where the checkpoint has a tokenizer, tokenizer.json and
// tokenizer_config.json. CY_ERR_NOT_FINITE where a value is not finite, or not in the new dtype.
CY_MUST_CHECK cy_status cy_checkpoint_export(
    const char *from, const char *to, const cy_export_options *options);

// Used inside src/checkpoint only: reads config.json and the headers of model.safetensors, or of
// the files that model.safetensors.index.json names, and reads no tensor. `checkpoint` is zeroed
// but for its path; the caller closes it, after a failure too.
CY_MUST_CHECK cy_status cy_hf_open(cy_checkpoint *checkpoint);

#endif
