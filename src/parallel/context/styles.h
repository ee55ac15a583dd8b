// parallel/context/styles.h: the ways of attention.h for groups larger than one, a file each. Same
// arguments, same contract.

#ifndef CY_PARALLEL_CONTEXT_STYLES_H
#define CY_PARALLEL_CONTEXT_STYLES_H

#include "parallel/context/attention.h"

// The operands of one backward pass.
typedef struct cy_context_gradients {
    cy_view dq, dk, dv; // written
    cy_view d_o, lse, delta;
    cy_view q, k, v;
} cy_context_gradients;

// Gradients that several ranks add to are summed in this dtype.
static inline cy_dtype cy_context_sum_dtype(cy_dtype dtype)
{
    return dtype == CY_F64 ? CY_F64 : CY_F32;
}

CY_MUST_CHECK cy_status cy_context_ring_forward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);
CY_MUST_CHECK cy_status cy_context_ring_backward(const cy_context_parallel *parallel,
    cy_queue *queue, const cy_context_gradients *of, const cy_attention_spec *spec);

CY_MUST_CHECK cy_status cy_context_gather_forward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);
CY_MUST_CHECK cy_status cy_context_gather_backward(const cy_context_parallel *parallel,
    cy_queue *queue, const cy_context_gradients *of, const cy_attention_spec *spec);

CY_MUST_CHECK cy_status cy_context_ulysses_forward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);
CY_MUST_CHECK cy_status cy_context_ulysses_backward(const cy_context_parallel *parallel,
    cy_queue *queue, const cy_context_gradients *of, const cy_attention_spec *spec);

#endif
