#include "model/qk_norm.h"

// The heads of q or of k: where they stand and what belongs to them.
typedef struct head_group {
    cy_view cols;    // [t, count * head_dim] of the fused matrix
    cy_view kept;    // [t * count, head_dim] before the norm
    cy_view inv_rms; // [1, t * count]
    cy_role role;
} head_group;

typedef struct qk_groups {
    head_group q, k;
} qk_groups;

static qk_groups groups_of(
    const cy_model_context *context, cy_view qkv, const cy_qk_norm_stash *stash)
{
    const int64_t q = cy_model_q_cols(context);
    const int64_t kv = cy_model_kv_cols(context);
    return (qk_groups){
        .q = {cy_view_cols(qkv, 0, q), stash->q, stash->inv_rms_q, CY_ROLE_Q_NORM},
        .k = {cy_view_cols(qkv, q, kv), stash->k, stash->inv_rms_k, CY_ROLE_K_NORM},
    };
}

// A dense [t * heads, head_dim] as [t, heads * head_dim].
static cy_view by_token(cy_view rows, cy_view like)
{
    return cy_view_of(rows.data, rows.dtype, like.rows, like.cols);
}

void cy_qk_norm_stash_alloc(
    cy_qk_norm_stash *stash, const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    *stash = (cy_qk_norm_stash){0};
    if (!context->shape.qk_norm) return;
    const int64_t q = tokens * context->heads_local, k = tokens * context->kv_heads_local;
    const int64_t head_dim = context->shape.head_dim;
    *stash = (cy_qk_norm_stash){
        .q = cy_view_alloc(arena, context->dtype, q, head_dim),
        .k = cy_view_alloc(arena, context->dtype, k, head_dim),
        .inv_rms_q = cy_view_alloc(arena, context->sum_dtype, 1, q),
        .inv_rms_k = cy_view_alloc(arena, context->sum_dtype, 1, k),
    };
}

cy_qk_norm_stash cy_qk_norm_stash_rows(
    const cy_qk_norm_stash *stash, const cy_model_context *context, int64_t first, int64_t count)
{
    if (!context->shape.qk_norm) return *stash;
    const int64_t q = context->heads_local, k = context->kv_heads_local;
    return (cy_qk_norm_stash){
        .q = cy_view_rows(stash->q, first * q, count * q),
        .k = cy_view_rows(stash->k, first * k, count * k),
        .inv_rms_q = cy_view_cols(stash->inv_rms_q, first * q, count * q),
        .inv_rms_k = cy_view_cols(stash->inv_rms_k, first * k, count * k),
    };
}

static void forward(
    const cy_model_context *context, const cy_storage *storage, int unit, const head_group *heads)
{
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view normed =
        cy_view_alloc(queue->scratch, heads->kept.dtype, heads->kept.rows, heads->kept.cols);
    cy_copy(queue, by_token(heads->kept, heads->cols), heads->cols);
    cy_norm_forward(queue, normed, heads->inv_rms, heads->kept, cy_view_none(),
        cy_storage_weight(storage, unit, heads->role, 0), context->shape.norm_eps);
    cy_copy(queue, heads->cols, by_token(normed, heads->cols));
    cy_arena_rewind(queue->scratch, mark);
}

void cy_qk_norm_forward(const cy_model_context *context, const cy_storage *storage, int unit,
    cy_view qkv, const cy_qk_norm_stash *stash)
{
    if (!context->shape.qk_norm) return;
    const qk_groups both = groups_of(context, qkv, stash);
    forward(context, storage, unit, &both.q);
    forward(context, storage, unit, &both.k);
}

static void backward(
    const cy_model_context *context, const cy_storage *storage, int unit, const head_group *heads)
{
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const int64_t rows = heads->kept.rows, cols = heads->kept.cols;
    const cy_view dy = cy_view_alloc(queue->scratch, heads->kept.dtype, rows, cols);
    const cy_view dx = cy_view_alloc(queue->scratch, heads->kept.dtype, rows, cols);
    cy_copy(queue, by_token(dy, heads->cols), heads->cols);
    cy_fill(queue, dx, 0.0);
    cy_norm_backward(queue, dx, cy_storage_grad(storage, unit, heads->role, 0), dy, heads->kept,
        heads->inv_rms, cy_storage_weight(storage, unit, heads->role, 0));
    cy_copy(queue, heads->cols, by_token(dx, heads->cols));
    cy_arena_rewind(queue->scratch, mark);
}

void cy_qk_norm_backward(const cy_model_context *context, const cy_storage *storage, int unit,
    cy_view d_qkv, const cy_qk_norm_stash *stash)
{
    if (!context->shape.qk_norm) return;
    const qk_groups both = groups_of(context, d_qkv, stash);
    backward(context, storage, unit, &both.q);
    backward(context, storage, unit, &both.k);
}
