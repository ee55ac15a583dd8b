// Attention over gathered keys: every rank holds all keys and values of one layer while it works on
// it. Two messages a layer and pass instead of many, nothing in flight under the work, and memory
// for keys and values that does not shrink with the ranks.

#include "parallel/context/styles.h"

static cy_view keys_of(cy_view kv)
{
    return cy_view_cols(kv, 0, kv.cols / 2);
}

static cy_view values_of(cy_view kv)
{
    return cy_view_cols(kv, kv.cols / 2, kv.cols / 2);
}

static cy_status bring(
    const cy_context_parallel *parallel, cy_queue *queue, cy_view ranked, cy_view own)
{
    if (parallel->style == CY_CONTEXT_RING) {
        return cy_context_ring_all_gather(parallel, queue, ranked);
    }
    return cy_group_all_gather(parallel->group, queue, ranked, own);
}

// *all [sequences length, 2 kv_cols]: keys and values of all ranks in the order of positions.
static cy_status gather(
    const cy_context_parallel *parallel, cy_queue *queue, cy_view *all, cy_view k, cy_view v)
{
    const int64_t rows = k.rows * cy_group_size(parallel->group), cols = 2 * k.cols;
    const cy_view ordered = cy_view_alloc(queue->scratch, k.dtype, rows, cols);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view ranked = cy_view_alloc(queue->scratch, k.dtype, rows, cols);
    const cy_view own = cy_view_rows(ranked, cy_group_rank(parallel->group) * k.rows, k.rows);
    cy_copy(queue, keys_of(own), k);
    cy_copy(queue, values_of(own), v);
    CY_TRY(bring(parallel, queue, ranked, own));
    cy_context_to_order(parallel->tables, queue, ordered, ranked);
    cy_arena_rewind(queue->scratch, mark);
    *all = ordered;
    return CY_OK;
}

cy_status cy_context_gather_forward(const cy_context_parallel *parallel, cy_queue *queue, cy_view o,
    cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    cy_view all;
    CY_TRY(gather(parallel, queue, &all, k, v));
    const cy_attention_spec meet = cy_context_spec_of_all(parallel->tables, spec);
    cy_attention_forward(queue, o, lse, q, keys_of(all), values_of(all), &meet);
    return CY_OK;
}

cy_status cy_context_gather_backward(const cy_context_parallel *parallel, cy_queue *queue,
    const cy_context_gradients *of, const cy_attention_spec *spec)
{
    cy_view all;
    CY_TRY(gather(parallel, queue, &all, of->k, of->v));
    const cy_view ordered = cy_context_alloc_partials(queue, of, all.rows, all.cols);
    const cy_attention_spec meet = cy_context_spec_of_all(parallel->tables, spec);
    cy_attention_backward(queue, of->dq, keys_of(ordered), values_of(ordered), of->d_o, of->lse,
        of->delta, of->q, keys_of(all), values_of(all), &meet);

    const cy_view ranked = cy_context_alloc_partials(queue, of, all.rows, all.cols);
    const cy_view own = cy_context_alloc_partials(queue, of, of->k.rows, all.cols);
    cy_context_to_ranks(parallel->tables, queue, ranked, ordered);
    CY_TRY(cy_group_reduce_scatter(parallel->group, queue, own, ranked, CY_SUM));
    cy_copy(queue, of->dk, keys_of(own));
    cy_copy(queue, of->dv, values_of(own));
    return CY_OK;
}
