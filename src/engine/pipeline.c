// Binds the pipeline schedule to the stages of this rank: opens both and runs microbatches through
// them.

#include "base/memory.h"
#include "base/status.h"
#include "optim/adamw.h"
#include "config/config.h"
#include "engine/engine_parts.h"

#include <math.h>

// ---- opening

static cy_status open_schedule(cy_engine *engine)
{
    cy_schedule_options options = cy_config_schedule(engine->options.config);
    if (options.stages == 1) {
        options.engine = CY_PIPELINE_1F1B;
        options.chunks = 1;
    }
    CY_TRY(cy_schedule_open(&engine->schedule, &options));
    const cy_executor_options executor = {
        .schedule = &engine->schedule,
        .group = engine->options.groups.pp,
        .dtype = engine->context.dtype,
        .rows = cy_tensor_local_tokens(&engine->context.tp, engine->tokens),
        .cols = engine->context.shape.hidden,
    };
    return cy_executor_open(&engine->executor, &executor);
}

static cy_segment segment_of(const cy_engine *engine, const cy_layer_range *ranges, int chunk)
{
    const int segment = cy_schedule_segment(&engine->schedule, engine->executor.rank, chunk);
    return (cy_segment){
        .layer_first = ranges[segment].first,
        .layer_count = ranges[segment].count,
        .embedding = segment == 0,
        .head = segment + 1 == cy_schedule_segments(&engine->schedule),
    };
}

// The chunk whose gradients become final as number `place`.
static int chunk_final_at(const cy_engine *engine, int place)
{
    const size_t *last = engine->executor.last_weight;
    for (int chunk = 0; chunk < engine->schedule.chunks; chunk++) {
        int before = 0;
        for (int other = 0; other < engine->schedule.chunks; other++)
            before += last[other] < last[chunk];
        if (before == place) return chunk;
    }
    CY_ASSERT(false);
    return -1;
}

// Writes segments [chunks], in the order in which their gradients become final.
static cy_status open_storage(cy_engine *engine, cy_segment *segments, const cy_layer_range *ranges)
{
    const cy_engine_groups *groups = &engine->options.groups;
    const cy_model_shape *shape = &engine->context.shape;
    engine->embedding_chunk = -1;
    for (int i = 0; i < engine->schedule.chunks; i++) {
        const int chunk = chunk_final_at(engine, i);
        segments[i] = segment_of(engine, ranges, chunk);
        const bool shares = segments[i].head && shape->tied;
        if (segments[i].embedding || shares) engine->embedding_chunk = chunk;
    }
    const cy_model_shard part = {
        .segments = segments,
        .segment_count = engine->schedule.chunks,
        .tp_rank = cy_group_rank(groups->tp),
        .tp_size = cy_group_size(groups->tp),
        .sets = engine->sets,
        .set_count = engine->set_count,
        .fixed_grads = engine->context.sums != NULL,
    };
    const cy_precision precision = {
        .dtype = engine->context.dtype,
        .rules = engine->options.dtype_rules,
        .rule_count = engine->options.dtype_rule_count,
    };
    CY_TRY(cy_storage_open(&engine->storage, shape, &part, precision));
    engine->storage.sums = engine->context.sums;
    return CY_OK;
}

static bool has_split_backward(const cy_engine *engine)
{
    const cy_action_list *list = &engine->schedule.ranks[engine->executor.rank];
    for (size_t i = 0; i < list->count; i++) {
        if (list->actions[i].kind == CY_ACTION_BACKWARD_INPUT) return true;
    }
    return false;
}

static cy_status open_stages(cy_engine *engine, const cy_layer_range *ranges)
{
    const bool train = engine->options.train;
    const cy_executor *executor = &engine->executor;
    const char *conflict = cy_config_schedule_conflict(engine->options.config, &engine->schedule);
    if (train && conflict != NULL) return CY_FAIL(CY_ERR_REQUEST, "%s", conflict);
    cy_stage_spec spec = {
        .context = &engine->context,
        .recompute = engine->options.config->training.recompute,
        .tokens = engine->tokens,
        .split_backward = train && has_split_backward(engine),
        .stashes = train ? cy_executor_slot_count(executor, CY_SLOT_STASH) : 1,
        .kept = train ? cy_executor_slot_count(executor, CY_SLOT_KEPT) : 1,
    };
    for (int chunk = 0; chunk < engine->schedule.chunks; chunk++) {
        const cy_segment segment = segment_of(engine, ranges, chunk);
        if (segment.layer_count > spec.layers) spec.layers = segment.layer_count;
        spec.embedding = spec.embedding || segment.embedding;
        spec.head = spec.head || segment.head;
    }
    CY_TRY(cy_stage_slots_open(&engine->slots, &spec));
    CY_TRY(CY_ALLOC(&engine->stages, (size_t)engine->schedule.chunks));
    for (int chunk = 0; chunk < engine->schedule.chunks; chunk++) {
        const cy_segment segment = segment_of(engine, ranges, chunk);
        engine->stages[chunk] = cy_stage_of(&engine->slots, &engine->storage, &segment);
    }
    return CY_OK;
}

cy_status cy_engine_open_pipeline(cy_engine *engine)
{
    CY_TRY(open_schedule(engine));
    cy_layer_range *ranges = NULL;
    cy_segment *segments = NULL;
    const size_t count = (size_t)cy_schedule_segments(&engine->schedule);
    const size_t actions = engine->schedule.ranks[engine->executor.rank].count;
    cy_status status = CY_ALLOC(&ranges, count);
    if (status == CY_OK) status = CY_ALLOC(&segments, count);
    if (status == CY_OK) {
        status = cy_config_partition(ranges, engine->options.config, &engine->schedule);
    }
    if (status == CY_OK) status = open_storage(engine, segments, ranges);
    if (status == CY_OK) status = open_stages(engine, ranges);
    if (status == CY_OK && engine->options.measure) status = CY_ALLOC(&engine->times, actions);
    cy_memory_free(ranges);
    cy_memory_free(segments);
    return status;
}

void cy_engine_close_pipeline(cy_engine *engine)
{
    cy_memory_free(engine->times);
    cy_memory_free(engine->stages);
    cy_stage_slots_close(&engine->slots);
    cy_executor_close(&engine->executor);
    cy_schedule_close(&engine->schedule);
}

// ---- a step

cy_microbatch cy_engine_microbatch(const cy_engine *engine, int64_t microbatch)
{
    return (cy_microbatch){
        .tokens = engine->tokens,
        .inputs = engine->inputs + microbatch * engine->tokens,
        .targets = engine->targets + microbatch * engine->tokens,
        .positions = engine->positions,
        .spans = cy_context_tables_own(&engine->tables)->spans,
        .span_count = cy_context_tables_own(&engine->tables)->span_count,
    };
}

static cy_stage_pass pass_of(
    const cy_pipeline_call *call, const cy_microbatch *batch, cy_view input)
{
    return (cy_stage_pass){.stash = call->stash,
        .kept = call->kept,
        .last = call->last,
        .input = input,
        .batch = batch};
}

double cy_engine_loss_scale(const cy_engine *engine)
{
    const cy_config *config = engine->options.config;
    if (config->model.dtype != CY_F16) return engine->scaler.scale;
    int exponent;
    (void)frexp((double)config->training.seq_length, &exponent); // 2^(exponent - 1) is at most it
    return ldexp(engine->scaler.scale, 1 - exponent);
}

static cy_status forward(void *context, const cy_pipeline_call *call, cy_view output, cy_view input)
{
    cy_engine *engine = context;
    const cy_microbatch batch = cy_engine_microbatch(engine, call->microbatch);
    const cy_stage_pass pass = pass_of(call, &batch, input);
    const cy_stage_loss loss = {
        .sum = engine->loss, .train = true, .scale = cy_engine_loss_scale(engine)};
    return cy_stage_forward(&engine->stages[call->chunk], &pass, output, &loss);
}

// The stage replaces the output gradient by the input gradient in one buffer: in the one that is
// sent, where there is one.
static cy_status run_backward(cy_engine *engine, const cy_pipeline_call *call, cy_view made,
    cy_view given, cy_view input, cy_backward parts)
{
    const cy_microbatch batch = cy_engine_microbatch(engine, call->microbatch);
    const cy_stage_pass pass = pass_of(call, &batch, input);
    if (cy_view_is_none(given)) given = engine->slots.d_out[call->stash];
    if (cy_view_is_none(made)) {
        made = given;
    } else {
        cy_copy(&engine->queue, made, given);
    }
    return cy_stage_backward(&engine->stages[call->chunk], &pass, made, parts);
}

static cy_status backward(void *context, const cy_pipeline_call *call, cy_view input_gradient,
    cy_view output_gradient, cy_view input)
{
    return run_backward(
        context, call, input_gradient, output_gradient, input, CY_BACKWARD_TOGETHER);
}

static cy_status backward_input(void *context, const cy_pipeline_call *call, cy_view input_gradient,
    cy_view output_gradient, cy_view input)
{
    return run_backward(
        context, call, input_gradient, output_gradient, input, CY_BACKWARD_INPUT_ONLY);
}

static cy_status backward_weight(
    void *context, const cy_pipeline_call *call, cy_view output_gradient, cy_view input)
{
    (void)output_gradient; // the layers have kept what they need of it
    cy_engine *engine = context;
    const cy_microbatch batch = cy_engine_microbatch(engine, call->microbatch);
    cy_stage_pass pass = pass_of(call, &batch, input);
    pass.stash = 0; // nothing of it is read any more
    return cy_stage_backward_weight(&engine->stages[call->chunk], &pass);
}

cy_status cy_engine_run_pipeline(cy_engine *engine)
{
    const cy_pipeline_stage stage = {
        .context = engine,
        .forward = forward,
        .backward = backward,
        .backward_input = backward_input,
        .backward_weight = backward_weight,
    };
    return cy_executor_run(&engine->executor, &engine->queue, &stage, engine->times);
}

// ---- forward pass alone

// Sends or receives the activations at a boundary of a chunk.
static cy_status transfer(
    cy_engine *engine, cy_view view, cy_action_kind kind, int chunk, int segment)
{
    cy_group *group = engine->options.groups.pp;
    const cy_action action = {.kind = kind, .chunk = chunk};
    const int peer = cy_schedule_segment_rank(&engine->schedule, segment);
    const int tag = cy_action_tag(&engine->schedule, engine->executor.rank, action);
    cy_request request = {0};
    if (kind == CY_ACTION_SEND_ACTIVATION) {
        CY_TRY(cy_group_start_send(group, &engine->queue, &request, view, peer, tag));
    } else {
        CY_TRY(cy_group_start_recv(group, &engine->queue, &request, view, peer, tag));
    }
    return cy_group_wait(group, &engine->queue, &request);
}

// `input` and `output` belong to the chunk; none where it has no such neighbour.
static cy_status pass_chunk(cy_engine *engine, int chunk, cy_view output, cy_view input)
{
    const int rank = engine->executor.rank;
    const int segment = cy_schedule_segment(&engine->schedule, rank, chunk);
    const bool receives =
        segment > 0 && cy_schedule_segment_rank(&engine->schedule, segment - 1) != rank;
    const bool sends = !cy_view_is_none(output) &&
        cy_schedule_segment_rank(&engine->schedule, segment + 1) != rank;
    if (receives) {
        CY_TRY(transfer(engine, input, CY_ACTION_RECV_ACTIVATION, chunk, segment - 1));
    }
    const cy_microbatch batch = cy_engine_microbatch(engine, 0);
    const cy_stage_pass pass = {.input = input, .batch = &batch};
    const cy_stage_loss loss = {.sum = engine->loss, .scale = 1.0};
    CY_TRY(cy_stage_forward(&engine->stages[chunk], &pass, output, &loss));
    if (!sends) return CY_OK;
    return transfer(engine, output, CY_ACTION_SEND_ACTIVATION, chunk, segment + 1);
}

cy_status cy_engine_forward_only(cy_engine *engine)
{
    cy_arena *scratch = engine->queue.scratch;
    const size_t mark = cy_arena_mark(scratch);
    const cy_executor_options *shape = &engine->executor.options;
    const bool alone = cy_schedule_segments(&engine->schedule) == 1;
    cy_view buffers[2] = {cy_view_none(), cy_view_none()};
    for (int i = 0; i < 2 && !alone; i++)
        buffers[i] = cy_view_alloc(scratch, shape->dtype, shape->rows, shape->cols);
    for (int chunk = 0; chunk < engine->schedule.chunks; chunk++) {
        const cy_segment *segment = &engine->stages[chunk].segment;
        // The next chunk reads the output of this one, unless another rank is between them.
        const cy_view input = segment->embedding ? cy_view_none() : buffers[chunk % 2];
        const cy_view output = segment->head ? cy_view_none() : buffers[(chunk + 1) % 2];
        CY_TRY(pass_chunk(engine, chunk, output, input));
    }
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

// ---- tied embeddings

// The first and the last stage share one embedding, lie on different ranks, and this rank is one of
// the two.
static bool shares_embedding(const cy_engine *engine)
{
    const cy_schedule *schedule = &engine->schedule;
    const int last = cy_schedule_segments(schedule) - 1;
    const bool apart = cy_schedule_segment_rank(schedule, last) != 0;
    return engine->context.shape.tied && apart && engine->embedding_chunk >= 0;
}

// With compression the two copies of an embedding would have different residuals, so they are
// summed after the reduction, as shards are.
static bool sums_before_reduction(const cy_engine *engine)
{
    const cy_param *embedding = &engine->storage.manifest.params[0];
    return cy_storage_set(&engine->storage, embedding)->zero_stage < 2 &&
        engine->options.config->distributed.compression == CY_COMPRESSION_NONE;
}

bool cy_engine_defers_embedding_grads(const cy_engine *engine)
{
    return shares_embedding(engine) && sums_before_reduction(engine);
}

static cy_status sum_whole(cy_engine *engine)
{
    const cy_storage *storage = &engine->storage;
    const cy_tensor *table = cy_storage_find(storage, storage->manifest.params[0].key);
    const cy_view grad = cy_tensor_grad(storage, table, 0);
    CY_TRY(cy_group_all_reduce(engine->options.groups.embedding, &engine->queue, grad, CY_SUM));
    return cy_reducer_gradient_final(
        storage->groups[table->group].reducer, cy_storage_part_of(storage, table)->number, true);
}

static cy_status sum_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    cy_engine *engine = context;
    if (param_range->tensor->param->key.role != CY_ROLE_EMBED) return CY_OK;
    return cy_group_all_reduce(engine->options.groups.embedding, &engine->queue,
        cy_view_cols(range->grad, param_range->at, param_range->count), CY_SUM);
}

cy_status cy_engine_finalize_grads(cy_engine *engine)
{
    if (cy_engine_defers_embedding_grads(engine)) CY_TRY(sum_whole(engine));
    CY_TRY(cy_storage_finish_grads(&engine->storage));
    // A shard of gradients is the same part of the embedding on both ranks.
    if (!shares_embedding(engine) || sums_before_reduction(engine)) return CY_OK;
    return cy_param_ranges_visit(&engine->storage, sum_param_range, engine);
}
