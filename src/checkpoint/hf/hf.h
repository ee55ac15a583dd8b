// checkpoint/hf/hf.h: whole Hugging Face folders in and out.
//
// A Hugging Face folder can be opened as it is (cy_checkpoint_open); importing turns it into a
// checkpoint of ours, with checksums, and exporting makes a folder that transformers loads. Both
// write beside their place and rename, stream their bytes, and refuse a place that is taken. One
// rank alone does them. Failures name the file and the tensor and leave nothing behind.

#ifndef CY_CHECKPOINT_HF_HF_H
#define CY_CHECKPOINT_HF_HF_H

#include "checkpoint/checkpoint.h"

// What a model needs as global tensors of weights. *tensors is owned by the caller (one block, the
// names too); the dtype is fp32.
CY_MUST_CHECK cy_status cy_checkpoint_weights_of(
    cy_global_tensor **tensors, int *count, const cy_model_shape *shape);

// `to` becomes a checkpoint of step 0 with the weights in the dtype they have. With `link` its
// files are those of the folder under a second name (hard links): nothing is copied, and what
// writes into the folder's files writes into the checkpoint's, where checksums tell it.
// CY_ERR_REQUEST where the two would be on different file systems.
CY_MUST_CHECK cy_status cy_checkpoint_import(const char *from, const char *to, bool link);

typedef struct cy_export_options {
    bool keep_dtype; // of the stored tensors; otherwise `dtype`
    cy_dtype dtype;
    uint64_t shard_bytes; // above it the weights are several files with an index
} cy_export_options;

// `to` becomes config.json, model.safetensors or its shards and index, generation_config.json and,
// where the checkpoint has a tokenizer, tokenizer.json and tokenizer_config.json.
CY_MUST_CHECK cy_status cy_checkpoint_export(
    const char *from, const char *to, const cy_export_options *options);

// Used inside src/checkpoint only: reads config.json and the headers of model.safetensors, or of
// the files that model.safetensors.index.json names, and reads no tensor. `checkpoint` is zeroed
// but for its path; the caller closes it, after a failure too.
CY_MUST_CHECK cy_status cy_hf_open(cy_checkpoint *checkpoint);

#endif
