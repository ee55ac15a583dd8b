// Runs one segment of the model forward and backward, a microbatch at a time.

#include "model/stage.h"

#include "base/memory.h"
#include "base/status.h"

// ---- places of stashes

cy_status cy_stage_slots_open(cy_stage_slots *slots, const cy_stage_spec *spec)
{
    CY_ASSERT(!spec->split_backward || spec->recompute == CY_RECOMPUTE_NONE);
    CY_ASSERT(spec->layers > 0 && spec->stashes > 0 && spec->kept > 0);
    cy_stage_slots made = {.spec = *spec};
    const size_t stashes = (size_t)spec->stashes, kept = (size_t)spec->kept;
    const size_t layers = (size_t)spec->layers;
    void *blocks[4] = {NULL};
    cy_status status = cy_memory_alloc(&blocks[0], stashes * layers, sizeof(cy_block_stash));
    if (status == CY_OK) status = cy_memory_alloc(&blocks[1], stashes, sizeof(cy_view));
    if (status == CY_OK)
        status = cy_memory_alloc(&blocks[2], kept * layers, sizeof(cy_block_stash));
    if (status == CY_OK) {
        status = cy_memory_alloc(&blocks[3], kept * layers, sizeof(cy_block_gradients));
    }
    made.stashes = blocks[0];
    made.d_out = blocks[1];
    made.kept = blocks[2];
    made.gradients = blocks[3];
    if (status != CY_OK) {
        cy_stage_slots_close(&made);
        return status;
    }
    *slots = made;
    return CY_OK;
}

void cy_stage_slots_close(cy_stage_slots *slots)
{
    cy_memory_free(slots->stashes);
    cy_memory_free(slots->d_out);
    cy_memory_free(slots->kept);
    cy_memory_free(slots->gradients);
    *slots = (cy_stage_slots){0};
}

static cy_view take_tokens(const cy_stage_spec *spec, cy_arena *arena)
{
    return cy_view_alloc(arena, spec->context->dtype,
        cy_tensor_local_tokens(&spec->context->tp, spec->tokens), spec->context->shape.hidden);
}

static void take_kept(cy_stage_slots *slots, int place, cy_arena *step)
{
    const cy_stage_spec *spec = &slots->spec;
    for (int i = 0; i < spec->layers; i++) {
        cy_block_stash *kept = &slots->kept[place * spec->layers + i];
        *kept = (cy_block_stash){0};
        // The first layer reads what the pipeline brings, if not the embedding.
        if (i > 0 || spec->embedding) kept->attention.x = take_tokens(spec, step);
        if (spec->recompute == CY_RECOMPUTE_FULL) continue;
        cy_block_stash_alloc_to_weight(
            kept, spec->context, step, spec->tokens, spec->recompute != CY_RECOMPUTE_SELECTIVE);
        if (!spec->split_backward) continue;
        cy_block_gradients_alloc(
            &slots->gradients[place * spec->layers + i], spec->context, step, spec->tokens);
    }
}

void cy_stage_slots_alloc(cy_stage_slots *slots, cy_arena *step)
{
    const cy_stage_spec *spec = &slots->spec;
    for (int place = 0; place < spec->stashes; place++) {
        slots->d_out[place] = spec->head ? take_tokens(spec, step) : cy_view_none();
        for (int i = 0; i < spec->layers; i++) {
            cy_block_stash *stash = &slots->stashes[place * spec->layers + i];
            *stash = (cy_block_stash){0};
            if (spec->recompute == CY_RECOMPUTE_FULL) continue;
            cy_block_stash_alloc_to_input(stash, spec->context, step, spec->tokens);
        }
    }
    for (int place = 0; place < spec->kept; place++)
        take_kept(slots, place, step);
}

// ---- the stage

cy_stage cy_stage_of(cy_stage_slots *slots, cy_storage *storage, const cy_segment *segment)
{
    const cy_model_context *context = slots->spec.context;
    CY_ASSERT(0 < segment->layer_count && segment->layer_count <= slots->spec.layers);
    cy_stage stage = {.slots = slots, .storage = storage, .segment = *segment};
    if (segment->head) {
        const int layers = context->shape.layers;
        stage.head = (cy_head){
            .context = context,
            .storage = storage,
            .norm_unit = cy_storage_unit(storage, layers),
            .matrix_unit = cy_storage_unit(storage, context->shape.tied ? -1 : layers),
        };
    }
    return stage;
}

// ---- calls to the reducers: each may move the arrays of a unit, so the storage looks them up
// again

// Makes one of the reducer's calls in every parameter group in which the unit has a part.
static cy_status call_reducers(
    const cy_stage *stage, int unit, cy_status (*call)(cy_reducer *reducer, int number))
{
    const cy_storage *storage = stage->storage;
    for (int g = 0; g < storage->group_count; g++) {
        cy_reducer *reducer = storage->groups[g].reducer;
        const int number = cy_storage_part(storage, unit, g)->number;
        if (reducer != NULL && number >= 0) CY_TRY(call(reducer, number));
    }
    cy_storage_bind_unit(stage->storage, unit);
    return CY_OK;
}

static cy_status before_unit(const cy_stage *stage, int unit)
{
    return call_reducers(stage, unit, cy_reducer_before_unit);
}

static cy_status after_unit(const cy_stage *stage, int unit)
{
    return call_reducers(stage, unit, cy_reducer_after_unit);
}

static cy_status before_gradient(const cy_stage *stage, int unit)
{
    return call_reducers(stage, unit, cy_reducer_before_gradient);
}

static cy_status final_of_microbatch(cy_reducer *reducer, int number)
{
    return cy_reducer_gradient_final(reducer, number, false);
}

static cy_status final_of_step(cy_reducer *reducer, int number)
{
    return cy_reducer_gradient_final(reducer, number, true);
}

static cy_status gradient_final(const cy_stage *stage, const cy_stage_pass *pass, int unit)
{
    cy_unit *at = &stage->storage->units[unit];
    const bool embedding = at->layer < 0;
    at->grads_empty = false;
    const bool last = pass->last && (!embedding || stage->ends_embedding);
    return call_reducers(stage, unit, last ? final_of_step : final_of_microbatch);
}

// ---- stashes

static cy_layer layer_at(const cy_stage *stage, int index)
{
    return (cy_layer){
        .context = stage->slots->spec.context,
        .storage = stage->storage,
        .unit = cy_storage_unit(stage->storage, stage->segment.layer_first + index),
    };
}

static cy_block_stash stash_at(const cy_stage *stage, const cy_stage_pass *pass, int index)
{
    const cy_stage_slots *slots = stage->slots;
    CY_ASSERT(0 <= pass->stash && pass->stash < slots->spec.stashes);
    CY_ASSERT(0 <= pass->kept && pass->kept < slots->spec.kept);
    cy_block_stash stash = slots->kept[pass->kept * slots->spec.layers + index];
    const cy_block_stash *brief = &slots->stashes[pass->stash * slots->spec.layers + index];
    stash.attention.qkv = brief->attention.qkv;
    stash.attention.lse = brief->attention.lse;
    stash.attention.qk_norm = brief->attention.qk_norm;
    if (index == 0 && !cy_view_is_none(pass->input)) stash.attention.x = pass->input;
    return stash;
}

// With full recomputation all but x lives in the scratch arena while the layer runs.
static cy_block_stash working_stash(const cy_stage *stage, const cy_stage_pass *pass, int index)
{
    const cy_stage_spec *spec = &stage->slots->spec;
    cy_block_stash stash = stash_at(stage, pass, index);
    cy_arena *scratch = spec->context->queue->scratch;
    switch (spec->recompute) {
    case CY_RECOMPUTE_NONE:
        break;
    case CY_RECOMPUTE_SELECTIVE:
        stash.feed_forward.gate_up = cy_view_alloc(
            scratch, spec->context->dtype, spec->tokens, 2 * spec->context->ffn_local);
        break;
    case CY_RECOMPUTE_FULL:
        cy_block_stash_alloc_to_weight(&stash, spec->context, scratch, spec->tokens, true);
        cy_block_stash_alloc_to_input(&stash, spec->context, scratch, spec->tokens);
        break;
    }
    return stash;
}

// ---- forward

// *pending is the sum that the first layer's input becomes.
static cy_status forward_blocks(const cy_stage *stage, const cy_stage_pass *pass, cy_view output,
    cy_tensor_reduce_state *pending)
{
    const cy_stage_spec *spec = &stage->slots->spec;
    cy_arena *scratch = spec->context->queue->scratch;
    const int layers = stage->segment.layer_count;
    for (int i = 0; i < layers; i++) {
        const cy_layer layer = layer_at(stage, i);
        const size_t mark = cy_arena_mark(scratch);
        cy_block_stash stash = working_stash(stage, pass, i);
        const cy_view y = i + 1 < layers ? stash_at(stage, pass, i + 1).attention.x : output;
        CY_TRY(before_unit(stage, layer.unit));
        CY_TRY(cy_block_forward(&layer, y, &stash, pass->batch, pending));
        // The residual that is added to what arrives would be gone.
        if (spec->recompute == CY_RECOMPUTE_FULL) CY_TRY(cy_tensor_reduce_finish(pending));
        CY_TRY(after_unit(stage, layer.unit));
        cy_arena_rewind(scratch, mark);
    }
    return cy_tensor_reduce_finish(pending);
}

static cy_status forward_head(
    const cy_stage *stage, const cy_stage_pass *pass, cy_view x, const cy_stage_loss *loss)
{
    const cy_head *head = &stage->head;
    const cy_view d_out = stage->slots->d_out[pass->stash];
    CY_TRY(before_unit(stage, head->norm_unit));
    if (head->matrix_unit != head->norm_unit) CY_TRY(before_unit(stage, head->matrix_unit));
    if (loss->train) {
        CY_TRY(before_gradient(stage, head->norm_unit));
        CY_TRY(before_gradient(stage, head->matrix_unit));
    }
    CY_TRY(cy_head_forward(
        head, loss->sum, loss->train ? d_out : cy_view_none(), x, pass->batch, loss->scale));
    if (head->matrix_unit != head->norm_unit) CY_TRY(after_unit(stage, head->matrix_unit));
    return after_unit(stage, head->norm_unit);
}

cy_status cy_stage_forward(
    const cy_stage *stage, const cy_stage_pass *pass, cy_view output, const cy_stage_loss *loss)
{
    const cy_stage_spec *spec = &stage->slots->spec;
    cy_arena *scratch = spec->context->queue->scratch;
    CY_ASSERT(pass->batch->tokens == spec->tokens);
    CY_ASSERT(cy_view_is_none(pass->input) == stage->segment.embedding);
    CY_ASSERT(cy_view_is_none(output) == stage->segment.head);
    cy_tensor_reduce_state pending = {0};
    if (stage->segment.embedding) {
        const int unit = cy_storage_unit(stage->storage, -1);
        CY_TRY(before_unit(stage, unit));
        CY_TRY(cy_embed_start(spec->context, stage->storage, stash_at(stage, pass, 0).attention.x,
            pass->batch, &pending));
        CY_TRY(after_unit(stage, unit));
    }
    if (!stage->segment.head) return forward_blocks(stage, pass, output, &pending);

    // The head is done with the last layer's output before forward returns.
    const size_t mark = cy_arena_mark(scratch);
    const cy_view out = take_tokens(spec, scratch);
    CY_TRY(forward_blocks(stage, pass, out, &pending));
    CY_TRY(forward_head(stage, pass, out, loss));
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

// ---- backward

// Makes again what is not kept, before the backward pass of a layer.
static cy_status recompute(
    const cy_stage *stage, const cy_layer *layer, cy_block_stash *stash, const cy_microbatch *batch)
{
    const cy_stage_spec *spec = &stage->slots->spec;
    if (spec->recompute == CY_RECOMPUTE_NONE) return CY_OK;
    if (spec->recompute == CY_RECOMPUTE_SELECTIVE) {
        return cy_feed_forward_recompute_gate_up(layer, &stash->feed_forward);
    }
    cy_tensor_reduce_state here = {0};
    return cy_block_forward(layer, cy_view_none(), stash, batch, &here);
}

static cy_block_gradients *gradients_at(const cy_stage *stage, const cy_stage_pass *pass, int index)
{
    return &stage->slots->gradients[pass->kept * stage->slots->spec.layers + index];
}

static cy_status backward_block(
    const cy_stage *stage, const cy_stage_pass *pass, int index, cy_view d, cy_backward parts)
{
    const cy_stage_spec *spec = &stage->slots->spec;
    cy_arena *scratch = spec->context->queue->scratch;
    const cy_layer layer = layer_at(stage, index);
    const size_t mark = cy_arena_mark(scratch);
    CY_TRY(before_unit(stage, layer.unit));
    CY_TRY(before_gradient(stage, layer.unit));

    cy_block_stash stash = working_stash(stage, pass, index);
    CY_TRY(recompute(stage, &layer, &stash, pass->batch));
    cy_block_gradients gradients;
    if (parts == CY_BACKWARD_INPUT_ONLY) {
        gradients = *gradients_at(stage, pass, index);
    } else {
        cy_block_gradients_alloc(&gradients, spec->context, scratch, spec->tokens);
    }
    CY_TRY(cy_block_backward(&layer, d, &stash, &gradients, pass->batch, parts));
    CY_TRY(after_unit(stage, layer.unit));
    cy_arena_rewind(scratch, mark);
    return parts == CY_BACKWARD_TOGETHER ? gradient_final(stage, pass, layer.unit) : CY_OK;
}

// The end of a backward pass: the embedding, which the head may share.
static cy_status embedding_final(const cy_stage *stage, const cy_stage_pass *pass)
{
    const bool shared = stage->segment.head && stage->slots->spec.context->shape.tied;
    if (!stage->segment.embedding && !shared) return CY_OK;
    return gradient_final(stage, pass, cy_storage_unit(stage->storage, -1));
}

cy_status cy_stage_backward(
    const cy_stage *stage, const cy_stage_pass *pass, cy_view d, cy_backward parts)
{
    const cy_stage_spec *spec = &stage->slots->spec;
    const bool together = parts == CY_BACKWARD_TOGETHER;
    CY_ASSERT(together || spec->split_backward);
    if (stage->segment.head && together) CY_TRY(gradient_final(stage, pass, stage->head.norm_unit));
    for (int i = stage->segment.layer_count - 1; i >= 0; i--) {
        CY_TRY(backward_block(stage, pass, i, d, parts));
    }
    // The embedding's gradient needs no product and its input is at hand only now.
    if (stage->segment.embedding) {
        CY_TRY(before_gradient(stage, cy_storage_unit(stage->storage, -1)));
        CY_TRY(cy_embed_backward(spec->context, stage->storage, d, pass->batch));
    }
    return together ? embedding_final(stage, pass) : CY_OK;
}

cy_status cy_stage_backward_weight(const cy_stage *stage, const cy_stage_pass *pass)
{
    if (stage->segment.head) CY_TRY(gradient_final(stage, pass, stage->head.norm_unit));
    for (int i = stage->segment.layer_count - 1; i >= 0; i--) {
        const cy_layer layer = layer_at(stage, i);
        const cy_block_stash stash = stash_at(stage, pass, i);
        CY_TRY(before_unit(stage, layer.unit));
        CY_TRY(before_gradient(stage, layer.unit));
        CY_TRY(cy_block_backward_weight(&layer, &stash, gradients_at(stage, pass, i)));
        CY_TRY(after_unit(stage, layer.unit));
        CY_TRY(gradient_final(stage, pass, layer.unit));
    }
    return embedding_final(stage, pass);
}
