#include "model/embed.h"

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

cy_status cy_embed_forward(const cy_model_context *context, const cy_storage *storage, cy_view y,
    const cy_microbatch *batch)
{
    cy_tensor_reduce_state pending;
    CY_TRY(cy_embed_start(context, storage, y, batch, &pending));
    return cy_tensor_reduce_finish(&pending);
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
