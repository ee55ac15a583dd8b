// model/decode.h: the forward pass of generation: new tokens against the keys and values of all
// earlier ones, which live in pages. There are two passes with the same result: for a batch of
// tokens, operator by operator, and for one token, by all threads of a rank as one team.
//
// The first serves a whole prompt (prefill) and a single token (decode). Row i of the activations
// is a token of sequence sequences[i] at position positions[i]; its key and value are written to
// the pages before any row attends. Logits are those of the training forward of the same tokens.

#ifndef CY_MODEL_DECODE_H
#define CY_MODEL_DECODE_H

#include "model/block.h"
#include "model/head.h"

// x [tokens, hidden] = the last layer's output for the tokens of a batch with a cache.
CY_MUST_CHECK cy_status cy_decode_forward(const cy_model_context *context,
    const cy_storage *storage, cy_view x, const cy_microbatch *batch);

// ---- one token, by a team of threads
//
// The cost of a token is reading all weights once, so the memory must be busy all the time. With
// one task per operator it idles three hundred times a token: while tasks are posted, while one
// thread computes a norm and the others wait, and until each new stream of weights reaches full
// speed. Here a token is one task. Every thread walks through all layers: it computes its own rows
// of each product and repeats the small operators. Five barriers a layer are needed, because a
// product reads what all threads have written; a thread that waits prefetches its next weights:
//
//   norm* q k v | rope*, cache, split attention | combine* out | norm* gate up swiglu | down |
//
//   *: every thread computes it; |: a barrier
//
// Attention is split by keys, so that threads share it evenly whatever the number of heads. The
// operators are those of the pass for a batch, in the same order on the same rows, or parts of them
// that give the same bits when they are combined, so the logits are the same bits.
//
// The shared arrays and each thread's own lie in memory that the caller plans: describe, plan,
// place. One thread uses it; a call cannot fail.

typedef struct cy_decode_token_layer cy_decode_token_layer;   // the weights of a layer
typedef struct cy_decode_token_worker cy_decode_token_worker; // the state of one thread

typedef struct cy_decode_token {
    const cy_model_context *context; // borrowed; of a tensor group of one
    const cy_kv_pages *pages;        // borrowed, [layers]
    int workers;
    cy_decode_token_layer *layers; // owned, [layers]
    cy_decode_token_worker *each;  // owned, [workers]
    size_t worker_bytes;           // of scratch memory, each
    cy_view embedding, final_norm; // weights
    cy_view head;                  // [vocab, hidden], weights
    // Shared by the threads; each writes its own columns.
    cy_view qkv;    // [1, (heads + 2 kv_heads) head_dim]
    cy_view parts;  // [parts of attention, cy_attention_split_cols]
    cy_view branch; // [1, hidden]: of attention, then of the feed-forward part
    cy_view act;    // [1, ffn]
} cy_decode_token;

CY_MUST_CHECK cy_status cy_decode_token_open(cy_decode_token *row, const cy_model_context *context);
void cy_decode_token_close(cy_decode_token *row);

// Takes the arrays from `run`, which may only measure, and notes where weights and pages are.
void cy_decode_token_alloc(
    cy_decode_token *row, cy_arena *run, const cy_head *head, const cy_kv_pages *pages);

// After taking: bytes of scratch memory of all threads together, found by a dry walk.
size_t cy_decode_token_plan(cy_decode_token *row);

// Gives the threads so many bytes at `base`, which is borrowed.
void cy_decode_token_bind(cy_decode_token *row, void *base);

// logits [1, vocab] of batch->inputs, which is one token; its key and value are written.
void cy_decode_token_forward(cy_decode_token *row, cy_view logits, const cy_microbatch *batch);

#endif
