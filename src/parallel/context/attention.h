// parallel/context/attention.h: attention over a sequence whose tokens are split over ranks.
//
// Each rank of the context-parallel group holds the queries, keys and values of its own positions
// (all sequences of a microbatch, 1/size of each; layout.h says which). Queries must meet the keys
// of all ranks before them, and no rank ever holds a matrix of tokens by tokens. Three ways:
//
//   ring        keys and values go from rank to rank, the next ones in flight under the present
//               ones; parts of the output are merged by their log-sum-exp (Liu, Zaharia, Abbeel,
//               "Ring attention with blockwise transformers", 2023)
//   all_gather  every rank gathers all keys and values, and keeps them for one layer
//   ulysses     the split moves from tokens to heads and back (Jacobs et al., "DeepSpeed Ulysses",
//               2023): each rank attends over whole sequences with heads / size heads
//
// In strict mode a query meets the keys of its sequence in ascending order, whichever rank made
// them: ring and all_gather then hold all keys and values of a layer while they work on it, and
// differ in how these travel. Ulysses has them in order anyway.
//
// A group of one is one kernel call. Buffers come from the queue's scratch arena.

#ifndef CY_PARALLEL_CONTEXT_ATTENTION_H
#define CY_PARALLEL_CONTEXT_ATTENTION_H

#include "comm/group.h"
#include "device/view.h"
#include "parallel/context/layout.h"

typedef enum cy_context_style {
    CY_CONTEXT_RING,
    CY_CONTEXT_ALL_GATHER,
    CY_CONTEXT_ULYSSES,
} cy_context_style;

typedef struct cy_context_parallel {
    cy_group *group; // borrowed
    cy_context_style style;
    bool in_order;                   // strict mode
    const cy_context_tables *tables; // borrowed; not read where the group is one rank
} cy_context_parallel;

// o [t, heads * head_dim] and lse [heads, t] from q, k, v [t, ...] of this rank's tokens. The rows
// of lse are private to the style: the caller hands them to the backward pass unchanged.
CY_MUST_CHECK cy_status cy_context_attention_forward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);

// dq, dk, dv of this rank's tokens are written, in strict mode dk and dv of one sum in CY_FX64.
// delta [heads, t] comes from cy_attention_delta.
CY_MUST_CHECK cy_status cy_context_attention_backward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse, cy_view delta,
    cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec);

// ---- private to this folder: the style in a file of its own

// The operands of one backward pass.
typedef struct cy_context_gradients {
    cy_view dq, dk, dv; // written
    cy_view d_o, lse, delta;
    cy_view q, k, v;
} cy_context_gradients;

CY_MUST_CHECK cy_status cy_context_ulysses_forward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);
CY_MUST_CHECK cy_status cy_context_ulysses_backward(const cy_context_parallel *parallel,
    cy_queue *queue, const cy_context_gradients *of, const cy_attention_spec *spec);

#endif
