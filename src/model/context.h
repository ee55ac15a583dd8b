// model/context.h: what every layer of a model is built with. A layer knows groups, not ranks.

#ifndef CY_MODEL_CONTEXT_H
#define CY_MODEL_CONTEXT_H

#include "model/strict_sums.h"
#include "parallel/context/attention.h"
#include "parallel/tensor/linear.h"

#include <math.h>

// Read-only once it is filled in; one per rank. The parts are borrowed.
typedef struct cy_model_context {
    cy_queue *queue;
    cy_model_shape shape;
    cy_tensor_parallel tp;
    cy_context_parallel cp;
    int heads_local;    // query heads on this rank
    int kv_heads_local; // key and value heads on this rank
    int64_t ffn_local;
    cy_dtype dtype;     // of activations and weights
    cy_dtype sum_dtype; // of statistics: fp32, or fp64 for fp64
    cy_view rope;       // [positions, head_dim], in sum_dtype
    cy_sums *sums;      // of strict mode; NULL: everything is floating point
    cy_group *kv_group; // tensor-parallel ranks that hold the same kv heads; strict mode alone
    int kv_copy;        // which of them this rank is
} cy_model_context;

// Columns of this rank's q, and of its k or of its v, in a fused [t, q | k | v].
static inline int64_t cy_model_q_cols(const cy_model_context *context)
{
    return context->heads_local * context->shape.head_dim;
}

static inline int64_t cy_model_kv_cols(const cy_model_context *context)
{
    return context->kv_heads_local * context->shape.head_dim;
}

// Attention among this rank's heads; whose keys a query sees is for the caller to say.
static inline cy_attention_spec cy_model_attention(const cy_model_context *context)
{
    return (cy_attention_spec){
        .heads = context->heads_local,
        .kv_heads = context->kv_heads_local,
        .head_dim = context->shape.head_dim,
        .window = context->shape.window,
        .scale = 1.0 / sqrt((double)context->shape.head_dim),
    };
}

// Where generation finds keys and values: the pages of a KV cache. Arrays are [t]: a token's
// sequence, and what the host must know of all tokens to write their keys to the pages. Within a
// sequence, positions ascend. `pages` is [layers], with one page table, of which
// `page_table_host` is a copy that the host can read.
typedef struct cy_cache_batch {
    const int32_t *sequences;      // device memory
    const int32_t *positions_host; // host, as the other arrays
    const int32_t *sequences_host;
    const int32_t *page_table_host;
    const cy_kv_pages *pages;
} cy_cache_batch;

// One microbatch as a rank sees it: t tokens, the sequences of the microbatch one after another,
// each with this rank's share of its positions; or, in generation, the new tokens of one or more
// sequences. Arrays are in device memory unless said otherwise.
typedef struct cy_microbatch {
    int64_t tokens;                 // t
    const int32_t *inputs;          // [t]
    const int32_t *targets;         // [t], below 0: no target
    const int32_t *positions;       // [t], ascending within a span
    const cy_attention_span *spans; // host, one per sequence or document
    int span_count;
    const cy_cache_batch *cache; // generation: keys are in pages, and there are no spans; or NULL
} cy_microbatch;

#endif
