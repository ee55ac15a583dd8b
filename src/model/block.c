#include "model/block.h"

#include "base/assert.h"

static cy_view weight(const cy_block *block, cy_role role, int more)
{
    return cy_storage_weight(block->storage, block->unit, role, more);
}

static cy_view grad(const cy_block *block, cy_role role, int more)
{
    return cy_storage_grad(block->storage, block->unit, role, more);
}

// Where strict mode makes a sum of this layer; NULL in fast mode.
static cy_fixed *sum_at(const cy_block *block, cy_sum_place place)
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

static cy_attention_spec attention_of(const cy_model_context *context, const cy_micro_batch *batch)
{
    cy_attention_spec spec = cy_model_attention(context);
    spec.spans = batch->spans;
    spec.span_count = batch->span_count;
    spec.q_positions = batch->positions;
    spec.k_positions = batch->positions;
    return spec;
}

void cy_block_stash_take_brief(
    cy_block_stash *stash, const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    stash->qkv = cy_view_take(
        arena, context->dtype, tokens, cy_model_q_cols(context) + 2 * cy_model_kv_cols(context));
    stash->lse = cy_view_take(arena, context->sum_dtype, context->heads_local, tokens);
    cy_qk_norm_stash_take(&stash->qk_norm, context, arena, tokens);
}

void cy_block_stash_take_kept(cy_block_stash *stash, const cy_model_context *context,
    cy_arena *arena, int64_t tokens, bool keep_gate_up)
{
    const int64_t outside = cy_tensor_outside(&context->tensor, tokens);
    const cy_dtype dtype = context->dtype;
    stash->mid = cy_view_take(arena, dtype, outside, context->shape.hidden);
    stash->inv_rms1 = cy_view_take(arena, context->sum_dtype, 1, outside);
    stash->inv_rms2 = cy_view_take(arena, context->sum_dtype, 1, outside);
    stash->o = cy_view_take(arena, dtype, tokens, cy_model_q_cols(context));
    if (keep_gate_up) stash->gate_up = cy_view_take(arena, dtype, tokens, 2 * context->ffn_local);
    if (!context->tensor.keep_inputs) return;
    stash->n1 = cy_view_take(arena, dtype, tokens, context->shape.hidden);
    stash->n2 = cy_view_take(arena, dtype, tokens, context->shape.hidden);
}

void cy_block_gradients_take(
    cy_block_gradients *gradients, const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    const int64_t outside = cy_tensor_outside(&context->tensor, tokens);
    const cy_dtype dtype = context->dtype;
    const int64_t qkv = cy_model_q_cols(context) + 2 * cy_model_kv_cols(context);
    *gradients = (cy_block_gradients){
        .dy = cy_view_take(arena, dtype, outside, context->shape.hidden),
        .d_mid = cy_view_take(arena, dtype, outside, context->shape.hidden),
        .d_qkv = cy_view_take(arena, dtype, tokens, qkv),
        .act = cy_view_take(arena, dtype, tokens, context->ffn_local),
    };
}

// A column-parallel linear behind a norm: y = n_all W^T + bias of n, the own tokens. `kept` is
// where all tokens of n stay for the backward pass, or none.
static cy_status column_forward(
    const cy_block *block, cy_view y, cy_view kept, cy_view n, cy_view matrix, cy_view bias)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view all = kept;
    if (cy_view_is_none(kept)) all = cy_tensor_inside(&context->tensor, queue, n);
    CY_TRY(cy_column_linear_forward_outside(&context->tensor, queue, y, all, n, matrix, bias));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// More spans than this are not attended to in pieces.
#define PIECE_SPANS 64

// The parts of the micro-batch's spans whose queries are in `rows`, counted from there. Keys after
// the last of these queries are left out: none of them sees any. Returns how many.
static int spans_of_rows(cy_attention_span *spans, const cy_micro_batch *batch, cy_tensor_rows rows)
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

// The attention of the queries in `rows`: all of them, or a piece where one rank has all keys.
static cy_status attend(const cy_block *block, const cy_block_stash *stash,
    const cy_micro_batch *batch, cy_tensor_rows rows)
{
    const cy_model_context *context = block->context;
    const qkv_parts qkv = parts_of(context, stash->qkv);
    cy_attention_spec spec = attention_of(context, batch);
    if (rows.count == stash->qkv.rows) {
        return cy_context_attention_forward(
            &context->context, context->queue, stash->o, stash->lse, qkv.q, qkv.k, qkv.v, &spec);
    }
    cy_attention_span spans[PIECE_SPANS];
    spec.span_count = spans_of_rows(spans, batch, rows);
    spec.spans = spans;
    spec.q_positions += rows.first;
    return cy_context_attention_forward(&context->context, context->queue,
        cy_view_rows(stash->o, rows.first, rows.count),
        cy_view_cols(stash->lse, rows.first, rows.count),
        cy_view_rows(qkv.q, rows.first, rows.count), qkv.k, qkv.v, &spec);
}

// mid = o Wout^T, summed over ranks. A piece of tokens is attended to just before it is projected,
// so that the sum of one piece travels under both of the next.
static cy_status attend_and_project(
    const cy_block *block, const cy_block_stash *stash, const cy_micro_batch *batch)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const bool in_pieces =
        cy_group_size(context->context.group) == 1 && batch->span_count <= PIECE_SPANS;
    if (!in_pieces) {
        CY_TRY(attend(block, stash, batch, (cy_tensor_rows){.count = stash->qkv.rows}));
    }
    cy_tensor_summing sum;
    cy_tensor_rows rows;
    cy_tensor_sum_start(&sum, &context->tensor, queue, stash->mid, sum_at(block, CY_SUM_OUT));
    CY_TRY(cy_tensor_sum_next(&sum, &rows));
    while (rows.count > 0) {
        if (in_pieces) CY_TRY(attend(block, stash, batch, rows));
        cy_matmul(queue, cy_view_rows(sum.partial, rows.first, rows.count),
            cy_view_rows(stash->o, rows.first, rows.count), weight(block, CY_ROLE_OUT, 0),
            (cy_matmul_spec){.transpose_b = true});
        CY_TRY(cy_tensor_sum_next(&sum, &rows));
    }
    CY_TRY(cy_tensor_sum_end(&sum));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// y = act Wdown^T, summed over ranks, of the SwiGLU product of gate_up; likewise.
static cy_status activate_and_project(const cy_block *block, cy_view y, cy_view gate_up)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view act =
        cy_view_take(queue->scratch, context->dtype, gate_up.rows, context->ffn_local);
    cy_tensor_summing sum;
    cy_tensor_rows rows;
    cy_tensor_sum_start(&sum, &context->tensor, queue, y, sum_at(block, CY_SUM_DOWN));
    CY_TRY(cy_tensor_sum_next(&sum, &rows));
    while (rows.count > 0) {
        const cy_view piece = cy_view_rows(act, rows.first, rows.count);
        cy_swiglu_forward(queue, piece, cy_view_rows(gate_up, rows.first, rows.count));
        cy_matmul(queue, cy_view_rows(sum.partial, rows.first, rows.count), piece,
            weight(block, CY_ROLE_DOWN, 0), (cy_matmul_spec){.transpose_b = true});
        CY_TRY(cy_tensor_sum_next(&sum, &rows));
    }
    CY_TRY(cy_tensor_sum_end(&sum));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

static cy_status attention_forward(
    const cy_block *block, cy_block_stash *stash, const cy_micro_batch *batch)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);

    const cy_view n1 =
        cy_view_take(queue->scratch, context->dtype, stash->x.rows, context->shape.hidden);
    cy_norm_forward(queue, n1, stash->inv_rms1, stash->x, cy_view_none(),
        weight(block, CY_ROLE_NORM1, 0), context->shape.norm_eps);
    CY_TRY(column_forward(block, stash->qkv, stash->n1, n1, weight(block, CY_ROLE_Q, 2),
        weight(block, CY_ROLE_Q_BIAS, context->shape.qkv_bias ? 2 : 0)));
    cy_arena_rewind(queue->scratch, mark);

    cy_qk_norm_forward(context, block->storage, block->unit, stash->qkv, &stash->qk_norm);
    cy_rope(queue, stash->qkv, context->rope, batch->positions,
        context->heads_local + context->kv_heads_local, false);
    CY_TRY(attend_and_project(block, stash, batch));
    const cy_view bias = weight(block, CY_ROLE_OUT_BIAS, 0);
    if (!cy_view_is_none(bias)) cy_add_bias(queue, stash->mid, bias);
    return CY_OK;
}

cy_status cy_block_forward(
    const cy_block *block, cy_view y, cy_block_stash *stash, const cy_micro_batch *batch)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    CY_TRY(attention_forward(block, stash, batch));

    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view n2 =
        cy_view_take(queue->scratch, context->dtype, stash->mid.rows, context->shape.hidden);
    // mid holds the attention branch; the norm adds the residual to it.
    cy_norm_forward(queue, n2, stash->inv_rms2, stash->mid, stash->x,
        weight(block, CY_ROLE_NORM2, 0), context->shape.norm_eps);
    CY_TRY(column_forward(
        block, stash->gate_up, stash->n2, n2, weight(block, CY_ROLE_GATE, 1), cy_view_none()));
    cy_arena_rewind(queue->scratch, mark);

    CY_TRY(activate_and_project(block, y, stash->gate_up));
    cy_add(queue, y, y, stash->mid);
    return CY_OK;
}

// Where the weight gradients of one linear layer go: nowhere yet where backward_weight makes them.
static cy_linear_gradients targets(
    const cy_block *block, cy_backward parts, cy_role role, int more, cy_role bias, int bias_more)
{
    if (parts == CY_BACKWARD_INPUT_ONLY) return (cy_linear_gradients){0};
    return (cy_linear_gradients){
        .weight = grad(block, role, more),
        .bias = bias == CY_ROLE_COUNT ? cy_view_none() : grad(block, bias, bias_more),
        .empty = block->storage->units[block->unit].grads_empty,
    };
}

// The input of a column-parallel linear for its weight gradient: as it was kept, or made again from
// what the norm saw and on its way from the other ranks.
static cy_status input_again(const cy_block *block, cy_tensor_gathering *input, cy_view kept,
    cy_view x, cy_view inv_rms, cy_role norm)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    if (!cy_view_is_none(kept)) {
        *input = cy_tensor_gathered(&context->tensor, kept);
        return CY_OK;
    }
    const cy_view n = cy_view_take(queue->scratch, context->dtype, x.rows, x.cols);
    cy_norm_apply(queue, n, x, inv_rms, weight(block, norm, 0));
    return cy_tensor_gather_start(
        input, &context->tensor, queue, cy_tensor_inside(&context->tensor, queue, n), n);
}

// The weight gradient of gate and up, where it waits until the gradient of the attention branch
// travels: the sum of its own input gradient has the product of that to travel under.
typedef struct late_weights {
    bool waits;
    cy_linear_gradients targets;
    cy_tensor_gathering n2;
} late_weights;

static cy_status finish_late_weights(const cy_block *block, late_weights *late, cy_view d_gate_up)
{
    if (!late->waits) return CY_OK;
    CY_TRY(cy_tensor_gather_rest(&late->n2));
    cy_linear_weight_gradient(block->context->queue, &late->targets, d_gate_up, late->n2.all);
    return CY_OK;
}

// dx holds dy; it becomes dy plus the gradient through the feed-forward branch. `late` stays in the
// scratch arena.
static cy_status backward_feed_forward(const cy_block *block, cy_view dx, cy_block_stash *stash,
    cy_block_gradients *gradients, cy_backward parts, late_weights *late)
{
    const cy_model_context *context = block->context;
    const cy_tensor_parallel *tensor = &context->tensor;
    cy_queue *queue = context->queue;
    if (parts == CY_BACKWARD_INPUT_ONLY) cy_copy(queue, gradients->dy, dx);

    cy_tensor_gathering dy;
    CY_TRY(cy_tensor_gather_start(&dy, tensor, queue, cy_tensor_inside(tensor, queue, dx), dx));
    const size_t inner = cy_arena_mark(queue->scratch);
    const cy_view d_act =
        cy_view_take(queue->scratch, context->dtype, dy.all.rows, context->ffn_local);
    CY_TRY(cy_row_linear_backward_input(queue, d_act, &dy, weight(block, CY_ROLE_DOWN, 0)));
    cy_swiglu_backward(queue, stash->gate_up, gradients->act, d_act, stash->gate_up);
    cy_arena_rewind(queue->scratch, inner);

    cy_linear_gradients gate_up = targets(block, parts, CY_ROLE_GATE, 1, CY_ROLE_COUNT, 0);
    *late = (late_weights){0};
    if (!cy_view_is_none(gate_up.weight)) {
        CY_TRY(
            input_again(block, &late->n2, stash->n2, stash->mid, stash->inv_rms2, CY_ROLE_NORM2));
        late->waits = cy_tensor_in_pieces(tensor);
        late->targets = gate_up;
    }
    if (late->waits) gate_up = (cy_linear_gradients){0};
    const cy_linear_gradients down = targets(block, parts, CY_ROLE_DOWN, 0, CY_ROLE_COUNT, 0);
    cy_linear_weight_gradient(queue, &down, dy.all, gradients->act);

    const size_t last = cy_arena_mark(queue->scratch);
    const cy_view d_n2 = cy_view_take(queue->scratch, context->dtype, dx.rows, dx.cols);
    CY_TRY(cy_column_linear_backward(tensor, queue, d_n2, &gate_up, stash->gate_up, &late->n2,
        weight(block, CY_ROLE_GATE, 1), sum_at(block, CY_SUM_D_NORM2)));
    cy_norm_backward(queue, dx, grad(block, CY_ROLE_NORM2, 0), d_n2, stash->mid, stash->inv_rms2,
        weight(block, CY_ROLE_NORM2, 0));
    cy_arena_rewind(queue->scratch, last);
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
    const cy_block_stash *stash, const cy_micro_batch *batch)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const cy_attention_spec spec = attention_of(context, batch);
    const qkv_parts qkv = parts_of(context, stash->qkv);
    const qkv_parts d = parts_of(context, d_qkv);
    const size_t mark = cy_arena_mark(queue->scratch);

    const cy_view delta =
        cy_view_take(queue->scratch, context->sum_dtype, context->heads_local, d_o.rows);
    cy_attention_delta(queue, delta, d_o, stash->o, context->heads_local);
    cy_fixed *keys = sum_at(block, CY_SUM_D_KEYS);
    cy_view dk = d.k, dv = d.v;
    if (keys != NULL) {
        dk = cy_fixed_take(keys, queue->scratch, d.k.rows, d.k.cols);
        dv = cy_fixed_take(keys, queue->scratch, d.v.rows, d.v.cols);
    }
    CY_TRY(cy_context_attention_backward(
        &context->context, queue, d.q, dk, dv, d_o, stash->lse, delta, qkv.q, qkv.k, qkv.v, &spec));
    if (keys != NULL) CY_TRY(finish_keys(context, &d, dk, dv));
    cy_rope(queue, d_qkv, context->rope, batch->positions,
        context->heads_local + context->kv_heads_local, true);
    cy_qk_norm_backward(context, block->storage, block->unit, d_qkv, &stash->qk_norm);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// dx holds the gradient of mid; it becomes the gradient of x.
static cy_status backward_attention(const cy_block *block, cy_view dx, const cy_block_stash *stash,
    cy_block_gradients *gradients, const cy_micro_batch *batch, cy_backward parts,
    late_weights *late)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    if (parts == CY_BACKWARD_INPUT_ONLY) cy_copy(queue, gradients->d_mid, dx);

    const cy_tensor_parallel *tensor = &context->tensor;
    cy_tensor_gathering d_mid;
    CY_TRY(cy_tensor_gather_start(&d_mid, tensor, queue, cy_tensor_inside(tensor, queue, dx), dx));
    CY_TRY(finish_late_weights(block, late, stash->gate_up));
    const size_t inner = cy_arena_mark(queue->scratch);
    const cy_view d_o =
        cy_view_take(queue->scratch, context->dtype, d_mid.all.rows, cy_model_q_cols(context));
    CY_TRY(cy_row_linear_backward_input(queue, d_o, &d_mid, weight(block, CY_ROLE_OUT, 0)));
    CY_TRY(backward_heads(block, gradients->d_qkv, d_o, stash, batch));
    cy_arena_rewind(queue->scratch, inner);

    cy_tensor_gathering n1 = {0};
    const cy_linear_gradients qkv =
        targets(block, parts, CY_ROLE_Q, 2, CY_ROLE_Q_BIAS, context->shape.qkv_bias ? 2 : 0);
    if (!cy_view_is_none(qkv.weight)) {
        CY_TRY(input_again(block, &n1, stash->n1, stash->x, stash->inv_rms1, CY_ROLE_NORM1));
    }
    const cy_linear_gradients out = targets(block, parts, CY_ROLE_OUT, 0, CY_ROLE_COUNT, 0);
    cy_linear_weight_gradient(queue, &out, d_mid.all, stash->o);
    // The output bias is added to this rank's own tokens, outside the split.
    const cy_view d_out_bias = grad(block, CY_ROLE_OUT_BIAS, 0);
    if (!cy_view_is_none(d_out_bias)) cy_sum_rows(queue, d_out_bias, dx);

    const cy_view d_n1 = cy_view_take(queue->scratch, context->dtype, dx.rows, dx.cols);
    CY_TRY(cy_column_linear_backward(&context->tensor, queue, d_n1, &qkv, gradients->d_qkv, &n1,
        weight(block, CY_ROLE_Q, 2), sum_at(block, CY_SUM_D_NORM1)));
    cy_norm_backward(queue, dx, grad(block, CY_ROLE_NORM1, 0), d_n1, stash->x, stash->inv_rms1,
        weight(block, CY_ROLE_NORM1, 0));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_block_feed_forward_again(const cy_block *block, cy_block_stash *stash)
{
    cy_queue *queue = block->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view gate_up = weight(block, CY_ROLE_GATE, 1);
    if (!cy_view_is_none(stash->n2)) {
        cy_column_linear_forward(queue, stash->gate_up, stash->n2, gate_up, cy_view_none());
        return CY_OK;
    }
    const cy_view n2 =
        cy_view_take(queue->scratch, block->context->dtype, stash->mid.rows, stash->mid.cols);
    cy_norm_apply(queue, n2, stash->mid, stash->inv_rms2, weight(block, CY_ROLE_NORM2, 0));
    CY_TRY(column_forward(block, stash->gate_up, cy_view_none(), n2, gate_up, cy_view_none()));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_block_backward(const cy_block *block, cy_view dx, cy_block_stash *stash,
    cy_block_gradients *gradients, const cy_micro_batch *batch, cy_backward parts)
{
    CY_ASSERT(dx.rows == stash->x.rows && dx.cols == stash->x.cols);
    cy_arena *scratch = block->context->queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    late_weights late;
    CY_TRY(backward_feed_forward(block, dx, stash, gradients, parts, &late));
    if (!late.waits) cy_arena_rewind(scratch, mark);
    CY_TRY(backward_attention(block, dx, stash, gradients, batch, parts, &late));
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

cy_status cy_block_backward_weight(
    const cy_block *block, const cy_block_stash *stash, const cy_block_gradients *gradients)
{
    const cy_model_context *context = block->context;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_backward now = CY_BACKWARD_TOGETHER;
    const cy_linear_gradients qkv =
        targets(block, now, CY_ROLE_Q, 2, CY_ROLE_Q_BIAS, context->shape.qkv_bias ? 2 : 0);
    const cy_linear_gradients out = targets(block, now, CY_ROLE_OUT, 0, CY_ROLE_COUNT, 0);
    const cy_linear_gradients gate_up = targets(block, now, CY_ROLE_GATE, 1, CY_ROLE_COUNT, 0);
    const cy_linear_gradients down = targets(block, now, CY_ROLE_DOWN, 0, CY_ROLE_COUNT, 0);
    cy_tensor_gathering input;
    cy_view all;

    CY_TRY(input_again(block, &input, stash->n2, stash->mid, stash->inv_rms2, CY_ROLE_NORM2));
    CY_TRY(cy_tensor_gather(&context->tensor, queue, &all, gradients->dy));
    cy_linear_weight_gradient(queue, &down, all, gradients->act);
    CY_TRY(cy_tensor_gather_rest(&input));
    cy_linear_weight_gradient(queue, &gate_up, stash->gate_up, input.all);
    cy_arena_rewind(queue->scratch, mark);

    CY_TRY(input_again(block, &input, stash->n1, stash->x, stash->inv_rms1, CY_ROLE_NORM1));
    CY_TRY(cy_tensor_gather(&context->tensor, queue, &all, gradients->d_mid));
    cy_linear_weight_gradient(queue, &out, all, stash->o);
    CY_TRY(cy_tensor_gather_rest(&input));
    cy_linear_weight_gradient(queue, &qkv, gradients->d_qkv, input.all);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}
