// Runs the feed-forward half of a layer forward and backward.

#include "model/feed_forward.h"

void cy_feed_forward_stash_alloc(cy_feed_forward_stash *stash, const cy_model_context *context,
    cy_arena *arena, int64_t tokens, bool keep_gate_up)
{
    const int64_t outside = cy_tensor_local_tokens(&context->tp, tokens);
    const int64_t hidden = context->shape.hidden;
    stash->x = cy_view_alloc(arena, context->dtype, outside, hidden);
    stash->inv_rms = cy_view_alloc(arena, context->sum_dtype, 1, outside);
    if (keep_gate_up) {
        stash->gate_up = cy_view_alloc(arena, context->dtype, tokens, 2 * context->ffn_local);
    }
    if (context->tp.keep_inputs) stash->n = cy_view_alloc(arena, context->dtype, tokens, hidden);
}

void cy_feed_forward_gradients_alloc(cy_feed_forward_gradients *gradients,
    const cy_model_context *context, cy_arena *arena, int64_t tokens)
{
    const int64_t outside = cy_tensor_local_tokens(&context->tp, tokens);
    *gradients = (cy_feed_forward_gradients){
        .dy = cy_view_alloc(arena, context->dtype, outside, context->shape.hidden),
        .act = cy_view_alloc(arena, context->dtype, tokens, context->ffn_local),
    };
}

static cy_column_linear gate_up_of(const cy_layer *layer)
{
    return (cy_column_linear){
        .parallel = &layer->context->tp,
        .weight = cy_layer_weight(layer, CY_ROLE_GATE, 1),
    };
}

static cy_row_linear down_of(const cy_layer *layer)
{
    return (cy_row_linear){
        .parallel = &layer->context->tp,
        .weight = cy_layer_weight(layer, CY_ROLE_DOWN, 0),
        .input_is_parallel = true,
    };
}

// ---- forward

// gate_up of rows outside of x, which holds the attention branch and gets the residual added.
static cy_status make_gate_up(const cy_layer *layer, const cy_feed_forward_stash *stash,
    const cy_feed_forward_input *input, cy_tensor_rows rows)
{
    const cy_model_context *context = layer->context;
    cy_queue *queue = context->queue;
    const cy_column_linear gate_up = gate_up_of(layer);
    const cy_view x = cy_tensor_rows_of(stash->x, rows);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view n =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->shape.hidden);
    if (!cy_view_is_none(input->bias)) cy_add_bias(queue, x, input->bias);
    cy_norm_forward(queue, n, cy_view_cols(stash->inv_rms, rows.first, rows.count), x,
        cy_tensor_rows_of(input->residual, rows), cy_layer_weight(layer, CY_ROLE_NORM2, 0),
        context->shape.norm_eps);
    const cy_tensor_rows inside = cy_layer_inside_rows(layer, rows, stash->gate_up);
    CY_TRY(cy_layer_column_forward(
        layer, &gate_up, cy_tensor_rows_of(stash->gate_up, inside), stash->n, n));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_feed_forward_gate_up(
    const cy_layer *layer, const cy_feed_forward_stash *stash, const cy_feed_forward_input *input)
{
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_reduce_arrived(input->branch, &rows));
    while (rows.count > 0) {
        CY_TRY(make_gate_up(layer, stash, input, rows));
        CY_TRY(cy_tensor_reduce_arrived(input->branch, &rows));
    }
    return CY_OK;
}

// The partial product of rows of y.
static void activate_and_project(
    const cy_layer *layer, const cy_feed_forward_stash *stash, cy_view partial, cy_tensor_rows rows)
{
    const cy_model_context *context = layer->context;
    cy_queue *queue = context->queue;
    const cy_row_linear down = down_of(layer);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view act =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->ffn_local);
    cy_swiglu_forward(queue, act, cy_tensor_rows_of(stash->gate_up, rows));
    cy_row_linear_rows(&down, queue, cy_tensor_rows_of(partial, rows), act);
    cy_arena_rewind(queue->scratch, mark);
}

cy_status cy_feed_forward_project(const cy_layer *layer, cy_view y,
    const cy_feed_forward_stash *stash, const cy_feed_forward_input *input,
    cy_tensor_reduce_state *output)
{
    cy_tensor_rows rows;
    cy_tensor_reduce_start(
        output, &layer->context->tp, layer->context->queue, y, cy_layer_sum(layer, CY_SUM_DOWN));
    output->residual = stash->x;
    CY_TRY(cy_tensor_reduce_next(output, &rows));
    while (rows.count > 0) {
        if (input != NULL) {
            CY_TRY(cy_layer_rows_arrive(input->branch, rows));
            CY_TRY(make_gate_up(layer, stash, input, rows));
        }
        activate_and_project(layer, stash, output->partial, rows);
        CY_TRY(cy_tensor_reduce_next(output, &rows));
    }
    // A sum whose partial products lie in the scratch arena ends here.
    return output->partial.data == y.data ? CY_OK : cy_tensor_reduce_finish(output);
}

cy_status cy_feed_forward_recompute_gate_up(
    const cy_layer *layer, const cy_feed_forward_stash *stash)
{
    cy_queue *queue = layer->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_column_linear gate_up = gate_up_of(layer);
    if (!cy_view_is_none(stash->n)) {
        cy_column_linear_rows(&gate_up, queue, stash->gate_up, stash->n);
        return CY_OK;
    }
    const cy_view n =
        cy_view_alloc(queue->scratch, layer->context->dtype, stash->x.rows, stash->x.cols);
    cy_norm_apply(queue, n, stash->x, stash->inv_rms, cy_layer_weight(layer, CY_ROLE_NORM2, 0));
    CY_TRY(cy_layer_column_forward(layer, &gate_up, stash->gate_up, cy_view_none(), n));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// ---- backward

// The gradients of the weights of gate and up come last, under the sum of the attention branch's
// input gradient, which has too little of its own to travel under. With tokens split n is gathered
// while there is work, and the gradients are made under the gather of the branch's gradient.
cy_status cy_feed_forward_backward_gate_up(void *deferred)
{
    cy_feed_forward_deferred *work = deferred;
    const cy_layer *layer = work->layer;
    const cy_feed_forward_stash *stash = work->stash;
    cy_queue *queue = layer->context->queue;
    const cy_column_linear gate_up = gate_up_of(layer);
    const cy_linear_gradients to =
        cy_layer_targets(layer, work->parts, CY_ROLE_GATE, 1, CY_ROLE_COUNT, 0);
    if (cy_view_is_none(to.weight)) return CY_OK;
    const size_t mark = cy_arena_mark(queue->scratch);
    if (!cy_tensor_sequence_parallel(gate_up.parallel)) {
        CY_TRY(cy_layer_recompute_input(
            layer, &work->n, stash->n, stash->x, stash->inv_rms, CY_ROLE_NORM2));
    }
    CY_TRY(cy_tensor_gather_finish(&work->n));
    cy_column_linear_backward_weight(&gate_up, queue, &to, stash->gate_up, work->n.all);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// Rows of the gradient of gate and up, in their place in the stash, and of the SwiGLU product.
static void backward_activation(const cy_layer *layer, const cy_feed_forward_stash *stash,
    const cy_feed_forward_gradients *gradients, cy_view dy, cy_tensor_rows rows)
{
    const cy_model_context *context = layer->context;
    cy_queue *queue = context->queue;
    const cy_row_linear down = down_of(layer);
    const cy_view gate_up = cy_tensor_rows_of(stash->gate_up, rows);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view d_act =
        cy_view_alloc(queue->scratch, context->dtype, rows.count, context->ffn_local);
    cy_row_linear_backward_rows(&down, queue, d_act, cy_tensor_rows_of(dy, rows));
    cy_swiglu_backward(queue, gate_up, cy_tensor_rows_of(gradients->act, rows), d_act, gate_up);
    cy_arena_rewind(queue->scratch, mark);
}

// With tokens split: gate|up's gradient as rows of dy arrive, n on its way where weight gradients
// are made now, and the gradient of the down projection's weight.
static cy_status backward_split_tokens(const cy_layer *layer, cy_tensor_gather_state *dy,
    const cy_feed_forward_gradients *gradients, const cy_linear_gradients *to,
    cy_feed_forward_deferred *deferred)
{
    const cy_feed_forward_stash *stash = deferred->stash;
    const cy_row_linear down = down_of(layer);
    cy_tensor_rows rows;
    CY_TRY(cy_tensor_gather_next(dy, &rows));
    while (rows.count > 0) {
        backward_activation(layer, stash, gradients, dy->all, rows);
        CY_TRY(cy_tensor_gather_next(dy, &rows));
    }
    if (!cy_view_is_none(to->weight)) {
        CY_TRY(cy_layer_recompute_input(
            layer, &deferred->n, stash->n, stash->x, stash->inv_rms, CY_ROLE_NORM2));
    }
    cy_row_linear_backward_weight(&down, layer->context->queue, to, dy, gradients->act);
    return CY_OK;
}

cy_status cy_feed_forward_backward(const cy_layer *layer, cy_view dx,
    const cy_feed_forward_stash *stash, const cy_feed_forward_gradients *gradients,
    cy_backward parts, cy_feed_forward_deferred *deferred)
{
    const cy_model_context *context = layer->context;
    const cy_tensor_parallel *tensor = &context->tp;
    const bool splits = cy_tensor_sequence_parallel(tensor);
    cy_queue *queue = context->queue;
    *deferred = (cy_feed_forward_deferred){.layer = layer, .stash = stash, .parts = parts};
    if (parts == CY_BACKWARD_INPUT_ONLY) cy_copy(queue, gradients->dy, dx);
    const cy_row_linear down = down_of(layer);
    const cy_linear_gradients to =
        cy_layer_targets(layer, parts, CY_ROLE_DOWN, 0, CY_ROLE_COUNT, 0);

    cy_tensor_gather_state dy;
    CY_TRY(cy_tensor_gather_start(&dy, tensor, queue, cy_tensor_all_tokens(tensor, queue, dx), dx));
    if (splits) CY_TRY(backward_split_tokens(layer, &dy, gradients, &to, deferred));

    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view d_n = cy_view_alloc(queue->scratch, context->dtype, dx.rows, dx.cols);
    const cy_column_linear gate_up = gate_up_of(layer);
    cy_tensor_reduce_state sum;
    cy_tensor_rows rows;
    cy_tensor_reduce_start(&sum, tensor, queue, d_n, cy_layer_sum(layer, CY_SUM_D_NORM2));
    CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    while (rows.count > 0) {
        if (!splits) backward_activation(layer, stash, gradients, dx, rows);
        cy_column_linear_backward_rows(&gate_up, queue, cy_tensor_rows_of(sum.partial, rows),
            cy_tensor_rows_of(stash->gate_up, rows));
        CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    }
    if (!splits) cy_row_linear_backward_weight(&down, queue, &to, &dy, gradients->act);
    CY_TRY(cy_tensor_reduce_finish(&sum));
    cy_norm_backward(queue, dx, cy_layer_grad(layer, CY_ROLE_NORM2, 0), d_n, stash->x,
        stash->inv_rms, cy_layer_weight(layer, CY_ROLE_NORM2, 0));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_feed_forward_backward_weight(const cy_layer *layer, const cy_feed_forward_stash *stash,
    const cy_feed_forward_gradients *gradients)
{
    const cy_tensor_parallel *tensor = &layer->context->tp;
    cy_queue *queue = layer->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_column_linear gate_up = gate_up_of(layer);
    const cy_row_linear down = down_of(layer);
    const cy_backward now = CY_BACKWARD_TOGETHER;
    const cy_linear_gradients to_gate_up =
        cy_layer_targets(layer, now, CY_ROLE_GATE, 1, CY_ROLE_COUNT, 0);
    const cy_linear_gradients to_down =
        cy_layer_targets(layer, now, CY_ROLE_DOWN, 0, CY_ROLE_COUNT, 0);
    cy_tensor_gather_state n, dy;

    CY_TRY(cy_layer_recompute_input(layer, &n, stash->n, stash->x, stash->inv_rms, CY_ROLE_NORM2));
    CY_TRY(cy_tensor_gather_start(
        &dy, tensor, queue, cy_tensor_all_tokens(tensor, queue, gradients->dy), gradients->dy));
    CY_TRY(cy_tensor_gather_finish(&dy));
    cy_row_linear_backward_weight(&down, queue, &to_down, &dy, gradients->act);
    CY_TRY(cy_tensor_gather_finish(&n));
    cy_column_linear_backward_weight(&gate_up, queue, &to_gate_up, stash->gate_up, n.all);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}
