// The operators of attention: what kernel.h promises of them, checked.

#include "base/assert.h"
#include "kernel/call.h"
#include "kernel/check.h"
#include "kernel/cost.h"
#include "kernel/kernel.h"

static void check_spec(const cy_attention_spec *spec, cy_view q, cy_view k, cy_view v)
{
    CY_ASSERT(spec->heads > 0 && spec->kv_heads > 0 && spec->heads % spec->kv_heads == 0);
    CY_ASSERT(spec->head_dim > 0 && spec->head_dim <= CY_HEAD_DIM_MAX && spec->window >= 0);
    CY_ASSERT(is_float(q) && q.dtype == k.dtype && q.dtype == v.dtype);
    CY_ASSERT(has_shape(q, q.rows, spec->heads * spec->head_dim));
    CY_ASSERT(has_shape(k, k.rows, spec->kv_heads * spec->head_dim) && same_shape(v, k));
    CY_ASSERT(spec->span_count == 0 || spec->spans != NULL);
    CY_ASSERT(spec->q_positions != NULL && spec->k_positions != NULL);
    for (int i = 0; i < spec->span_count; i++) {
        const cy_attention_span span = spec->spans[i];
        CY_ASSERT(span.q_first >= 0 && span.q_count >= 0 && span.q_first + span.q_count <= q.rows);
        CY_ASSERT(span.k_first >= 0 && span.k_count >= 0 && span.k_first + span.k_count <= k.rows);
    }
}

void cy_attention_forward(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec)
{
    check_spec(spec, q, k, v);
    CY_ASSERT(same_shape(o, q) && (o.dtype == q.dtype || o.dtype == CY_F32));
    CY_ASSERT(is_wide(lse) && has_shape(lse, spec->heads, q.rows));
    CY_ASSERT(apart(queue, o, q) && apart(queue, o, k) && apart(queue, o, v));
    CY_ASSERT(apart(queue, lse, o));

    if (q.rows == 0) return;
    CY_CALL(queue, attention_forward, cy_cost_attention_forward(o, lse, q, k, v, spec), o, lse, q,
        k, v, spec);
}

void cy_attention_merge(
    cy_queue *queue, cy_view o, cy_view lse, cy_view o_part, cy_view lse_part, int heads)
{
    CY_ASSERT(is_float(o) && is_float(o_part) && is_wide(lse) && is_wide(lse_part));
    CY_ASSERT(same_shape(o_part, o) && has_shape(o, o.rows, o.cols));
    CY_ASSERT(heads > 0 && o.cols % heads == 0);
    CY_ASSERT(has_shape(lse, heads, o.rows) && has_shape(lse_part, heads, o.rows));
    CY_ASSERT(apart(queue, o, o_part) && apart(queue, lse, lse_part));

    if (o.rows == 0) return;
    CY_CALL(queue, attention_merge, cy_cost_attention_merge(o, lse, o_part, lse_part), o, lse,
        o_part, lse_part, heads);
}

void cy_attention_delta(cy_queue *queue, cy_view delta, cy_view d_o, cy_view o, int heads)
{
    CY_ASSERT(is_wide(delta) && is_float(d_o) && is_float(o));
    CY_ASSERT(same_shape(d_o, o) && heads > 0 && o.cols % heads == 0);
    CY_ASSERT(has_shape(delta, heads, o.rows));
    CY_ASSERT(apart(queue, delta, d_o) && apart(queue, delta, o));

    if (o.rows == 0) return;
    CY_CALL(queue, attention_delta, cy_cost_attention_delta(delta, d_o, o), delta, d_o, o, heads);
}

static bool is_gradient(cy_view gradient, cy_view of)
{
    return same_shape(gradient, of) &&
        (gradient.dtype == of.dtype || gradient.dtype == CY_F32 || gradient.dtype == CY_FX64);
}

void cy_attention_backward(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o,
    cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    check_spec(spec, q, k, v);
    CY_ASSERT(is_gradient(dq, q) && is_gradient(dk, k) && is_gradient(dv, v));
    CY_ASSERT(is_float(d_o) && same_shape(d_o, q) && is_wide(lse) && is_wide(delta));
    CY_ASSERT(has_shape(lse, spec->heads, q.rows) && has_shape(delta, spec->heads, q.rows));
    CY_ASSERT(apart(queue, dq, dk) && apart(queue, dq, dv) && apart(queue, dk, dv));
    CY_ASSERT(apart(queue, dq, q) && apart(queue, dq, k) && apart(queue, dq, v));
    CY_ASSERT(apart(queue, dk, q) && apart(queue, dk, k) && apart(queue, dk, v));
    CY_ASSERT(apart(queue, dv, q) && apart(queue, dv, k) && apart(queue, dv, v));
    CY_ASSERT(apart(queue, dq, d_o) && apart(queue, dk, d_o) && apart(queue, dv, d_o));

    if (q.rows == 0 && k.rows == 0) return;
    CY_CALL(queue, attention_backward,
        cy_cost_attention_backward(dq, dk, dv, d_o, lse, delta, q, k, v, spec), dq, dk, dv, d_o,
        lse, delta, q, k, v, spec);
}

// A q of whole rows and pages of keys and values for it.
static void check_pages(cy_view q, const cy_kv_pages *pages, const int32_t *sequences,
    const int32_t *positions, const cy_attention_spec *spec)
{
    CY_ASSERT(spec->heads > 0 && spec->kv_heads > 0 && spec->heads % spec->kv_heads == 0);
    CY_ASSERT(spec->head_dim > 0 && spec->head_dim <= CY_HEAD_DIM_MAX && spec->window >= 0);
    CY_ASSERT(is_float(q) && is_float(pages->keys) && is_float(pages->values));
    CY_ASSERT(has_shape(q, q.rows, spec->heads * spec->head_dim));
    CY_ASSERT(has_shape(pages->keys, pages->keys.rows, spec->kv_heads * spec->head_dim));
    CY_ASSERT(same_shape(pages->values, pages->keys));
    CY_ASSERT(pages->page_size > 0 && pages->keys.rows % pages->page_size == 0);
    CY_ASSERT(pages->page_table != NULL && sequences != NULL && positions != NULL);
}

void cy_attention_paged(cy_queue *queue, cy_view o, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec)
{
    check_pages(q, pages, sequences, positions, spec);
    CY_ASSERT(same_shape(o, q) && (o.dtype == q.dtype || o.dtype == CY_F32));
    CY_ASSERT(apart(queue, o, q));

    if (q.rows == 0) return;
    CY_CALL(queue, attention_paged, cy_cost_attention_paged(o, q, pages, spec), o, q, pages,
        sequences, positions, spec);
}

void cy_attention_split(cy_queue *queue, cy_view parts, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec,
    int64_t first)
{
    check_pages(q, pages, sequences, positions, spec);
    CY_ASSERT(q.rows == 1 && first >= 0);
    CY_ASSERT(has_shape(parts, parts.rows, cy_attention_split_cols(spec)));
    CY_ASSERT(parts.dtype == cy_sum_dtype(q.dtype));
    CY_ASSERT((pages->keys.dtype == CY_F64) == (q.dtype == CY_F64)); // one table makes and joins
    CY_ASSERT((pages->values.dtype == CY_F64) == (q.dtype == CY_F64));

    if (parts.rows == 0) return;
    CY_CALL(queue, attention_split, cy_cost_attention_split(parts, q, pages, spec), parts, q, pages,
        sequences, positions, spec, first);
}

void cy_attention_combine(cy_queue *queue, cy_view o, cy_view parts, const cy_attention_spec *spec)
{
    CY_ASSERT(is_float(o) && has_shape(o, 1, spec->heads * spec->head_dim));
    CY_ASSERT(parts.rows > 0 && parts.rows % spec->kv_heads == 0);
    CY_ASSERT(has_shape(parts, parts.rows, cy_attention_split_cols(spec)));
    CY_ASSERT(parts.dtype == CY_F32 || parts.dtype == CY_F64);

    CY_CALL(queue, attention_combine, cy_cost_attention_combine(o, parts), o, parts, spec);
}
