// parallel/context/styles.h: the ways of attention.h for groups larger than one, a file each. Same
// arguments, same contract.

#ifndef CY_PARALLEL_CONTEXT_STYLES_H
#define CY_PARALLEL_CONTEXT_STYLES_H

#include "device/view.h"
#include "parallel/context/attention.h"

// The operands of one backward pass.
typedef struct cy_context_gradients {
    cy_view dq, dk, dv; // written
    cy_view d_o, lse, delta;
    cy_view q, k, v;
} cy_context_gradients;

// Room for gradients of keys and values that several ranks add to.
static inline cy_view cy_context_alloc_partials(
    cy_queue *queue, const cy_context_gradients *of, int64_t rows, int64_t cols)
{
    if (of->dk.sum != NULL) return cy_fixed_alloc(of->dk.sum, queue->scratch, rows, cols);
    return cy_view_alloc(queue->scratch, cy_sum_dtype(of->q.dtype), rows, cols);
}

CY_MUST_CHECK cy_status cy_context_ring_forward(const cy_context_parallel *parallel,
    cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);
CY_MUST_CHECK cy_status cy_context_ring_backward(const cy_context_parallel *parallel,
    cy_queue *queue, const cy_context_gradients *of, const cy_attention_spec *spec);

// ranked [ranks t, n], whose part `rank` is written: the others' come round the ring.
CY_MUST_CHECK cy_status cy_context_ring_all_gather(
    const cy_context_parallel *parallel, cy_queue *queue, cy_view ranked);

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
