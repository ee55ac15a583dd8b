// model/decode_token.h: the forward pass of one new token, by all threads of a rank as one team.
//
// What a token costs is reading all weights once, so memory must never rest. Operator by operator
// it rests three hundred times a token: while work is handed out, while one thread makes a norm
// and the others wait, and until each new stream of weights is up to speed. Here a token is one
// hand-out. Every thread walks through all layers: it makes its own rows of each product, and
// repeats the small operators for itself. Five times a layer they meet, because a product reads
// what all have written, and whoever waits asks for its next weights meanwhile:
//
//   norm* q k v | rope*, cache, parts of attention | join* out | norm* gate up swiglu | down |
//
//   *: by every thread for itself; |: they meet
//
// Attention is cut by keys, so that threads share it evenly whatever the number of heads. These are
// the operators of decode.h's pass in the same order on the same rows, or parts of them that give
// the same bits when they are joined, so the logits are the same bits.
//
// The shared arrays and the threads' own lie in memory that the caller plans as it does for the
// rest: describe, plan, place. One thread uses it; a call cannot fail.

#ifndef CY_MODEL_DECODE_TOKEN_H
#define CY_MODEL_DECODE_TOKEN_H

#include "model/decode.h"

typedef struct cy_decode_token_layer cy_decode_token_layer;   // the weights of a layer
typedef struct cy_decode_token_worker cy_decode_token_worker; // what a thread has for itself

typedef struct cy_decode_token {
    const cy_model_context *context; // borrowed; of a tensor group of one
    const cy_kv_pages *pages;        // borrowed, [layers]
    int workers;
    cy_decode_token_layer *layers; // owned, [layers]
    cy_decode_token_worker *each;  // owned, [workers]
    size_t worker_bytes;           // of scratch memory, each
    cy_view embedding, final_norm; // weights
    cy_view head;                  // [vocab, hidden], weights
    // What the threads tell each other; each writes its own columns.
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
void cy_decode_token_forward(cy_decode_token *row, cy_view logits, const cy_decode_batch *batch);

#endif
