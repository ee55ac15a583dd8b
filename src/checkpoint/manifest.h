// checkpoint/manifest.h: the manifest of a checkpoint as JSON and in memory, and its checksums.
//
// Reading a manifest checks what it says against itself: shapes, ranges, names, that every element
// of every tensor is there exactly once, and the checksum over the manifest's own text. Nothing
// here touches a file. Pure functions, safe from any thread. Failures name the manifest, and the
// file or tensor in it.

#ifndef CY_CHECKPOINT_MANIFEST_H
#define CY_CHECKPOINT_MANIFEST_H

#include "checkpoint/checkpoint.h"

#define CY_MANIFEST_NAME      "manifest.json"
#define CY_MANIFEST_BYTES_MAX ((size_t)1 << 30)

// ---- checksums

#define CY_CHUNK_BYTES     ((size_t)1 << 20)
#define CY_CHECKSUM_DIGITS 16 // of a checksum in hexadecimal

// XXH64 with seed 0. It guards against faults of disks and programs, not against attackers.
uint64_t cy_checksum(const void *bytes, size_t count);

// Number of chunks of `bytes` bytes.
int64_t cy_chunk_count(uint64_t bytes);

// Says that the first `count` bytes of a file belong to no tensor: sets its head_bytes and their
// checksums.
CY_MUST_CHECK cy_status cy_checkpoint_file_head(
    cy_checkpoint_file *file, const void *bytes, size_t count);

// ---- the manifest

uint64_t cy_stored_shard_bytes(const cy_stored_shard *piece);

// "model.norm.weight", with the kind in front of it unless it is a weight.
void cy_tensor_full_name(char *text, size_t bytes, const cy_global_tensor *tensor);

// Adds the text of manifest.json. The caller has checked that config_json, state_json and
// identity_json are JSON objects.
CY_MUST_CHECK cy_status cy_checkpoint_to_json(cy_text *json, const cy_checkpoint *checkpoint);

// Reads it; `where` names it in errors. With `part` it is what one rank wrote, which need not cover
// the tensors. The path is left NULL. On failure nothing is owned.
CY_MUST_CHECK cy_status cy_checkpoint_from_json(
    cy_checkpoint *checkpoint, const char *json, size_t length, const char *where, bool part);

// Sorts the tensors by kind and name. Checks that no name occurs twice and, without `part`, that
// the stored shards of each tensor cover it exactly once.
CY_MUST_CHECK cy_status cy_checkpoint_finalize(
    cy_checkpoint *checkpoint, const char *where, bool part);

#endif
