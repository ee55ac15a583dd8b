// model/decode.h: the forward pass of generation: new tokens against the keys and values of all
// earlier ones, which live in pages.
//
// One pass serves a whole prompt (prefill) and a single token (decode). Row i of the activations is
// a token of sequence sequences[i] at position positions[i]; its key and value are written to the
// pages before any row attends. Logits are those of the training forward of the same tokens.

#ifndef CY_MODEL_DECODE_H
#define CY_MODEL_DECODE_H

#include "model/block.h"
#include "model/embed.h"
#include "model/head.h"

// The new tokens of one pass. Arrays are [tokens]; `pages` is [layers], the cache of each layer,
// with one page table. `page_table_host` is the table as the host sees it.
typedef struct cy_decode_batch {
    int64_t tokens;
    const int32_t *inputs;    // device memory
    const int32_t *positions; // device memory
    const int32_t *sequences; // device memory
    const int32_t *positions_host;
    const int32_t *sequences_host;
    const int32_t *page_table_host;
    const cy_kv_pages *pages; // host
} cy_decode_batch;

// Writes k and v [tokens, cols] of a batch's tokens to their places in the pages of one layer,
// whose keys and values have as many columns: all kv heads', or those of some.
void cy_decode_write_pages(
    cy_queue *queue, const cy_kv_pages *pages, cy_view k, cy_view v, const cy_decode_batch *batch);

// x [tokens, hidden] = the last layer's output for batch->inputs.
CY_MUST_CHECK cy_status cy_decode_forward(const cy_model_context *context,
    const cy_storage *storage, cy_view x, const cy_decode_batch *batch);

#endif
