#include "model/stage.h"

#include "base/assert.h"
#include "base/memory.h"

cy_status cy_stage_open(cy_stage *stage, const cy_model_context *context, cy_storage *storage,
    cy_recompute recompute, int64_t tokens, int slot_count, bool split_backward)
{
    CY_ASSERT(!split_backward || recompute == CY_RECOMPUTE_NONE);
    *stage = (cy_stage){
        .context = *context,
        .storage = storage,
        .recompute = recompute,
        .tokens = tokens,
        .split_backward = split_backward,
    };
    stage->head = (cy_head){
        .context = &stage->context,
        .storage = storage,
        .norm_unit = cy_storage_unit(storage, context->shape.layers),
        .matrix_unit = cy_storage_unit(storage, context->shape.tied ? -1 : context->shape.layers),
    };
    void *block = NULL;
    const size_t layers = (size_t)storage->part.layer_count;
    CY_TRY(cy_memory_take(&block, (size_t)slot_count, sizeof(cy_stage_slot)));
    stage->slots = block;
    stage->slot_count = slot_count;
    for (int i = 0; i < slot_count; i++) {
        cy_status status = cy_memory_take(&block, layers, sizeof(cy_block_stash));
        if (status == CY_OK) {
            stage->slots[i].blocks = block;
            status = cy_memory_take(&block, layers, sizeof(cy_block_gradients));
        }
        if (status != CY_OK) {
            cy_stage_close(stage);
            return status;
        }
        stage->slots[i].gradients = block;
    }
    return CY_OK;
}

void cy_stage_close(cy_stage *stage)
{
    for (int i = 0; i < stage->slot_count; i++) {
        cy_memory_free(stage->slots[i].blocks);
        cy_memory_free(stage->slots[i].gradients);
    }
    cy_memory_free(stage->slots);
    *stage = (cy_stage){0};
}

static cy_view take_tokens(const cy_stage *stage, cy_arena *arena)
{
    return cy_view_take(arena, stage->context.dtype,
        cy_tensor_outside(&stage->context.tensor, stage->tokens), stage->context.shape.hidden);
}

static void take_block(const cy_stage *stage, cy_block_stash *stash, cy_arena *step)
{
    if (stage->recompute == CY_RECOMPUTE_FULL) {
        *stash = (cy_block_stash){.x = take_tokens(stage, step)};
        return;
    }
    cy_block_stash_take(
        stash, &stage->context, step, stage->tokens, stage->recompute != CY_RECOMPUTE_SELECTIVE);
}

void cy_stage_take_slots(cy_stage *stage, cy_arena *step)
{
    for (int i = 0; i < stage->slot_count; i++) {
        cy_stage_slot *slot = &stage->slots[i];
        for (int j = 0; j < stage->storage->part.layer_count; j++) {
            take_block(stage, &slot->blocks[j], step);
            if (!stage->split_backward) continue;
            cy_block_gradients_take(&slot->gradients[j], &stage->context, step, stage->tokens);
        }
        slot->out = take_tokens(stage, step);
        slot->d_out = stage->storage->part.head ? take_tokens(stage, step) : cy_view_none();
    }
}

static cy_status before(const cy_stage *stage, int unit)
{
    return stage->hooks.before_unit == NULL ? CY_OK
                                            : stage->hooks.before_unit(stage->hooks.context, unit);
}

static cy_status after(const cy_stage *stage, int unit)
{
    return stage->hooks.after_unit == NULL ? CY_OK
                                           : stage->hooks.after_unit(stage->hooks.context, unit);
}

static cy_status before_gradient(const cy_stage *stage, int unit)
{
    return stage->hooks.before_gradient == NULL
        ? CY_OK
        : stage->hooks.before_gradient(stage->hooks.context, unit);
}

static cy_status gradient_final(const cy_stage *stage, int unit)
{
    return stage->hooks.gradient_final == NULL
        ? CY_OK
        : stage->hooks.gradient_final(stage->hooks.context, unit);
}

static cy_block block_at(const cy_stage *stage, int index)
{
    const int layer = stage->storage->part.layer_first + index;
    return (cy_block){
        .context = &stage->context,
        .storage = stage->storage,
        .unit = cy_storage_unit(stage->storage, layer),
    };
}

// With full recomputation all but x lives in the scratch arena while the layer runs.
static cy_block_stash working_stash(const cy_stage *stage, const cy_block_stash *kept)
{
    if (stage->recompute == CY_RECOMPUTE_NONE) return *kept;
    cy_arena *scratch = stage->context.queue->scratch;
    cy_block_stash stash = *kept;
    if (stage->recompute == CY_RECOMPUTE_SELECTIVE) {
        stash.gate_up = cy_view_take(
            scratch, stage->context.dtype, stage->tokens, 2 * stage->context.ffn_local);
        return stash;
    }
    cy_block_stash_take(&stash, &stage->context, scratch, stage->tokens, true);
    stash.x = kept->x;
    return stash;
}

static cy_status forward_blocks(cy_stage *stage, cy_stage_slot *slot, const cy_micro_batch *batch)
{
    cy_arena *scratch = stage->context.queue->scratch;
    const int layers = stage->storage->part.layer_count;
    for (int i = 0; i < layers; i++) {
        const cy_block block = block_at(stage, i);
        const size_t mark = cy_arena_mark(scratch);
        cy_block_stash stash = working_stash(stage, &slot->blocks[i]);
        CY_TRY(before(stage, block.unit));
        CY_TRY(cy_block_forward(
            &block, i + 1 < layers ? slot->blocks[i + 1].x : slot->out, &stash, batch));
        CY_TRY(after(stage, block.unit));
        cy_arena_rewind(scratch, mark);
    }
    return CY_OK;
}

static cy_status forward_head(cy_stage *stage, cy_stage_slot *slot, cy_view loss,
    const cy_micro_batch *batch, bool train, double loss_scale)
{
    const cy_head *head = &stage->head;
    CY_TRY(before(stage, head->norm_unit));
    if (head->matrix_unit != head->norm_unit) CY_TRY(before(stage, head->matrix_unit));
    if (train) {
        CY_TRY(before_gradient(stage, head->norm_unit));
        CY_TRY(before_gradient(stage, head->matrix_unit));
    }
    CY_TRY(cy_head_forward(
        head, loss, train ? slot->d_out : cy_view_none(), slot->out, batch, loss_scale));
    if (head->matrix_unit != head->norm_unit) CY_TRY(after(stage, head->matrix_unit));
    return after(stage, head->norm_unit);
}

cy_status cy_stage_forward(cy_stage *stage, int slot_index, cy_view input, cy_view loss,
    const cy_micro_batch *batch, bool train, double loss_scale)
{
    CY_ASSERT(slot_index < stage->slot_count);
    CY_ASSERT(batch->tokens == stage->tokens);
    const cy_part *part = &stage->storage->part;
    cy_stage_slot *slot = &stage->slots[slot_index];
    cy_view *first = part->layer_count > 0 ? &slot->blocks[0].x : &slot->out;

    if (cy_view_is_none(input)) {
        const int unit = cy_storage_unit(stage->storage, -1);
        CY_TRY(before(stage, unit));
        CY_TRY(cy_embed_forward(&stage->context, stage->storage, *first, batch));
        CY_TRY(after(stage, unit));
    } else {
        *first = input;
    }
    CY_TRY(forward_blocks(stage, slot, batch));
    return part->head ? forward_head(stage, slot, loss, batch, train, loss_scale) : CY_OK;
}

// Makes again what the slot does not hold, before the backward pass of a layer.
static cy_status recompute(const cy_stage *stage, const cy_block *block, cy_block_stash *stash,
    const cy_micro_batch *batch)
{
    if (stage->recompute == CY_RECOMPUTE_NONE) return CY_OK;
    if (stage->recompute == CY_RECOMPUTE_SELECTIVE) {
        return cy_block_feed_forward_again(block, stash);
    }
    cy_arena *scratch = stage->context.queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    const cy_view unused = take_tokens(stage, scratch);
    CY_TRY(cy_block_forward(block, unused, stash, batch));
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

static cy_status backward_block(cy_stage *stage, cy_stage_slot *slot, int index, cy_view d,
    const cy_micro_batch *batch, cy_backward parts)
{
    cy_arena *scratch = stage->context.queue->scratch;
    const cy_block block = block_at(stage, index);
    const size_t mark = cy_arena_mark(scratch);
    CY_TRY(before(stage, block.unit));
    CY_TRY(before_gradient(stage, block.unit));

    cy_block_stash stash = working_stash(stage, &slot->blocks[index]);
    CY_TRY(recompute(stage, &block, &stash, batch));
    cy_block_gradients gradients;
    if (parts == CY_BACKWARD_INPUT_ONLY) {
        gradients = slot->gradients[index];
    } else {
        cy_block_gradients_take(&gradients, &stage->context, scratch, stage->tokens);
    }
    CY_TRY(cy_block_backward(&block, d, &stash, &gradients, batch, parts));
    CY_TRY(after(stage, block.unit));
    cy_arena_rewind(scratch, mark);
    return parts == CY_BACKWARD_TOGETHER ? gradient_final(stage, block.unit) : CY_OK;
}

// The end of a backward pass: what the embedding and the head's own unit were waiting for.
static cy_status finish_embedding(cy_stage *stage, cy_view d, const cy_micro_batch *batch)
{
    const int unit = cy_storage_unit(stage->storage, -1);
    if (unit < 0) return CY_OK;
    const bool reads_tokens = stage->storage->part.layer_first == 0;
    if (reads_tokens) {
        CY_TRY(before_gradient(stage, unit));
        CY_TRY(cy_embed_backward(&stage->context, stage->storage, d, batch));
    }
    return gradient_final(stage, unit);
}

cy_status cy_stage_backward(
    cy_stage *stage, int slot_index, cy_view d, const cy_micro_batch *batch, cy_backward parts)
{
    CY_ASSERT(slot_index < stage->slot_count);
    CY_ASSERT(parts == CY_BACKWARD_TOGETHER || stage->split_backward);
    cy_stage_slot *slot = &stage->slots[slot_index];
    const cy_part *part = &stage->storage->part;
    if (part->head && parts == CY_BACKWARD_TOGETHER) {
        CY_TRY(gradient_final(stage, stage->head.norm_unit));
    }
    for (int i = part->layer_count - 1; i >= 0; i--) {
        CY_TRY(backward_block(stage, slot, i, d, batch, parts));
    }
    if (parts == CY_BACKWARD_TOGETHER) return finish_embedding(stage, d, batch);
    // The embedding's gradient needs no product and its input is at hand only now.
    if (part->embedding && part->layer_first == 0) {
        CY_TRY(before_gradient(stage, cy_storage_unit(stage->storage, -1)));
        return cy_embed_backward(&stage->context, stage->storage, d, batch);
    }
    return CY_OK;
}

cy_status cy_stage_backward_weight(cy_stage *stage, int slot_index, const cy_micro_batch *batch)
{
    (void)batch;
    cy_stage_slot *slot = &stage->slots[slot_index];
    const cy_part *part = &stage->storage->part;
    if (part->head) CY_TRY(gradient_final(stage, stage->head.norm_unit));
    for (int i = part->layer_count - 1; i >= 0; i--) {
        const cy_block block = block_at(stage, i);
        CY_TRY(before(stage, block.unit));
        CY_TRY(before_gradient(stage, block.unit));
        CY_TRY(cy_block_backward_weight(&block, &slot->blocks[i], &slot->gradients[i]));
        CY_TRY(after(stage, block.unit));
        CY_TRY(gradient_final(stage, block.unit));
    }
    const int unit = cy_storage_unit(stage->storage, -1);
    return unit < 0 ? CY_OK : gradient_final(stage, unit);
}
