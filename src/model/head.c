// Runs the two ends of the model: the embedding, and the final norm with output projection and
// loss.

#include "model/head.h"

#include "base/status.h"

// ---- embedding

cy_status cy_embed_start(const cy_model_context *context, const cy_storage *storage, cy_view y,
    const cy_microbatch *batch, cy_tensor_reduce_state *pending)
{
    cy_queue *queue = context->queue;
    const int unit = cy_storage_unit(storage, -1);
    const cy_tensor *table = cy_storage_tensor(storage, unit, CY_ROLE_EMBED);
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_tensor_rows rows;

    // One rank has a token's row and the others zeros: this sum is exact as it is.
    cy_tensor_reduce_start(pending, &context->tp, queue, y, NULL);
    CY_TRY(cy_tensor_reduce_next(pending, &rows));
    while (rows.count > 0) {
        cy_embedding_forward(queue, cy_tensor_rows_of(pending->partial, rows),
            cy_storage_weight(storage, unit, CY_ROLE_EMBED, 0), batch->inputs + rows.first,
            table->slice.row_first);
        CY_TRY(cy_tensor_reduce_next(pending, &rows));
    }
    // What has a place in the scratch arena ends here.
    if (pending->partial.data != y.data) CY_TRY(cy_tensor_reduce_finish(pending));
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_embed_backward(const cy_model_context *context, const cy_storage *storage, cy_view dy,
    const cy_microbatch *batch)
{
    cy_queue *queue = context->queue;
    const int unit = cy_storage_unit(storage, -1);
    const cy_tensor *table = cy_storage_tensor(storage, unit, CY_ROLE_EMBED);
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view all;

    CY_TRY(cy_tensor_gather(&context->tp, queue, &all, dy));
    cy_embedding_backward(queue, cy_storage_grad(storage, unit, CY_ROLE_EMBED, 0), all,
        batch->inputs, table->slice.row_first);
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// ---- output head

static cy_role matrix_role(const cy_head *head)
{
    return head->context->shape.tied ? CY_ROLE_EMBED : CY_ROLE_HEAD;
}

// What the tokens of a tile know about the whole vocabulary after two small reductions.
typedef struct tile_statistics {
    cy_view max;    // [1, tile]
    cy_view sum;    // [1, tile] of exponentials
    cy_view target; // [1, tile]: the target's logit
    cy_view both;   // [2, tile]: sum and target where they are one message, otherwise target alone
} tile_statistics;

static tile_statistics take_statistics(const cy_model_context *context, int64_t tokens)
{
    cy_arena *scratch = context->queue->scratch;
    tile_statistics tile = {.max = cy_view_alloc(scratch, context->sum_dtype, 1, tokens)};
    if (context->sums != NULL) {
        tile.sum = cy_fixed_alloc(&context->sums->exponentials, scratch, 1, tokens);
        tile.both = tile.target = cy_view_alloc(scratch, context->sum_dtype, 1, tokens);
        return tile;
    }
    tile.both = cy_view_alloc(scratch, context->sum_dtype, 2, tokens);
    tile.sum = cy_view_rows(tile.both, 0, 1);
    tile.target = cy_view_rows(tile.both, 1, 1);
    return tile;
}

static cy_status reduce_statistics(const cy_head *head, const tile_statistics *tile, cy_view logits,
    const int32_t *targets, cy_vocab_range range)
{
    cy_queue *queue = head->context->queue;
    cy_group *group = head->context->tp.group;
    cy_softmax_max(queue, tile->max, logits, range);
    CY_TRY(cy_group_all_reduce(group, queue, tile->max, CY_MAX));
    cy_softmax_sum(queue, tile->sum, tile->target, logits, tile->max, targets, range);
    if (head->context->sums != NULL) {
        CY_TRY(cy_group_all_reduce(group, queue, tile->sum, CY_SUM));
    }
    return cy_group_all_reduce(group, queue, tile->both, CY_SUM);
}

static cy_vocab_range range_of(const cy_head *head)
{
    const cy_tensor *matrix =
        cy_storage_tensor(head->storage, head->matrix_unit, matrix_role(head));
    return (cy_vocab_range){.first = matrix->slice.row_first, .valid = head->context->shape.vocab};
}

// Loss of one tile of tokens and, where d_n is given, everything that follows from it.
static cy_status run_tile(const cy_head *head, cy_view loss, cy_view d_n, cy_view n,
    const int32_t *targets, double loss_scale)
{
    const cy_model_context *context = head->context;
    cy_queue *queue = context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view matrix =
        cy_storage_weight(head->storage, head->matrix_unit, matrix_role(head), 0);
    const cy_linear_gradients to = {
        .weight = cy_storage_grad(head->storage, head->matrix_unit, matrix_role(head), 0),
    };
    const cy_vocab_range range = range_of(head);

    const cy_view logits = cy_view_alloc(queue->scratch, context->sum_dtype, n.rows, matrix.rows);
    const tile_statistics tile = take_statistics(context, n.rows);
    cy_matmul(queue, logits, n, matrix, (cy_matmul_spec){.transpose_b = true});
    CY_TRY(reduce_statistics(head, &tile, logits, targets, range));
    cy_softmax_loss(queue, loss, tile.max, tile.sum, tile.target, targets);

    if (!cy_view_is_none(d_n)) {
        cy_view d_logits = logits;
        if (context->dtype != context->sum_dtype) {
            d_logits = cy_view_alloc(queue->scratch, context->dtype, n.rows, matrix.rows);
        }
        cy_softmax_grad(queue, d_logits, logits, tile.max, tile.sum, targets, range, loss_scale);
        cy_matmul(queue, d_n, d_logits, matrix, (cy_matmul_spec){0});
        cy_linear_backward_weight(queue, &to, d_logits, n);
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

// n_all [t, hidden] = norm(x), all tokens; inv_rms [1, t_local]. From the scratch arena.
static cy_status final_norm(const cy_head *head, cy_view *n_all, cy_view *inv_rms, cy_view x)
{
    const cy_model_context *context = head->context;
    cy_queue *queue = context->queue;
    *inv_rms = cy_view_alloc(queue->scratch, context->sum_dtype, 1, x.rows);
    const cy_view n = cy_view_alloc(queue->scratch, context->dtype, x.rows, x.cols);
    cy_norm_forward(queue, n, *inv_rms, x, cy_view_none(),
        cy_storage_weight(head->storage, head->norm_unit, CY_ROLE_FINAL_NORM, 0),
        context->shape.norm_eps);
    return cy_tensor_gather(&context->tp, queue, n_all, n);
}

// The tiles of `rows`, as run_tile; d_n [t, hidden] or none.
static cy_status run_tiles(const cy_head *head, cy_view loss, cy_view d_n, cy_view n,
    const cy_microbatch *batch, double loss_scale, cy_tensor_rows rows)
{
    const int64_t end = rows.first + rows.count;
    for (int64_t first = rows.first; first < end; first += CY_HEAD_TILE) {
        const int64_t count = end - first < CY_HEAD_TILE ? end - first : CY_HEAD_TILE;
        const cy_view d = cy_view_is_none(d_n) ? d_n : cy_view_rows(d_n, first, count);
        CY_TRY(run_tile(
            head, loss, d, cy_view_rows(n, first, count), batch->targets + first, loss_scale));
    }
    return CY_OK;
}

// The same tiles with the gradient of x, whose sum over ranks travels under the next tiles.
static cy_status run_with_gradient(const cy_head *head, cy_view loss, cy_view dx, cy_view x,
    cy_view n, cy_view inv_rms, const cy_microbatch *batch, double loss_scale)
{
    const cy_model_context *context = head->context;
    cy_queue *queue = context->queue;
    // All ranks work at the same tile, so no rank can begin with the tokens of another.
    cy_tensor_parallel tensor = context->tp;
    if (cy_tensor_sequence_parallel(&tensor)) tensor.overlap = false;
    cy_tensor_reduce_state sum;
    cy_tensor_rows rows;
    cy_tensor_reduce_start(&sum, &tensor, queue,
        cy_view_alloc(queue->scratch, context->dtype, x.rows, x.cols),
        cy_sums_at(context->sums, context->shape.layers, CY_SUM_D_HEAD));
    CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    while (rows.count > 0) {
        CY_TRY(run_tiles(head, loss, sum.partial, n, batch, loss_scale, rows));
        CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    }
    CY_TRY(cy_tensor_reduce_finish(&sum));
    cy_fill(queue, dx, 0.0);
    cy_norm_backward(queue, dx,
        cy_storage_grad(head->storage, head->norm_unit, CY_ROLE_FINAL_NORM, 0), sum.outside, x,
        inv_rms, cy_storage_weight(head->storage, head->norm_unit, CY_ROLE_FINAL_NORM, 0));
    return CY_OK;
}

cy_status cy_head_forward(const cy_head *head, cy_view loss, cy_view dx, cy_view x,
    const cy_microbatch *batch, double loss_scale)
{
    cy_arena *scratch = head->context->queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    cy_view n, inv_rms;
    CY_TRY(final_norm(head, &n, &inv_rms, x));
    if (cy_view_is_none(dx)) {
        CY_TRY(run_tiles(head, loss, dx, n, batch, loss_scale, (cy_tensor_rows){.count = n.rows}));
    } else {
        CY_TRY(run_with_gradient(head, loss, dx, x, n, inv_rms, batch, loss_scale));
    }
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

cy_status cy_head_logits(const cy_head *head, cy_view logits, cy_view x)
{
    cy_queue *queue = head->context->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view n, inv_rms;
    CY_TRY(final_norm(head, &n, &inv_rms, x));
    cy_matmul(queue, logits, n,
        cy_storage_weight(head->storage, head->matrix_unit, matrix_role(head), 0),
        (cy_matmul_spec){.transpose_b = true});
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}
