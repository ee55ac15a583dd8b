// checkpoint/manifest.h: the manifest of a checkpoint as JSON, and its parts in memory.
//
// What a manifest says is checked against itself when it is read: shapes, ranges, names, that every
// element of every tensor is there exactly once, and the checksum over the manifest's own text.
// Nothing here touches a file. Used inside src/checkpoint only.

#ifndef CY_CHECKPOINT_MANIFEST_H
#define CY_CHECKPOINT_MANIFEST_H

#include "checkpoint/checkpoint.h"

#define CY_MANIFEST_NAME      "manifest.json"
#define CY_MANIFEST_BYTES_MAX ((size_t)1 << 30)

// Number of chunks of so many bytes.
int64_t cy_chunk_count(uint64_t bytes);

// The first `count` bytes of a file belong to no tensor: sets its head_bytes and their checksums.
CY_MUST_CHECK cy_status cy_checkpoint_file_head(
    cy_checkpoint_file *file, const void *bytes, size_t count);

uint64_t cy_stored_shard_bytes(const cy_stored_shard *piece);

// "model.norm.weight", with the kind in front of it unless it is a weight.
void cy_tensor_full_name(char *text, size_t bytes, const cy_global_tensor *tensor);

// Adds the text of manifest.json. The texts in it were checked to be JSON objects by the caller.
CY_MUST_CHECK cy_status cy_checkpoint_to_json(cy_text *json, const cy_checkpoint *checkpoint);

// Reads it; `where` names it in errors. With `part` it is what one rank wrote: tensors need not be
// covered. The path is left NULL. On failure nothing is owned.
CY_MUST_CHECK cy_status cy_checkpoint_from_json(
    cy_checkpoint *checkpoint, const char *json, size_t length, const char *where, bool part);

// Sorts the tensors by kind and name and checks that each is covered once and named once.
CY_MUST_CHECK cy_status cy_checkpoint_finalize(
    cy_checkpoint *checkpoint, const char *where, bool part);

#endif
