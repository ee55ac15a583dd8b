// Runs the attention half of a layer forward and backward, and forward against a KV cache.

#include "model/self_attention.h"

#include "base/memory.h"
#include "device/device.h"

// The three parts of a fused [t, q | k | v] matrix.
typedef struct qkv_parts {
    cy_view q, k, v;
} qkv_parts;

static qkv_parts parts_of(const cy_model_context *context, cy_view qkv)
{
    const int64_t q = cy_model_q_cols(context), kv = cy_model_kv_cols(context);
    return (qkv_parts){
        .q = cy_view_cols(qkv, 0, q),
        .k = cy_view_cols(qkv, q, kv),
        .v = cy_view_cols(qkv, q + kv, kv),
    };
}

static cy_attention_spec attention_of(const cy_model_context *context, const cy_microbatch *batch)
{
    cy_attention_spec spec = cy_model_attention(context);
    spec.spans = batch->spans;
    spec.span_count = batch->span_count;
    spec.q_positions = batch->positions;
    spec.k_positions = batch->positions;
    return spec;
}

static cy_column_linear qkv_of(const cy_layer *layer)
{
    return (cy_column_linear){
        .parallel = &layer->context->tp,
        .weight = cy_layer_weight(layer, CY_ROLE_Q, 2),
        .bias = cy_layer_weight(layer, CY_ROLE_Q_BIAS, layer->context->shape.qkv_bias ? 2 : 0),
    };
}

// Its bias is added, and its bias gradient made, where its sum meets the residual.
static cy_row_linear out_of(const cy_layer *layer)
{
    return (cy_row_linear){
        .parallel = &layer->context->tp,
        .weight = cy_layer_weight(layer, CY_ROLE_OUT, 0),
        .bias = cy_self_attention_bias(layer),
        .input_is_parallel = true,
        .skip_bias = true,
    };
}

cy_view cy_self_attention_bias(const cy_layer *layer)
{
    return cy_layer_weight(layer, CY_ROLE_OUT_BIAS, 0);
}

// ---- norms of q and k (Qwen3)

// The heads of q or of k: their columns, and what the stash keeps of them.
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

static void qk_norm_alloc(
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

static cy_qk_norm_stash qk_norm_rows(
    const cy_qk_norm_stash *stash, const cy_model_context *context, cy_tensor_rows rows)
{
    if (!context->shape.qk_norm) return *stash;
    const int64_t q = context->heads_local, k = context->kv_heads_local;
    return (cy_qk_norm_stash){
        .q = cy_view_rows(stash->q, rows.first * q, rows.count * q),
        .k = cy_view_rows(stash->k, rows.first * k, rows.count * k),
        .inv_rms_q = cy_view_cols(stash->inv_rms_q, rows.first * q, rows.count * q),
        .inv_rms_k = cy_view_cols(stash->inv_rms_k, rows.first * k, rows.count * k),
    };
}

static void head_norm_forward(const cy_layer *layer, const head_group *heads)
{
    cy_queue *queue = layer->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view normed =
        cy_view_alloc(queue->scratch, heads->kept.dtype, heads->kept.rows, heads->kept.cols);
    cy_copy(queue, by_token(heads->kept, heads->cols), heads->cols);
    cy_norm_forward(queue, normed, heads->inv_rms, heads->kept, cy_view_none(),
        cy_layer_weight(layer, heads->role, 0), layer->context->shape.norm_eps);
    cy_copy(queue, heads->cols, by_token(normed, heads->cols));
    cy_arena_rewind(queue->scratch, mark);
}

// q and k in qkv [t, (heads + 2 kv_heads) head_dim] are normed in place; fills the stash.
static void qk_norm_forward(const cy_layer *layer, cy_view qkv, const cy_qk_norm_stash *stash)
{
    if (!layer->context->shape.qk_norm) return;
    const qk_groups both = groups_of(layer->context, qkv, stash);
    head_norm_forward(layer, &both.q);
    head_norm_forward(layer, &both.k);
}

static void head_norm_backward(const cy_layer *layer, const head_group *heads)
{
    cy_queue *queue = layer->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const int64_t rows = heads->kept.rows, cols = heads->kept.cols;
    const cy_view dy = cy_view_alloc(queue->scratch, heads->kept.dtype, rows, cols);
    const cy_view dx = cy_view_alloc(queue->scratch, heads->kept.dtype, rows, cols);
    cy_copy(queue, by_token(dy, heads->cols), heads->cols);
    cy_fill(queue, dx, 0.0);
    cy_norm_backward(queue, dx, cy_layer_grad(layer, heads->role, 0), dy, heads->kept,
        heads->inv_rms, cy_layer_weight(layer, heads->role, 0));
    cy_copy(queue, heads->cols, by_token(dx, heads->cols));
    cy_arena_rewind(queue->scratch, mark);
}

// d_qkv holds the gradient of the normed q and k and becomes that of q and k before the norm; adds
// the gradients of the two weights, of this rank's heads and tokens.
static void qk_norm_backward(const cy_layer *layer, cy_view d_qkv, const cy_qk_norm_stash *stash)
{
    if (!layer->context->shape.qk_norm) return;
    const qk_groups both = groups_of(layer->context, d_qkv, stash);
    head_norm_backward(layer, &both.q);
    head_norm_backward(layer, &both.k);
}

// ---- memory

void cy_self_attention_stash_alloc_to_input(cy_self_attention_stash *stash,
    const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    stash->qkv = cy_view_alloc(
        arena, context->dtype, tokens, cy_model_q_cols(context) + 2 * cy_model_kv_cols(context));
    stash->lse = cy_view_alloc(arena, context->sum_dtype, context->heads_local, tokens);
    qk_norm_alloc(&stash->qk_norm, context, arena, tokens);
}

void cy_self_attention_stash_alloc_to_weight(cy_self_attention_stash *stash,
    const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    const int64_t outside = cy_tensor_local_tokens(&context->tp, tokens);
    stash->inv_rms = cy_view_alloc(arena, context->sum_dtype, 1, outside);
    stash->o = cy_view_alloc(arena, context->dtype, tokens, cy_model_q_cols(context));
    if (!context->tp.keep_inputs) return;
    stash->n = cy_view_alloc(arena, context->dtype, tokens, context->shape.hidden);
}

void cy_self_attention_gradients_alloc(cy_self_attention_gradients *gradients,
    const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    const int64_t outside = cy_tensor_local_tokens(&context->tp, tokens);
    const int64_t qkv = cy_model_q_cols(context) + 2 * cy_model_kv_cols(context);
    *gradients = (cy_self_attention_gradients){
        .dy = cy_view_alloc(arena, context->dtype, outside, context->shape.hidden),
        .d_qkv = cy_view_alloc(arena, context->dtype, tokens, qkv),
    };
}

// ---- positions

cy_status cy_self_attention_fill_rope(const cy_model_context *context, int64_t length)
{
    cy_queue *queue = context->queue;
    double *inv_freq = NULL;
    const int64_t count = context->shape.head_dim / 2;
    CY_TRY(CY_ALLOC(&inv_freq, (size_t)count));
    const double scale = cy_rope_frequencies(inv_freq, &context->shape, length);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view copy = cy_view_alloc(queue->scratch, CY_F64, 1, count);
    cy_queue_upload(queue, copy.data, inv_freq, cy_view_bytes(copy));
    cy_rope_table(queue, context->rope, copy.data, scale);
    const cy_status status = cy_queue_synchronize(queue);
    cy_arena_rewind(queue->scratch, mark);
    cy_memory_free(inv_freq);
    return status;
}

// ---- the KV cache

// Rows that follow each other in one page are written by one copy.
void cy_kv_pages_write(cy_queue *queue, const cy_kv_pages *pages, cy_view k, cy_view v,
    const cy_cache_batch *batch, int64_t first)
{
    const int32_t *positions = batch->positions_host + first;
    const int32_t *sequences = batch->sequences_host + first;
    int64_t row = 0;
    while (row < k.rows) {
        const int64_t position = positions[row];
        const int64_t in_page = position % pages->page_size;
        int64_t count = 1;
        while (row + count < k.rows && in_page + count < pages->page_size &&
            sequences[row + count] == sequences[row] &&
            positions[row + count] == position + count) {
            count++;
        }
        const int64_t at = cy_kv_row(pages, batch->page_table_host, sequences[row], position);
        cy_copy(queue, cy_view_rows(pages->keys, at, count), cy_view_rows(k, row, count));
        cy_copy(queue, cy_view_rows(pages->values, at, count), cy_view_rows(v, row, count));
        row += count;
    }
}

static const cy_kv_pages *pages_of(const cy_layer *layer, const cy_cache_batch *cache)
{
    return &cache->pages[layer->storage->units[layer->unit].layer];
}

// ---- forward

// More spans than this are not attended to in chunks.
#define CHUNK_SPANS 64

// The parts of the microbatch's spans whose queries are in `rows`, counted from there. Keys after
// the last of these queries are left out: none of them sees any. Returns how many.
static int spans_of_rows(cy_attention_span *spans, const cy_microbatch *batch, cy_tensor_rows rows)
{
    int count = 0;
    for (int i = 0; i < batch->span_count; i++) {
        const cy_attention_span span = batch->spans[i];
        const int64_t end = span.q_first + span.q_count, rows_end = rows.first + rows.count;
        const int64_t first = span.q_first > rows.first ? span.q_first : rows.first;
        const int64_t last = end < rows_end ? end : rows_end;
        if (first >= last) continue;
        spans[count++] = (cy_attention_span){
            .q_first = first - rows.first,
            .q_count = last - first,
            .k_first = span.k_first,
            .k_count = span.k_count - (end - last),
        };
    }
    return count;
}

// The attention of the queries in `rows`: all of them, or a chunk where one rank has all keys.
static cy_status attend(const cy_layer *layer, const cy_self_attention_stash *stash,
    const cy_microbatch *batch, cy_tensor_rows rows)
{
    const cy_model_context *context = layer->context;
    const qkv_parts qkv = parts_of(context, stash->qkv);
    if (batch->cache != NULL) {
        const cy_attention_spec spec = cy_model_attention(context);
        cy_attention_paged(context->queue, cy_tensor_rows_of(stash->o, rows),
            cy_tensor_rows_of(qkv.q, rows), pages_of(layer, batch->cache),
            batch->cache->sequences + rows.first, batch->positions + rows.first, &spec);
        return CY_OK;
    }
    cy_attention_spec spec = attention_of(context, batch);
    if (rows.count == stash->qkv.rows) {
        return cy_context_attention_forward(
            &context->cp, context->queue, stash->o, stash->lse, qkv.q, qkv.k, qkv.v, &spec);
    }
    cy_attention_span spans[CHUNK_SPANS];
    spec.span_count = spans_of_rows(spans, batch, rows);
    spec.spans = spans;
    spec.q_positions += rows.first;
    return cy_context_attention_forward(&context->cp, context->queue,
        cy_tensor_rows_of(stash->o, rows), cy_view_cols(stash->lse, rows.first, rows.count),
        cy_tensor_rows_of(qkv.q, rows), qkv.k, qkv.v, &spec);
}

// qkv of rows outside of x; their keys and values are in the cache, where there is one.
static cy_status make_qkv(const cy_layer *layer, const cy_self_attention_stash *stash,
    const cy_microbatch *batch, cy_tensor_rows rows)
{
    const cy_model_context *context = layer->context;
    cy_queue *queue = context->queue;
    const cy_column_linear linear = qkv_of(layer);
    const cy_tensor_rows inside = cy_layer_inside_rows(layer, rows, stash->qkv);
    const cy_view qkv = cy_tensor_rows_of(stash->qkv, inside);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view n =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->shape.hidden);
    cy_norm_forward(queue, n, cy_view_cols(stash->inv_rms, rows.first, rows.count),
        cy_tensor_rows_of(stash->x, rows), cy_view_none(), cy_layer_weight(layer, CY_ROLE_NORM1, 0),
        context->shape.norm_eps);
    CY_TRY(cy_layer_column_forward(layer, &linear, qkv, stash->n, n));
    cy_arena_rewind(queue->scratch, mark);

    const cy_qk_norm_stash qk_norm = qk_norm_rows(&stash->qk_norm, context, inside);
    qk_norm_forward(layer, qkv, &qk_norm);
    cy_rope(queue, qkv, context->rope, batch->positions + inside.first,
        context->heads_local + context->kv_heads_local, false);
    if (batch->cache != NULL) {
        const qkv_parts parts = parts_of(context, qkv);
        cy_kv_pages_write(
            queue, pages_of(layer, batch->cache), parts.k, parts.v, batch->cache, inside.first);
    }
    return CY_OK;
}

cy_status cy_self_attention_forward(const cy_layer *layer, cy_view y,
    const cy_self_attention_stash *stash, const cy_microbatch *batch, cy_tensor_reduce_state *x,
    cy_tensor_reduce_state *branch)
{
    const cy_model_context *context = layer->context;
    const cy_tensor_parallel *tensor = &context->tp;
    cy_queue *queue = context->queue;
    const cy_row_linear out = out_of(layer);
    const bool in_pieces =
        cy_group_size(context->cp.group) == 1 && batch->span_count <= CHUNK_SPANS;
    const bool by_rows = in_pieces && !cy_tensor_sequence_parallel(tensor);
    if (!by_rows) {
        CY_TRY(cy_tensor_reduce_finish(x));
        CY_TRY(make_qkv(layer, stash, batch, cy_layer_all_rows(stash->x)));
    }
    if (!in_pieces) CY_TRY(attend(layer, stash, batch, cy_layer_all_rows(stash->qkv)));
    cy_tensor_rows rows;
    cy_tensor_reduce_start(branch, tensor, queue, y, cy_layer_sum(layer, CY_SUM_OUT));
    CY_TRY(cy_tensor_reduce_next(branch, &rows));
    while (rows.count > 0) {
        if (by_rows) {
            CY_TRY(cy_layer_rows_arrive(x, rows));
            CY_TRY(make_qkv(layer, stash, batch, rows));
        }
        if (in_pieces) CY_TRY(attend(layer, stash, batch, rows));
        cy_row_linear_rows(&out, queue, cy_tensor_rows_of(branch->partial, rows),
            cy_tensor_rows_of(stash->o, rows));
        CY_TRY(cy_tensor_reduce_next(branch, &rows));
    }
    return CY_OK;
}

// ---- backward

// Rounds the gradients of keys and values, once they are sums over all query heads. Where several
// ranks hold a kv head, one of them has its gradient from here on and the others have zeros.
static cy_status finish_keys(
    const cy_model_context *context, const qkv_parts *d, cy_view dk, cy_view dv)
{
    cy_queue *queue = context->queue;
    CY_TRY(cy_group_all_reduce(context->kv_group, queue, dk, CY_SUM));
    CY_TRY(cy_group_all_reduce(context->kv_group, queue, dv, CY_SUM));
    if (context->kv_copy > 0) {
        cy_fill(queue, d->k, 0.0);
        cy_fill(queue, d->v, 0.0);
        return CY_OK;
    }
    cy_copy(queue, d->k, dk);
    cy_copy(queue, d->v, dv);
    return CY_OK;
}

// d_qkv from the gradient d_o of the attention's output.
static cy_status backward_heads(const cy_layer *layer, cy_view d_qkv, cy_view d_o,
    const cy_self_attention_stash *stash, const cy_microbatch *batch)
{
    const cy_model_context *context = layer->context;
    cy_queue *queue = context->queue;
    const cy_attention_spec spec = attention_of(context, batch);
    const qkv_parts qkv = parts_of(context, stash->qkv);
    const qkv_parts d = parts_of(context, d_qkv);
    const size_t mark = cy_arena_mark(queue->scratch);

    const cy_view delta =
        cy_view_alloc(queue->scratch, context->sum_dtype, context->heads_local, d_o.rows);
    cy_attention_delta(queue, delta, d_o, stash->o, context->heads_local);
    cy_fixed *keys = cy_layer_sum(layer, CY_SUM_D_KEYS);
    cy_view dk = d.k, dv = d.v;
    if (keys != NULL) {
        dk = cy_fixed_alloc(keys, queue->scratch, d.k.rows, d.k.cols);
        dv = cy_fixed_alloc(keys, queue->scratch, d.v.rows, d.v.cols);
    }
    CY_TRY(cy_context_attention_backward(
        &context->cp, queue, d.q, dk, dv, d_o, stash->lse, delta, qkv.q, qkv.k, qkv.v, &spec));
    if (keys != NULL) CY_TRY(finish_keys(context, &d, dk, dv));
    cy_rope(queue, d_qkv, context->rope, batch->positions,
        context->heads_local + context->kv_heads_local, true);
    qk_norm_backward(layer, d_qkv, &stash->qk_norm);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

static cy_linear_gradients out_targets(const cy_layer *layer, cy_backward parts)
{
    return cy_layer_targets(layer, parts, CY_ROLE_OUT, 0, CY_ROLE_COUNT, 0);
}

static cy_linear_gradients qkv_targets(const cy_layer *layer, cy_backward parts)
{
    return cy_layer_targets(
        layer, parts, CY_ROLE_Q, 2, CY_ROLE_Q_BIAS, layer->context->shape.qkv_bias ? 2 : 0);
}

static cy_status recompute_input(
    const cy_layer *layer, const cy_self_attention_stash *stash, cy_tensor_gather_state *n)
{
    return cy_layer_recompute_input(layer, n, stash->n, stash->x, stash->inv_rms, CY_ROLE_NORM1);
}

cy_status cy_self_attention_backward(const cy_layer *layer, cy_view dx,
    const cy_self_attention_stash *stash, const cy_self_attention_gradients *gradients,
    const cy_microbatch *batch, cy_backward parts, const cy_overlap_work *under)
{
    const cy_model_context *context = layer->context;
    const cy_tensor_parallel *tensor = &context->tp;
    const bool splits = cy_tensor_sequence_parallel(tensor);
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    if (parts == CY_BACKWARD_INPUT_ONLY) cy_copy(queue, gradients->dy, dx);
    const cy_row_linear out = out_of(layer);
    const cy_column_linear qkv = qkv_of(layer);

    cy_tensor_gather_state dy;
    CY_TRY(cy_tensor_gather_start(&dy, tensor, queue, cy_tensor_all_tokens(tensor, queue, dx), dx));
    if (splits) CY_TRY(under->run(under->context));
    const size_t inner = cy_arena_mark(queue->scratch);
    const cy_view d_o =
        cy_view_alloc(queue->scratch, context->dtype, dy.all.rows, cy_model_q_cols(context));
    CY_TRY(cy_row_linear_backward_input(&out, queue, d_o, &dy));
    CY_TRY(backward_heads(layer, gradients->d_qkv, d_o, stash, batch));
    cy_arena_rewind(queue->scratch, inner);

    cy_tensor_gather_state n = {0};
    const cy_linear_gradients to_out = out_targets(layer, parts),
                              to_qkv = qkv_targets(layer, parts);
    const bool weights = !cy_view_is_none(to_qkv.weight);
    if (splits && weights) {
        CY_TRY(recompute_input(layer, stash, &n));
        cy_row_linear_backward_weight(&out, queue, &to_out, &dy, stash->o);
    }
    // The output bias is added to this rank's own tokens, outside the split.
    const cy_view d_out_bias = cy_layer_grad(layer, CY_ROLE_OUT_BIAS, 0);
    if (!cy_view_is_none(d_out_bias)) cy_sum_rows(queue, d_out_bias, dx);

    const cy_view d_n = cy_view_alloc(queue->scratch, context->dtype, dx.rows, dx.cols);
    cy_tensor_reduce_state sum;
    cy_tensor_reduce_start(&sum, tensor, queue, d_n, cy_layer_sum(layer, CY_SUM_D_NORM1));
    CY_TRY(cy_column_linear_backward_input(&qkv, queue, &sum, gradients->d_qkv));
    if (!splits) {
        cy_row_linear_backward_weight(&out, queue, &to_out, &dy, stash->o);
        CY_TRY(under->run(under->context));
        if (weights) CY_TRY(recompute_input(layer, stash, &n));
    }
    if (weights) {
        CY_TRY(cy_tensor_gather_finish(&n));
        cy_column_linear_backward_weight(&qkv, queue, &to_qkv, gradients->d_qkv, n.all);
    }
    CY_TRY(cy_tensor_reduce_finish(&sum));
    cy_norm_backward(queue, dx, cy_layer_grad(layer, CY_ROLE_NORM1, 0), d_n, stash->x,
        stash->inv_rms, cy_layer_weight(layer, CY_ROLE_NORM1, 0));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_self_attention_backward_weight(const cy_layer *layer,
    const cy_self_attention_stash *stash, const cy_self_attention_gradients *gradients)
{
    const cy_tensor_parallel *tensor = &layer->context->tp;
    cy_queue *queue = layer->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_column_linear qkv = qkv_of(layer);
    const cy_row_linear out = out_of(layer);
    const cy_linear_gradients to_out = out_targets(layer, CY_BACKWARD_TOGETHER);
    const cy_linear_gradients to_qkv = qkv_targets(layer, CY_BACKWARD_TOGETHER);
    cy_tensor_gather_state n, dy;

    CY_TRY(recompute_input(layer, stash, &n));
    CY_TRY(cy_tensor_gather_start(
        &dy, tensor, queue, cy_tensor_all_tokens(tensor, queue, gradients->dy), gradients->dy));
    CY_TRY(cy_tensor_gather_finish(&dy));
    cy_row_linear_backward_weight(&out, queue, &to_out, &dy, stash->o);
    CY_TRY(cy_tensor_gather_finish(&n));
    cy_column_linear_backward_weight(&qkv, queue, &to_qkv, gradients->d_qkv, n.all);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}
