#include "parallel/context/attention.h"

#include "base/status.h"

static cy_status check_size(const cy_context_parallel *parallel)
{
    const int size = cy_group_size(parallel->group);
    if (size == 1) return CY_OK;
    return CY_FAIL(CY_ERR_UNSUPPORTED, "attention over %d context-parallel ranks", size);
}

cy_status cy_context_attention_forward(const cy_context_parallel *parallel, cy_queue *queue,
    cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    CY_TRY(check_size(parallel));
    cy_attention_forward(queue, o, lse, q, k, v, spec);
    return CY_OK;
}

cy_status cy_context_attention_backward(const cy_context_parallel *parallel, cy_queue *queue,
    cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse, cy_view delta, cy_view q,
    cy_view k, cy_view v, const cy_attention_spec *spec)
{
    CY_TRY(check_size(parallel));
    cy_attention_backward(queue, dq, dk, dv, d_o, lse, delta, q, k, v, spec);
    return CY_OK;
}
