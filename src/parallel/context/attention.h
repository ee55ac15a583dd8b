// parallel/context/attention.h: attention over a sequence whose tokens are split over ranks.
//
// Each rank of the context-parallel group holds the queries, keys and values of its own positions
// (all sequences of a micro-batch, 1/size of each). A group of one is one kernel call.

#ifndef CY_PARALLEL_CONTEXT_ATTENTION_H
#define CY_PARALLEL_CONTEXT_ATTENTION_H

#include "comm/group.h"
#include "kernel/kernel.h"

typedef struct cy_context_parallel {
    cy_group *group; // borrowed
} cy_context_parallel;

// o [t, heads * head_dim] and lse [heads, t] from q, k, v [t, ...] of this rank's tokens.
CY_MUST_CHECK cy_status cy_context_attention_forward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);

// dq, dk, dv of this rank's tokens are written. delta comes from cy_attention_delta.
CY_MUST_CHECK cy_status cy_context_attention_backward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse, cy_view delta,
    cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec);

#endif
