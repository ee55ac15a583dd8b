// checkpoint/safetensors.h: reads and makes the header of a safetensors file.
//
// A file is an 8-byte little-endian length, a JSON header of that many bytes, and the tensors'
// bytes one after the other without gaps. Reading a header checks all of it against itself and
// against the size of the file, so the ranges of an accepted header can be read without further
// checks. Tensors need not be aligned, since files without alignment exist and nothing here maps
// tensors.
//
// A header owns its entries and borrows nothing. Different headers may be used from different
// threads. Failures name the file and the tensor.

#ifndef CY_CHECKPOINT_SAFETENSORS_H
#define CY_CHECKPOINT_SAFETENSORS_H

#include <cyclotron/dtype.h>

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

#define CY_SAFETENSORS_DIMENSIONS 8
#define CY_SAFETENSORS_HEADER_MAX ((uint64_t)100 << 20)

typedef struct cy_safetensors_entry {
    char *name; // owned by the header
    cy_dtype dtype;
    int dimensions; // 0 is a scalar
    int64_t dims[CY_SAFETENSORS_DIMENSIONS];
    uint64_t offset; // of its first byte in the file
    uint64_t bytes;
} cy_safetensors_entry;

typedef struct cy_safetensors {
    cy_safetensors_entry *entries; // owned, [count], in the order of their offsets
    int count;
    uint64_t data_first; // offset of the first tensor byte: 8 + the header's length
    uint64_t file_bytes;
    char *metadata; // owned: __metadata__ as JSON text, or NULL
} cy_safetensors;

// The name of a dtype in a header ("BF16"), or NULL for a dtype that the format does not have.
const char *cy_safetensors_dtype_name(cy_dtype dtype);

// Reads the header of a file of `file_bytes` bytes whose first `count` are at `bytes`: at least the
// length and the header. `path` is for the texts of errors. On failure nothing is owned.
CY_MUST_CHECK cy_status cy_safetensors_parse(
    cy_safetensors *file, const char *path, const void *bytes, size_t count, uint64_t file_bytes);

// As cy_safetensors_parse, from the file at `path`. Reads the header only.
CY_MUST_CHECK cy_status cy_safetensors_open(cy_safetensors *file, const char *path);
void cy_safetensors_close(cy_safetensors *file);

// The entry of that name, or NULL.
const cy_safetensors_entry *cy_safetensors_find(const cy_safetensors *file, const char *name);

// Makes a JSON string of a name. Fails with CY_ERR_REQUEST, "`what` is not UTF-8", where it is not.
CY_MUST_CHECK cy_status cy_safetensors_name_to_json(
    json_t **value, const char *name, const char *what);

// Makes the length and the header of a file that will hold these entries [count] in this order, in
// an empty text, and sets their offsets and bytes. `metadata` is a JSON object of strings, or NULL.
// The data begins at a multiple of 64 bytes.
CY_MUST_CHECK cy_status cy_safetensors_header(
    cy_text *header, cy_safetensors_entry *entries, int count, const char *metadata);

#endif
