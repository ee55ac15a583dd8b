// Runs one transformer layer forward and backward: attention and feed-forward, each behind a norm.

#include "model/block.h"

#include "base/status.h"

static cy_view weight(const cy_block *block, cy_role role, int fused_extra)
{
    return cy_storage_weight(block->storage, block->unit, role, fused_extra);
}

static cy_view grad(const cy_block *block, cy_role role, int fused_extra)
{
    return cy_storage_grad(block->storage, block->unit, role, fused_extra);
}

// Where strict mode makes a sum of this layer; NULL in fast mode.
static cy_fixed *sum_at(const cy_block *block, cy_sum_site place)
{
    return cy_sums_at(block->context->sums, block->storage->units[block->unit].layer, (int)place);
}

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

void cy_block_stash_alloc_to_input(
    cy_block_stash *stash, const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    stash->qkv = cy_view_alloc(
        arena, context->dtype, tokens, cy_model_q_cols(context) + 2 * cy_model_kv_cols(context));
    stash->lse = cy_view_alloc(arena, context->sum_dtype, context->heads_local, tokens);
    cy_qk_norm_stash_alloc(&stash->qk_norm, context, arena, tokens);
}

void cy_block_stash_alloc_to_weight(cy_block_stash *stash, const cy_model_context *context,
    cy_arena *arena, int64_t tokens, bool keep_gate_up)
{
    const int64_t outside = cy_tensor_local_tokens(&context->tp, tokens);
    const cy_dtype dtype = context->dtype;
    stash->mid = cy_view_alloc(arena, dtype, outside, context->shape.hidden);
    stash->inv_rms1 = cy_view_alloc(arena, context->sum_dtype, 1, outside);
    stash->inv_rms2 = cy_view_alloc(arena, context->sum_dtype, 1, outside);
    stash->o = cy_view_alloc(arena, dtype, tokens, cy_model_q_cols(context));
    if (keep_gate_up) stash->gate_up = cy_view_alloc(arena, dtype, tokens, 2 * context->ffn_local);
    if (!context->tp.keep_inputs) return;
    stash->n1 = cy_view_alloc(arena, dtype, tokens, context->shape.hidden);
    stash->n2 = cy_view_alloc(arena, dtype, tokens, context->shape.hidden);
}

void cy_block_gradients_alloc(
    cy_block_gradients *gradients, const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    const int64_t outside = cy_tensor_local_tokens(&context->tp, tokens);
    const cy_dtype dtype = context->dtype;
    const int64_t qkv = cy_model_q_cols(context) + 2 * cy_model_kv_cols(context);
    *gradients = (cy_block_gradients){
        .dy = cy_view_alloc(arena, dtype, outside, context->shape.hidden),
        .d_mid = cy_view_alloc(arena, dtype, outside, context->shape.hidden),
        .d_qkv = cy_view_alloc(arena, dtype, tokens, qkv),
        .act = cy_view_alloc(arena, dtype, tokens, context->ffn_local),
    };
}

// ---- the four linear layers

static cy_column_linear qkv_of(const cy_block *block)
{
    return (cy_column_linear){
        .parallel = &block->context->tp,
        .weight = weight(block, CY_ROLE_Q, 2),
        .bias = weight(block, CY_ROLE_Q_BIAS, block->context->shape.qkv_bias ? 2 : 0),
    };
}

// Its bias is added, and its bias gradient made, where its sum meets the residual.
static cy_row_linear out_of(const cy_block *block)
{
    return (cy_row_linear){
        .parallel = &block->context->tp,
        .weight = weight(block, CY_ROLE_OUT, 0),
        .bias = weight(block, CY_ROLE_OUT_BIAS, 0),
        .input_is_parallel = true,
        .skip_bias = true,
    };
}

static cy_column_linear gate_up_of(const cy_block *block)
{
    return (cy_column_linear){
        .parallel = &block->context->tp,
        .weight = weight(block, CY_ROLE_GATE, 1),
    };
}

static cy_row_linear down_of(const cy_block *block)
{
    return (cy_row_linear){
        .parallel = &block->context->tp,
        .weight = weight(block, CY_ROLE_DOWN, 0),
        .input_is_parallel = true,
    };
}

// A column-parallel linear behind a norm: y of n, tokens outside. `kept` is where all tokens of n
// stay for the backward pass, or none.
static cy_status column_forward(
    const cy_block *block, const cy_column_linear *layer, cy_view y, cy_view kept, cy_view n)
{
    cy_queue *queue = block->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view all = kept;
    if (cy_view_is_none(kept)) all = cy_tensor_all_tokens(layer->parallel, queue, n);
    CY_TRY(cy_column_linear_forward(layer, queue, y, all, n));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// ---- forward

// All tokens outside.
static cy_tensor_rows all_rows(cy_view outside)
{
    return (cy_tensor_rows){.count = outside.rows};
}

// What rows outside are inside: the same rows, or, where tokens are split, all of them.
static cy_tensor_rows inside_rows(const cy_block *block, cy_tensor_rows rows, cy_view inside)
{
    return cy_tensor_sequence_parallel(&block->context->tp) ? all_rows(inside) : rows;
}

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
static cy_status attend(const cy_block *block, const cy_block_stash *stash,
    const cy_microbatch *batch, cy_tensor_rows rows)
{
    const cy_model_context *context = block->context;
    const qkv_parts qkv = parts_of(context, stash->qkv);
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

// qkv of rows outside of x.
static cy_status make_qkv(const cy_block *block, const cy_block_stash *stash,
    const cy_microbatch *batch, cy_tensor_rows rows)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const cy_column_linear layer = qkv_of(block);
    const cy_tensor_rows inside = inside_rows(block, rows, stash->qkv);
    const cy_view qkv = cy_tensor_rows_of(stash->qkv, inside);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view n1 =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->shape.hidden);
    cy_norm_forward(queue, n1, cy_view_cols(stash->inv_rms1, rows.first, rows.count),
        cy_tensor_rows_of(stash->x, rows), cy_view_none(), weight(block, CY_ROLE_NORM1, 0),
        context->shape.norm_eps);
    CY_TRY(column_forward(block, &layer, qkv, stash->n1, n1));
    cy_arena_rewind(queue->scratch, mark);

    const cy_qk_norm_stash qk_norm =
        cy_qk_norm_stash_rows(&stash->qk_norm, context, inside.first, inside.count);
    cy_qk_norm_forward(context, block->storage, block->unit, qkv, &qk_norm);
    cy_rope(queue, qkv, context->rope, batch->positions + inside.first,
        context->heads_local + context->kv_heads_local, false);
    return CY_OK;
}

// The same rows of a sum that was cut like this, or nothing where it has come already.
static cy_status rows_arrive(cy_tensor_reduce_state *sum, cy_tensor_rows rows)
{
    cy_tensor_rows arrived;
    CY_TRY(cy_tensor_reduce_arrived(sum, &arrived));
    CY_ASSERT(arrived.count == 0 || (arrived.first == rows.first && arrived.count == rows.count));
    return CY_OK;
}

// mid = o Wout^T, to be summed over ranks by `attention`, which is on its way when this returns.
// Rows are taken from norm to projection as soon as `x` has them, so that the sum of one chunk
// travels under all of the next.
static cy_status attention_forward(const cy_block *block, const cy_block_stash *stash,
    const cy_microbatch *batch, cy_tensor_reduce_state *x, cy_tensor_reduce_state *attention)
{
    const cy_model_context *context = block->context;
    const cy_tensor_parallel *tensor = &context->tp;
    cy_queue *queue = context->queue;
    const cy_row_linear out = out_of(block);
    const bool in_pieces =
        cy_group_size(context->cp.group) == 1 && batch->span_count <= CHUNK_SPANS;
    const bool by_rows = in_pieces && !cy_tensor_sequence_parallel(tensor);
    if (!by_rows) {
        CY_TRY(cy_tensor_reduce_finish(x));
        CY_TRY(make_qkv(block, stash, batch, all_rows(stash->x)));
    }
    if (!in_pieces) CY_TRY(attend(block, stash, batch, all_rows(stash->qkv)));
    cy_tensor_rows rows;
    cy_tensor_reduce_start(attention, tensor, queue, stash->mid, sum_at(block, CY_SUM_OUT));
    CY_TRY(cy_tensor_reduce_next(attention, &rows));
    while (rows.count > 0) {
        if (by_rows) {
            CY_TRY(rows_arrive(x, rows));
            CY_TRY(make_qkv(block, stash, batch, rows));
        }
        if (in_pieces) CY_TRY(attend(block, stash, batch, rows));
        cy_row_linear_rows(&out, queue, cy_tensor_rows_of(attention->partial, rows),
            cy_tensor_rows_of(stash->o, rows));
        CY_TRY(cy_tensor_reduce_next(attention, &rows));
    }
    return CY_OK;
}

// gate_up of rows outside of mid, which holds the attention branch and gets the residual added.
static cy_status make_gate_up(
    const cy_block *block, const cy_block_stash *stash, cy_tensor_rows rows)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const cy_column_linear layer = gate_up_of(block);
    const cy_view bias = out_of(block).bias, mid = cy_tensor_rows_of(stash->mid, rows);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view n2 =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->shape.hidden);
    if (!cy_view_is_none(bias)) cy_add_bias(queue, mid, bias);
    cy_norm_forward(queue, n2, cy_view_cols(stash->inv_rms2, rows.first, rows.count), mid,
        cy_tensor_rows_of(stash->x, rows), weight(block, CY_ROLE_NORM2, 0),
        context->shape.norm_eps);
    const cy_tensor_rows inside = inside_rows(block, rows, stash->gate_up);
    CY_TRY(column_forward(block, &layer, cy_tensor_rows_of(stash->gate_up, inside), stash->n2, n2));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// The partial product of rows of y.
static void activate_and_project(
    const cy_block *block, const cy_block_stash *stash, cy_view partial, cy_tensor_rows rows)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const cy_row_linear down = down_of(block);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view act =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->ffn_local);
    cy_swiglu_forward(queue, act, cy_tensor_rows_of(stash->gate_up, rows));
    cy_row_linear_rows(&down, queue, cy_tensor_rows_of(partial, rows), act);
    cy_arena_rewind(queue->scratch, mark);
}

// gate_up of all rows, as the sum of the attention branch has them.
static cy_status make_all_gate_up(
    const cy_block *block, const cy_block_stash *stash, cy_tensor_reduce_state *attention)
{
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_reduce_arrived(attention, &rows));
    while (rows.count > 0) {
        CY_TRY(make_gate_up(block, stash, rows));
        CY_TRY(cy_tensor_reduce_arrived(attention, &rows));
    }
    return CY_OK;
}

// y = mid + the feed-forward branch, once `output` has come. Without gate_up, rows are taken from
// norm to projection as soon as the sum of the attention branch has them.
static cy_status feed_forward(const cy_block *block, cy_view y, const cy_block_stash *stash,
    cy_tensor_reduce_state *attention, cy_tensor_reduce_state *output, bool has_gate_up)
{
    cy_queue *queue = block->context->queue;
    cy_tensor_rows rows;
    cy_tensor_reduce_start(output, &block->context->tp, queue, y, sum_at(block, CY_SUM_DOWN));
    output->residual = stash->mid;
    CY_TRY(cy_tensor_reduce_next(output, &rows));
    while (rows.count > 0) {
        if (!has_gate_up) {
            CY_TRY(rows_arrive(attention, rows));
            CY_TRY(make_gate_up(block, stash, rows));
        }
        activate_and_project(block, stash, output->partial, rows);
        CY_TRY(cy_tensor_reduce_next(output, &rows));
    }
    // What has a place in the scratch arena ends here.
    return output->partial.data == y.data ? CY_OK : cy_tensor_reduce_finish(output);
}

cy_status cy_block_forward(const cy_block *block, cy_view y, cy_block_stash *stash,
    const cy_microbatch *batch, cy_tensor_reduce_state *pending)
{
    cy_arena *scratch = block->context->queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    const bool at_once = cy_tensor_sequence_parallel(&block->context->tp) || cy_view_is_none(y);
    cy_tensor_reduce_state attention, output = {0};
    CY_TRY(attention_forward(block, stash, batch, pending, &attention));
    if (at_once) {
        CY_TRY(make_all_gate_up(block, stash, &attention));
        cy_arena_rewind(scratch, mark);
    }
    if (!cy_view_is_none(y)) {
        CY_TRY(feed_forward(block, y, stash, &attention, &output, at_once));
    }
    cy_arena_rewind(scratch, mark);
    *pending = output;
    return CY_OK;
}

// ---- backward

// Where the weight gradients of one linear layer go: nowhere yet where backward_weight makes them.
static cy_linear_gradients targets(const cy_block *block, cy_backward parts, cy_role role,
    int fused_extra, cy_role bias, int bias_fused_extra)
{
    if (parts == CY_BACKWARD_INPUT_ONLY) return (cy_linear_gradients){0};
    return (cy_linear_gradients){
        .weight = grad(block, role, fused_extra),
        .bias = bias == CY_ROLE_COUNT ? cy_view_none() : grad(block, bias, bias_fused_extra),
        .empty = block->storage->units[block->unit].grads_empty,
    };
}

// The input of a column-parallel linear for its weight gradient: as it was kept, or made again from
// what the norm saw and on its way from the other ranks.
static cy_status recompute_input(const cy_block *block, cy_tensor_gather_state *input, cy_view kept,
    cy_view x, cy_view inv_rms, cy_role norm)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    if (!cy_view_is_none(kept)) {
        *input = cy_tensor_gather_done(&context->tp, kept);
        return CY_OK;
    }
    const cy_view n = cy_view_alloc(queue->scratch, context->dtype, x.rows, x.cols);
    cy_norm_apply(queue, n, x, inv_rms, weight(block, norm, 0));
    return cy_tensor_gather_start(
        input, &context->tp, queue, cy_tensor_all_tokens(&context->tp, queue, n), n);
}

// The gradients of the weights of gate and up come last, under the sum of the attention branch's
// input gradient, which has too little of its own to travel under. With tokens split n2 is gathered
// while there is work, and the gradients are made under the gather of d_mid.
static cy_status backward_gate_up_weight(const cy_block *block, const cy_block_stash *stash,
    cy_backward parts, cy_tensor_gather_state *n2)
{
    cy_queue *queue = block->context->queue;
    const cy_column_linear layer = gate_up_of(block);
    const cy_linear_gradients to = targets(block, parts, CY_ROLE_GATE, 1, CY_ROLE_COUNT, 0);
    if (cy_view_is_none(to.weight)) return CY_OK;
    const size_t mark = cy_arena_mark(queue->scratch);
    if (!cy_tensor_sequence_parallel(layer.parallel)) {
        CY_TRY(recompute_input(block, n2, stash->n2, stash->mid, stash->inv_rms2, CY_ROLE_NORM2));
    }
    CY_TRY(cy_tensor_gather_finish(n2));
    cy_column_linear_backward_weight(&layer, queue, &to, stash->gate_up, n2->all);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// Rows of the gradient of gate and up, in their place in the stash, and of the SwiGLU product.
static void backward_activation(const cy_block *block, const cy_block_stash *stash,
    const cy_block_gradients *gradients, cy_view dy, cy_tensor_rows rows)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const cy_row_linear down = down_of(block);
    const cy_view gate_up = cy_tensor_rows_of(stash->gate_up, rows);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view d_act =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->ffn_local);
    cy_row_linear_backward_rows(&down, queue, d_act, cy_tensor_rows_of(dy, rows));
    cy_swiglu_backward(queue, gate_up, cy_tensor_rows_of(gradients->act, rows), d_act, gate_up);
    cy_arena_rewind(queue->scratch, mark);
}

// dx holds dy; it becomes dy plus the gradient through the feed-forward branch. With tokens split
// *n2 is being gathered then, into the scratch arena, where weight gradients are asked for.
static cy_status backward_feed_forward(const cy_block *block, cy_view dx,
    const cy_block_stash *stash, cy_block_gradients *gradients, cy_backward parts,
    cy_tensor_gather_state *n2)
{
    const cy_model_context *context = block->context;
    const cy_tensor_parallel *tensor = &context->tp;
    const bool splits = cy_tensor_sequence_parallel(tensor);
    cy_queue *queue = context->queue;
    if (parts == CY_BACKWARD_INPUT_ONLY) cy_copy(queue, gradients->dy, dx);
    const cy_row_linear down = down_of(block);
    const cy_linear_gradients to = targets(block, parts, CY_ROLE_DOWN, 0, CY_ROLE_COUNT, 0);

    cy_tensor_gather_state dy;
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_gather_start(&dy, tensor, queue, cy_tensor_all_tokens(tensor, queue, dx), dx));
    if (splits) {
        CY_TRY(cy_tensor_gather_next(&dy, &rows));
        while (rows.count > 0) {
            backward_activation(block, stash, gradients, dy.all, rows);
            CY_TRY(cy_tensor_gather_next(&dy, &rows));
        }
        if (!cy_view_is_none(to.weight)) {
            CY_TRY(
                recompute_input(block, n2, stash->n2, stash->mid, stash->inv_rms2, CY_ROLE_NORM2));
        }
        cy_row_linear_backward_weight(&down, queue, &to, &dy, gradients->act);
    }

    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view d_n2 = cy_view_alloc(queue->scratch, context->dtype, dx.rows, dx.cols);
    const cy_column_linear gate_up = gate_up_of(block);
    cy_tensor_reduce_state sum;
    cy_tensor_reduce_start(&sum, tensor, queue, d_n2, sum_at(block, CY_SUM_D_NORM2));
    CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    while (rows.count > 0) {
        if (!splits) backward_activation(block, stash, gradients, dx, rows);
        cy_column_linear_backward_rows(&gate_up, queue, cy_tensor_rows_of(sum.partial, rows),
            cy_tensor_rows_of(stash->gate_up, rows));
        CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    }
    if (!splits) cy_row_linear_backward_weight(&down, queue, &to, &dy, gradients->act);
    CY_TRY(cy_tensor_reduce_finish(&sum));
    cy_norm_backward(queue, dx, grad(block, CY_ROLE_NORM2, 0), d_n2, stash->mid, stash->inv_rms2,
        weight(block, CY_ROLE_NORM2, 0));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

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
static cy_status backward_heads(const cy_block *block, cy_view d_qkv, cy_view d_o,
    const cy_block_stash *stash, const cy_microbatch *batch)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const cy_attention_spec spec = attention_of(context, batch);
    const qkv_parts qkv = parts_of(context, stash->qkv);
    const qkv_parts d = parts_of(context, d_qkv);
    const size_t mark = cy_arena_mark(queue->scratch);

    const cy_view delta =
        cy_view_alloc(queue->scratch, context->sum_dtype, context->heads_local, d_o.rows);
    cy_attention_delta(queue, delta, d_o, stash->o, context->heads_local);
    cy_fixed *keys = sum_at(block, CY_SUM_D_KEYS);
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
    cy_qk_norm_backward(context, block->storage, block->unit, d_qkv, &stash->qk_norm);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// dx holds the gradient of mid; it becomes the gradient of x. *n2 as backward_feed_forward left it.
static cy_status backward_attention(const cy_block *block, cy_view dx, const cy_block_stash *stash,
    cy_block_gradients *gradients, const cy_microbatch *batch, cy_backward parts,
    cy_tensor_gather_state *n2)
{
    const cy_model_context *context = block->context;
    const cy_tensor_parallel *tensor = &context->tp;
    const bool splits = cy_tensor_sequence_parallel(tensor);
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    if (parts == CY_BACKWARD_INPUT_ONLY) cy_copy(queue, gradients->d_mid, dx);
    const cy_row_linear out = out_of(block);
    const cy_column_linear qkv = qkv_of(block);

    cy_tensor_gather_state d_mid;
    CY_TRY(
        cy_tensor_gather_start(&d_mid, tensor, queue, cy_tensor_all_tokens(tensor, queue, dx), dx));
    if (splits) CY_TRY(backward_gate_up_weight(block, stash, parts, n2));
    const size_t inner = cy_arena_mark(queue->scratch);
    const cy_view d_o =
        cy_view_alloc(queue->scratch, context->dtype, d_mid.all.rows, cy_model_q_cols(context));
    CY_TRY(cy_row_linear_backward_input(&out, queue, d_o, &d_mid));
    CY_TRY(backward_heads(block, gradients->d_qkv, d_o, stash, batch));
    cy_arena_rewind(queue->scratch, inner);

    cy_tensor_gather_state n1 = {0};
    const cy_linear_gradients to_out = targets(block, parts, CY_ROLE_OUT, 0, CY_ROLE_COUNT, 0);
    const cy_linear_gradients to_qkv =
        targets(block, parts, CY_ROLE_Q, 2, CY_ROLE_Q_BIAS, context->shape.qkv_bias ? 2 : 0);
    const bool weights = !cy_view_is_none(to_qkv.weight);
    if (splits && weights) {
        CY_TRY(recompute_input(block, &n1, stash->n1, stash->x, stash->inv_rms1, CY_ROLE_NORM1));
        cy_row_linear_backward_weight(&out, queue, &to_out, &d_mid, stash->o);
    }
    // The output bias is added to this rank's own tokens, outside the split.
    const cy_view d_out_bias = grad(block, CY_ROLE_OUT_BIAS, 0);
    if (!cy_view_is_none(d_out_bias)) cy_sum_rows(queue, d_out_bias, dx);

    const cy_view d_n1 = cy_view_alloc(queue->scratch, context->dtype, dx.rows, dx.cols);
    cy_tensor_reduce_state sum;
    cy_tensor_reduce_start(&sum, tensor, queue, d_n1, sum_at(block, CY_SUM_D_NORM1));
    CY_TRY(cy_column_linear_backward_input(&qkv, queue, &sum, gradients->d_qkv));
    if (!splits && weights) {
        cy_row_linear_backward_weight(&out, queue, &to_out, &d_mid, stash->o);
        CY_TRY(backward_gate_up_weight(block, stash, parts, n2));
        CY_TRY(recompute_input(block, &n1, stash->n1, stash->x, stash->inv_rms1, CY_ROLE_NORM1));
    }
    if (weights) {
        CY_TRY(cy_tensor_gather_finish(&n1));
        cy_column_linear_backward_weight(&qkv, queue, &to_qkv, gradients->d_qkv, n1.all);
    }
    CY_TRY(cy_tensor_reduce_finish(&sum));
    cy_norm_backward(queue, dx, grad(block, CY_ROLE_NORM1, 0), d_n1, stash->x, stash->inv_rms1,
        weight(block, CY_ROLE_NORM1, 0));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_block_recompute_gate_up(const cy_block *block, cy_block_stash *stash)
{
    cy_queue *queue = block->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_column_linear gate_up = gate_up_of(block);
    if (!cy_view_is_none(stash->n2)) {
        cy_column_linear_rows(&gate_up, queue, stash->gate_up, stash->n2);
        return CY_OK;
    }
    const cy_view n2 =
        cy_view_alloc(queue->scratch, block->context->dtype, stash->mid.rows, stash->mid.cols);
    cy_norm_apply(queue, n2, stash->mid, stash->inv_rms2, weight(block, CY_ROLE_NORM2, 0));
    CY_TRY(column_forward(block, &gate_up, stash->gate_up, cy_view_none(), n2));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_block_backward(const cy_block *block, cy_view dx, cy_block_stash *stash,
    cy_block_gradients *gradients, const cy_microbatch *batch, cy_backward parts)
{
    CY_ASSERT(dx.rows == stash->x.rows && dx.cols == stash->x.cols);
    cy_arena *scratch = block->context->queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    cy_tensor_gather_state n2 = {0};
    CY_TRY(backward_feed_forward(block, dx, stash, gradients, parts, &n2));
    CY_TRY(backward_attention(block, dx, stash, gradients, batch, parts, &n2));
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

cy_status cy_block_backward_weight(
    const cy_block *block, const cy_block_stash *stash, const cy_block_gradients *gradients)
{
    const cy_model_context *context = block->context;
    const cy_tensor_parallel *tensor = &context->tp;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_backward now = CY_BACKWARD_TOGETHER;
    const cy_column_linear qkv = qkv_of(block), gate_up = gate_up_of(block);
    const cy_row_linear out = out_of(block), down = down_of(block);
    const cy_linear_gradients to_qkv =
        targets(block, now, CY_ROLE_Q, 2, CY_ROLE_Q_BIAS, context->shape.qkv_bias ? 2 : 0);
    const cy_linear_gradients to_out = targets(block, now, CY_ROLE_OUT, 0, CY_ROLE_COUNT, 0);
    const cy_linear_gradients to_gate_up = targets(block, now, CY_ROLE_GATE, 1, CY_ROLE_COUNT, 0);
    const cy_linear_gradients to_down = targets(block, now, CY_ROLE_DOWN, 0, CY_ROLE_COUNT, 0);
    cy_tensor_gather_state input, d;

    CY_TRY(recompute_input(block, &input, stash->n2, stash->mid, stash->inv_rms2, CY_ROLE_NORM2));
    CY_TRY(cy_tensor_gather_start(
        &d, tensor, queue, cy_tensor_all_tokens(tensor, queue, gradients->dy), gradients->dy));
    CY_TRY(cy_tensor_gather_finish(&d));
    cy_row_linear_backward_weight(&down, queue, &to_down, &d, gradients->act);
    CY_TRY(cy_tensor_gather_finish(&input));
    cy_column_linear_backward_weight(&gate_up, queue, &to_gate_up, stash->gate_up, input.all);
    cy_arena_rewind(queue->scratch, mark);

    CY_TRY(recompute_input(block, &input, stash->n1, stash->x, stash->inv_rms1, CY_ROLE_NORM1));
    CY_TRY(cy_tensor_gather_start(&d, tensor, queue,
        cy_tensor_all_tokens(tensor, queue, gradients->d_mid), gradients->d_mid));
    CY_TRY(cy_tensor_gather_finish(&d));
    cy_row_linear_backward_weight(&out, queue, &to_out, &d, stash->o);
    CY_TRY(cy_tensor_gather_finish(&input));
    cy_column_linear_backward_weight(&qkv, queue, &to_qkv, gradients->d_qkv, input.all);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
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

static void head_norm_forward(
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
    head_norm_forward(context, storage, unit, &both.q);
    head_norm_forward(context, storage, unit, &both.k);
}

static void head_norm_backward(
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
    head_norm_backward(context, storage, unit, &both.q);
    head_norm_backward(context, storage, unit, &both.k);
}
