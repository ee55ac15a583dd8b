#include "model/decode.h"

// Rows that follow each other in one page are written by one copy.
void cy_decode_write_pages(
    cy_queue *queue, const cy_kv_pages *pages, cy_view k, cy_view v, const cy_decode_batch *batch)
{
    int64_t row = 0;
    while (row < batch->tokens) {
        const int64_t position = batch->positions_host[row];
        const int32_t sequence = batch->sequences_host[row];
        const int64_t in_page = position % pages->page_size;
        int64_t count = 1;
        while (row + count < batch->tokens && in_page + count < pages->page_size &&
            batch->sequences_host[row + count] == sequence &&
            batch->positions_host[row + count] == position + count) {
            count++;
        }
        const int64_t at = cy_kv_row(pages, batch->page_table_host, sequence, position);
        cy_copy(queue, cy_view_rows(pages->keys, at, count), cy_view_rows(k, row, count));
        cy_copy(queue, cy_view_rows(pages->values, at, count), cy_view_rows(v, row, count));
        row += count;
    }
}

// Nothing is kept here: the norm's stash goes back at once.
static void norm_heads(
    const cy_model_context *context, const cy_storage *storage, int unit, cy_view qkv)
{
    const size_t mark = cy_arena_mark(context->queue->scratch);
    cy_qk_norm_stash stash;
    cy_qk_norm_stash_alloc(&stash, context, context->queue->scratch, qkv.rows);
    cy_qk_norm_forward(context, storage, unit, qkv, &stash);
    cy_arena_rewind(context->queue->scratch, mark);
}

// mid [t, hidden] = the attention branch of x, without the residual.
static cy_status attention(const cy_model_context *context, const cy_storage *storage, int layer,
    cy_view mid, cy_view x, cy_view inv_rms, const cy_decode_batch *batch)
{
    cy_queue *queue = context->queue;
    const cy_model_shape *shape = &context->shape;
    const int unit = cy_storage_unit(storage, layer);
    const size_t mark = cy_arena_mark(queue->scratch);
    const int64_t q_cols = cy_model_q_cols(context);
    const int64_t kv_cols = cy_model_kv_cols(context);

    const cy_view n = cy_view_alloc(queue->scratch, context->dtype, x.rows, shape->hidden);
    const cy_view qkv = cy_view_alloc(queue->scratch, context->dtype, x.rows, q_cols + 2 * kv_cols);
    const cy_view o = cy_view_alloc(queue->scratch, context->dtype, x.rows, q_cols);
    cy_norm_forward(queue, n, inv_rms, x, cy_view_none(),
        cy_storage_weight(storage, unit, CY_ROLE_NORM1, 0), shape->norm_eps);
    const cy_column_linear in = {
        .parallel = &context->tp,
        .weight = cy_storage_weight(storage, unit, CY_ROLE_Q, 2),
        .bias = cy_storage_weight(storage, unit, CY_ROLE_Q_BIAS, shape->qkv_bias ? 2 : 0),
    };
    cy_column_linear_rows(&in, queue, qkv, n);
    norm_heads(context, storage, unit, qkv);
    cy_rope(queue, qkv, context->rope, batch->positions,
        context->heads_local + context->kv_heads_local, false);
    cy_decode_write_pages(queue, &batch->pages[layer], cy_view_cols(qkv, q_cols, kv_cols),
        cy_view_cols(qkv, q_cols + kv_cols, kv_cols), batch);
    const cy_attention_spec spec = cy_model_attention(context);
    cy_attention_paged(queue, o, cy_view_cols(qkv, 0, q_cols), &batch->pages[layer],
        batch->sequences, batch->positions, &spec);
    const cy_row_linear out = {
        .parallel = &context->tp,
        .weight = cy_storage_weight(storage, unit, CY_ROLE_OUT, 0),
        .bias = cy_storage_weight(storage, unit, CY_ROLE_OUT_BIAS, 0),
        .input_is_parallel = true,
    };
    CY_TRY(cy_row_linear_forward(&out, queue, mid, o, NULL));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// x becomes the layer's output.
static cy_status layer_forward(const cy_model_context *context, const cy_storage *storage,
    int layer, cy_view x, const cy_decode_batch *batch)
{
    cy_queue *queue = context->queue;
    const int unit = cy_storage_unit(storage, layer);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view inv_rms = cy_view_alloc(queue->scratch, context->sum_dtype, 1, x.rows);
    const cy_view mid = cy_view_alloc(queue->scratch, context->dtype, x.rows, x.cols);
    const cy_view n = cy_view_alloc(queue->scratch, context->dtype, x.rows, x.cols);
    const cy_view gate_up =
        cy_view_alloc(queue->scratch, context->dtype, x.rows, 2 * context->ffn_local);
    const cy_view act = cy_view_alloc(queue->scratch, context->dtype, x.rows, context->ffn_local);

    CY_TRY(attention(context, storage, layer, mid, x, inv_rms, batch));
    cy_norm_forward(queue, n, inv_rms, mid, x, cy_storage_weight(storage, unit, CY_ROLE_NORM2, 0),
        context->shape.norm_eps);
    const cy_column_linear in = {
        .parallel = &context->tp,
        .weight = cy_storage_weight(storage, unit, CY_ROLE_GATE, 1),
    };
    const cy_row_linear down = {
        .parallel = &context->tp,
        .weight = cy_storage_weight(storage, unit, CY_ROLE_DOWN, 0),
        .input_is_parallel = true,
    };
    cy_column_linear_rows(&in, queue, gate_up, n);
    cy_swiglu_forward(queue, act, gate_up);
    CY_TRY(cy_row_linear_forward(&down, queue, x, act, NULL));
    cy_add(queue, x, x, mid);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_decode_forward(const cy_model_context *context, const cy_storage *storage, cy_view x,
    const cy_decode_batch *batch)
{
    const cy_microbatch tokens = {.tokens = batch->tokens, .inputs = batch->inputs};
    CY_TRY(cy_embed_forward(context, storage, x, &tokens));
    for (int layer = 0; layer < context->shape.layers; layer++) {
        CY_TRY(layer_forward(context, storage, layer, x, batch));
    }
    return CY_OK;
}
