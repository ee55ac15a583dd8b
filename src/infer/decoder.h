// infer/decoder.h: a model with a cache of keys and values that reads tokens and gives the logits
// of the next one; and opening a checkpoint or a Hugging Face folder into it.
//
// Opening plans the memory as an engine does: a dry pass over the longest chunk of a prompt, then
// one range for scratch and one for the rest. The cache holds, for every layer, a key and a value
// of kv_heads * head_dim elements for each position: 2 * layers * kv_heads * head_dim * capacity
// elements, in the model's dtype, in pages. Queries are not kept: no later token reads them.
//
// One thread uses a decoder. After opening, reading a token, or a chunk of a prompt as long as the
// one before, allocates nothing. A chunk of another length is measured first: most fit into the
// scratch of the longest one; where operators cut its rows differently and take more, the scratch
// grows.

#ifndef CY_INFER_DECODER_H
#define CY_INFER_DECODER_H

#include <cyclotron/tokenizer.h>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "kernel/dispatch.h"
#include "model/decode.h"

typedef struct cy_decoder_options {
    cy_model_shape shape;
    cy_dtype dtype;
    int64_t capacity; // positions that the cache has room for
    int64_t chunk;    // tokens of a prompt read at once; 0: 512
    int threads;
    int first_core;     // -1: not pinned
    const char *isa;    // "auto"
    const char *device; // "cpu" or another name that cy_device_open knows; NULL: "cpu"
} cy_decoder_options;

// What a pass reads of its tokens. The host writes one copy, kernels read another.
typedef struct cy_decoder_rows {
    int32_t *inputs, *positions, *sequences; // [chunk]
    int32_t *page_table;                     // [pages of the sequence]
} cy_decoder_rows;

typedef struct cy_decoder {
    cy_decoder_options options;
    cy_device *device;    // owned
    cy_thread_pool *pool; // owned
    cy_kernels kernels;
    cy_queue queue;
    cy_storage storage; // owned; its weights lie in `mapped`
    cy_model_context context;
    cy_head head;
    cy_decode_token row; // owned: the pass of one token, where the host has access to the device
    void *mapped;        // owned, device memory: run and row
    size_t mapped_bytes;
    void *scratch_mapped; // owned, device memory
    size_t scratch_bytes;
    void *pinned; // owned, host memory: host_rows
    size_t pinned_bytes;
    int64_t reach;    // the length that dynamic scaling is set for
    int64_t measured; // tokens of the last pass that was measured to fit
    cy_arena run, scratch;
    cy_view weights;           // [1, n]: of all parameters
    cy_kv_pages *pages;        // owned, [layers]
    cy_decoder_rows rows;      // device memory
    cy_decoder_rows host_rows; // in `pinned`
    cy_event rows_copied;      // the host's rows may be written again
    cy_view hidden;            // [chunk, hidden]
    cy_view logits;            // [1, vocab] fp32 or fp64
    cy_view logits_f32;        // likewise; the same memory where logits are fp32
    int64_t length;            // positions in the cache
    // A single token goes operator by operator too: where the host has no access to the device, and
    // for tests to compare.
    bool one_by_one;
} cy_decoder;

// Opens in place, with weights undefined: the caller loads them into decoder->storage.
CY_MUST_CHECK cy_status cy_decoder_open(cy_decoder *decoder, const cy_decoder_options *options);
void cy_decoder_close(cy_decoder *decoder);

// Sets the length that a text will have at most: `count` tokens and `more`, or the capacity.
// Positions that are scaled by the length of the text (rope_type dynamic) are scaled for it;
// opening sets the capacity. Call it only while the cache is empty.
CY_MUST_CHECK cy_status cy_decoder_set_reach(cy_decoder *decoder, int64_t count, int64_t more);

// Bytes of the cache.
size_t cy_decoder_cache_bytes(const cy_decoder *decoder);

// Forgets all positions from `length` on.
void cy_decoder_rewind(cy_decoder *decoder, int64_t length);

// Reads tokens [count] behind those in the cache and writes the logits [vocab] of the token after
// the last of them, on the host. More tokens than the cache has room for is CY_ERR_REQUEST, with
// both numbers, before anything is read.
CY_MUST_CHECK cy_status cy_decoder_read(
    cy_decoder *decoder, float *logits, const int32_t *tokens, int64_t count);

// ---- opening a folder

// Opens the folder that `given` names: a checkpoint, the newest in a folder of them, or a Hugging
// Face folder. *dtype is the dtype that it was trained in, or that of its files.
CY_MUST_CHECK cy_status cy_model_find(
    cy_checkpoint *checkpoint, cy_dtype *dtype, const char *given);

// Reads the name of a dtype that models compute in.
CY_MUST_CHECK cy_status cy_model_dtype(cy_dtype *dtype, const char *name);

// Opens the tokenizer.json of the folder. *tokenizer is owned by the caller.
CY_MUST_CHECK cy_status cy_model_tokenizer(
    cy_tokenizer **tokenizer, const cy_checkpoint *checkpoint);

// Fills the weights of an opened decoder.
CY_MUST_CHECK cy_status cy_model_load(cy_decoder *decoder, cy_checkpoint *checkpoint);

#endif
