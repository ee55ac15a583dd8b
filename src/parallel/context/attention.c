#include "parallel/context/attention.h"

#include "parallel/context/styles.h"

cy_status cy_context_attention_forward(const cy_context_parallel *parallel, cy_queue *queue,
    cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    if (cy_group_size(parallel->group) == 1) {
        cy_attention_forward(queue, o, lse, q, k, v, spec);
        return CY_OK;
    }
    cy_status status = CY_OK;
    const size_t mark = cy_arena_mark(queue->scratch);
    switch (parallel->style) {
    case CY_CONTEXT_RING:
        status = cy_context_ring_forward(parallel, queue, o, lse, q, k, v, spec);
        break;
    case CY_CONTEXT_ALL_GATHER:
        status = cy_context_gather_forward(parallel, queue, o, lse, q, k, v, spec);
        break;
    case CY_CONTEXT_ULYSSES:
        status = cy_context_ulysses_forward(parallel, queue, o, lse, q, k, v, spec);
        break;
    }
    cy_arena_rewind(queue->scratch, mark);
    return status;
}

cy_status cy_context_attention_backward(const cy_context_parallel *parallel, cy_queue *queue,
    cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse, cy_view delta, cy_view q,
    cy_view k, cy_view v, const cy_attention_spec *spec)
{
    if (cy_group_size(parallel->group) == 1) {
        cy_attention_backward(queue, dq, dk, dv, d_o, lse, delta, q, k, v, spec);
        return CY_OK;
    }
    const cy_context_gradients of = {
        .dq = dq,
        .dk = dk,
        .dv = dv,
        .d_o = d_o,
        .lse = lse,
        .delta = delta,
        .q = q,
        .k = k,
        .v = v,
    };
    cy_status status = CY_OK;
    const size_t mark = cy_arena_mark(queue->scratch);
    switch (parallel->style) {
    case CY_CONTEXT_RING:
        status = cy_context_ring_backward(parallel, queue, &of, spec);
        break;
    case CY_CONTEXT_ALL_GATHER:
        status = cy_context_gather_backward(parallel, queue, &of, spec);
        break;
    case CY_CONTEXT_ULYSSES:
        status = cy_context_ulysses_backward(parallel, queue, &of, spec);
        break;
    }
    cy_arena_rewind(queue->scratch, mark);
    return status;
}
