// Opens the engine of one rank: its groups, its model, its memory, and the first weights in it.

#include "engine/engine.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "model/shape.h"
#include "engine/engine_parts.h"
#include "engine/memory_check.h"

#include <math.h>
#include <string.h>

#define TRACE_SPANS (1 << 16)

cy_engine_groups cy_engine_groups_self(void)
{
    cy_group *self = cy_group_self();
    return (cy_engine_groups){
        .tp = self,
        .kv = self,
        .cp = self,
        .pp = self,
        .embedding = self,
        .gradient = self,
        .norm = self,
        .world = self,
    };
}

// ---- opening

static void describe_model(cy_engine *engine)
{
    const cy_config *config = engine->options.config;
    const cy_engine_groups *groups = &engine->options.groups;
    const cy_model_shape *shape = &config->shape;
    const int tp = cy_group_size(groups->tp);
    engine->context = (cy_model_context){
        .queue = &engine->queue,
        .shape = *shape,
        .tp =
            {
                .group = groups->tp,
                .sequence = config->distributed.sequence_parallel,
                .overlap = config->distributed.tp_overlap,
                .keep_inputs = config->distributed.sequence_keep_inputs,
            },
        .cp =
            {
                .group = groups->cp,
                .style = config->distributed.cp_style,
                .tables = &engine->tables,
            },
        .heads_local = shape->heads / tp,
        .kv_heads_local = shape->kv_heads < tp ? 1 : shape->kv_heads / tp,
        .ffn_local = shape->ffn / tp,
        .dtype = config->model.dtype,
        .sum_dtype = cy_sum_dtype(config->model.dtype),
    };
    engine->tokens =
        config->training.micro_batch_size * config->training.seq_length / cy_group_size(groups->cp);
    engine->microbatches = config->training.gradient_accumulation_steps;
}

static cy_status open_sets(cy_engine *engine)
{
    const cy_engine_options *options = &engine->options;
    CY_TRY(CY_ALLOC(&engine->sets, (size_t)options->set_count + 1));
    engine->sets[0] = (cy_param_set){
        .ranks = options->groups.gradient,
        .norm = options->groups.norm,
        .zero_stage = options->config->distributed.zero_stage,
    };
    for (int i = 0; i < options->set_count; i++)
        engine->sets[i + 1] = options->sets[i];
    engine->set_count = options->set_count + 1;
    return CY_OK;
}

// The flat ranges of a parameter group.
typedef struct group_ranges {
    cy_flat_range *units, *parameters, *vectors; // borrowed
    int vector_count;
} group_ranges;

static void fill_ranges(const cy_storage *storage, int group, group_ranges *ranges)
{
    const cy_param_group *of = &storage->groups[group];
    for (int i = 0; i < storage->unit_count; i++) {
        const cy_unit_part *part = cy_storage_part(storage, i, group);
        if (part->number < 0) continue;
        ranges->units[part->number] = (cy_flat_range){.first = part->first, .count = part->count};
    }
    for (int i = 0; i < of->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[of->tensor_first + i];
        ranges->parameters[i] = (cy_flat_range){
            .first = cy_storage_part_of(storage, tensor)->first + tensor->offset,
            .count = tensor->slice.rows * tensor->slice.cols,
        };
        if (tensor->param->dimensions == 1) {
            ranges->vectors[ranges->vector_count++] = ranges->parameters[i];
        }
    }
}

// Gradients are sums over tokens, so the norm at which a rank clips its own gradient is scaled by
// the tokens of the batch. It is 1 / sqrt(ranks) of the norm for the sum over ranks (Lin et al.,
// 2018, section 3.2).
static cy_compression_spec compression_of(
    const cy_engine *engine, const cy_param_set *set, const group_ranges *ranges)
{
    const cy_config *config = engine->options.config;
    const double ranks = cy_group_size(set->ranks);
    return (cy_compression_spec){
        .kind = config->distributed.compression,
        .ratio = config->distributed.topk_ratio,
        .most_ratio = cy_topk_stage_ratio(
            config->distributed.topk_ratio, config->distributed.topk_warmup_steps, 0),
        .most_norm =
            config->training.grad_clip * (double)cy_config_batch_tokens(config) / sqrt(ranks),
        .model = set->norm,
        .dense = ranges->vectors,
        .dense_count = ranges->vector_count,
    };
}

static cy_reducer_spec reducer_spec(cy_engine *engine, int group, const group_ranges *ranges)
{
    const cy_config_distributed *distributed = &engine->options.config->distributed;
    const cy_param_group *of = &engine->storage.groups[group];
    const cy_param_set *set = &engine->sets[of->set];
    return (cy_reducer_spec){
        .group = set->ranks,
        .queue = &engine->queue,
        .zero_stage = set->zero_stage,
        .naive = distributed->dp_reduce == CY_CONFIG_DP_NAIVE && set->zero_stage == 0,
        .bucket_bytes = (size_t)(distributed->bucket_mb * 0x1p20),
        .first_bucket_bytes = (size_t)(cy_config_first_bucket_mb(distributed) * 0x1p20),
        .weight_dtype = of->weight_dtype,
        .master_dtype = cy_sum_dtype(of->weight_dtype),
        .grad_dtype = of->grad_dtype,
        .train = engine->options.train,
        .parameters = ranges->parameters,
        .parameter_count = of->tensor_count,
    };
}

// Compression is for matrices that every rank of their set keeps whole, in one group: the norm to
// which a rank clips its own gradient covers one reducer.
static cy_status open_reducer(cy_engine *engine, int group, group_ranges *ranges)
{
    cy_param_group *of = &engine->storage.groups[group];
    const cy_param_set *set = &engine->sets[of->set];
    fill_ranges(&engine->storage, group, ranges);
    cy_reducer_spec spec = reducer_spec(engine, group, ranges);
    const bool compresses =
        engine->options.config->distributed.compression != CY_COMPRESSION_NONE &&
        ranges->vector_count < of->tensor_count;
    if (compresses && (engine->compressed != NULL || set->zero_stage > 0)) {
        return CY_FAIL(CY_ERR_UNSUPPORTED,
            "distributed.compression: all matrices must be one parameter group without ZeRO");
    }
    if (compresses) spec.compression = compression_of(engine, set, ranges);
    CY_TRY(cy_reducer_open(&of->reducer, &spec, ranges->units, of->unit_count));
    if (compresses) engine->compressed = of->reducer;
    return CY_OK;
}

static cy_status open_reducers(cy_engine *engine)
{
    const cy_storage *storage = &engine->storage;
    cy_flat_range *units = NULL;
    CY_TRY(CY_ALLOC(&units, (size_t)storage->unit_count + 2 * (size_t)storage->tensor_count));
    cy_status status = CY_OK;
    for (int i = 0; i < storage->group_count && status == CY_OK; i++) {
        group_ranges ranges = {
            .units = units,
            .parameters = units + storage->unit_count,
            .vectors = units + storage->unit_count + storage->tensor_count,
        };
        status = open_reducer(engine, i, &ranges);
    }
    cy_memory_free(units);
    return status;
}

static cy_status open_model(cy_engine *engine)
{
    describe_model(engine);
    CY_TRY(open_sets(engine));
    CY_TRY(cy_engine_open_strict(engine));
    CY_TRY(cy_engine_open_pipeline(engine));
    CY_TRY(open_reducers(engine));
    for (int chunk = 0; chunk < engine->schedule.chunks; chunk++) {
        engine->stages[chunk].ends_embedding =
            chunk == engine->embedding_chunk && !cy_engine_defers_embedding_grads(engine);
    }
    return CY_OK;
}

cy_context_layout cy_engine_layout(const cy_config *config)
{
    const cy_config_distributed *distributed = &config->distributed;
    return (cy_context_layout){
        .ranks = distributed->cp_size,
        .zigzag = distributed->cp_style != CY_CONTEXT_ULYSSES &&
            distributed->cp_layout == CY_CONFIG_CP_ZIGZAG,
        .length = config->training.seq_length,
        .sequences = config->training.micro_batch_size,
        .window = config->shape.window,
    };
}

// ---- memory

// Allocates everything that lives as long as the run.
static void alloc_run(cy_engine *engine, cy_arena *run)
{
    const cy_model_shape *shape = &engine->options.config->shape;
    const size_t row = (size_t)engine->tokens * sizeof(int32_t);
    const size_t rows = (size_t)engine->microbatches;
    cy_storage_alloc(&engine->storage, run);
    cy_optimizer_alloc(&engine->update, run);
    engine->inputs = cy_arena_alloc(run, rows * row);
    engine->targets = cy_arena_alloc(run, rows * row);
    cy_context_tables_alloc(&engine->tables, run);
    engine->positions = cy_context_tables_positions(&engine->tables);
    cy_engine_alloc_strict(engine, run);
    engine->context.rope = cy_view_alloc(run, engine->context.sum_dtype,
        engine->options.config->training.seq_length, shape->head_dim);
}

// Allocates everything that lives as long as a step. Returns how many bytes of it are stashes.
static size_t alloc_step(cy_engine *engine, cy_arena *step)
{
    cy_stage_slots_alloc(&engine->slots, step);
    const size_t stashes = step->used;
    if (engine->options.train) cy_executor_alloc(&engine->executor, step);
    return stashes;
}

// Does everything that a run does on the device once, on the dry queue.
static cy_status rehearse(cy_engine *engine)
{
    cy_step_result result;
    double loss;
    if (!engine->options.train) return cy_engine_evaluate(engine, NULL, 0, &loss);
    const cy_adamw_spec adamw = {.step = 1};
    CY_TRY(cy_engine_train_step(engine, NULL, &adamw, &result));
    return cy_engine_evaluate(engine, NULL, 0, &loss);
}

static size_t readings_bytes(const cy_engine *engine)
{
    const size_t amaxes = (size_t)(engine->sums.count + 1) * sizeof(uint32_t);
    return cy_arena_bytes(sizeof(cy_engine_readings)) + cy_arena_bytes(amaxes);
}

static size_t rows_bytes(const cy_engine *engine)
{
    return 2 * (size_t)(engine->microbatches * engine->tokens) * sizeof(int32_t);
}

static cy_status plan_memory(cy_engine *engine)
{
    cy_arena_measure(&engine->run, "run");
    cy_arena_measure(&engine->step, "step");
    cy_arena_measure(&engine->scratch, "scratch");
    engine->queue.dry = true;
    alloc_run(engine, &engine->run);
    const size_t stashes = alloc_step(engine, &engine->step);
    CY_TRY(rehearse(engine));
    engine->queue.dry = false;

    cy_engine_memory *memory = &engine->memory;
    const cy_reducer_bytes arrays = cy_storage_memory(&engine->storage);
    memory->weights = arrays.weights;
    memory->gradients = arrays.gradients;
    memory->optimizer = arrays.optimizer;
    memory->units = arrays.units;
    memory->compression = arrays.compression;
    memory->tables = engine->run.peak - memory->weights - memory->gradients - memory->optimizer -
        memory->units - memory->compression;
    memory->activations = stashes;
    memory->boundaries = engine->step.peak - stashes;
    memory->scratch = engine->scratch.peak;
    engine->mapped_bytes = engine->run.peak + engine->step.peak + engine->scratch.peak;
    engine->pinned_bytes = readings_bytes(engine) + cy_arena_bytes(rows_bytes(engine));
    size_t pinned = engine->pinned_bytes;
    if (engine->staging != NULL) pinned += cy_staging_bytes(engine->staging);
    memory->tables += pinned;
    memory->total = engine->mapped_bytes + pinned;
    return CY_OK;
}

// ---- placing

static cy_status place_pinned(cy_engine *engine)
{
    const size_t bytes = engine->pinned_bytes;
    CY_TRY(cy_device_alloc_host(engine->device, &engine->pinned, bytes));
    cy_arena arena;
    cy_arena_init(&arena, "pinned", engine->pinned, bytes);
    engine->readings = cy_arena_alloc(&arena, sizeof(cy_engine_readings));
    engine->amaxes_read =
        cy_arena_alloc(&arena, (size_t)(engine->sums.count + 1) * sizeof(uint32_t));
    engine->rows = cy_arena_alloc(&arena, rows_bytes(engine));
    return engine->staging != NULL ? cy_staging_place(engine->staging) : CY_OK;
}

static cy_status place_memory(cy_engine *engine)
{
    const size_t run = engine->run.peak, step = engine->step.peak, scratch = engine->scratch.peak;
    CY_TRY(cy_device_alloc(engine->device, &engine->mapped, engine->mapped_bytes));
    char *base = engine->mapped;
    const bool host_access = engine->device->properties.host_access;
    void (*init)(cy_arena *, const char *, void *, size_t) =
        host_access ? cy_arena_init : cy_arena_init_remote;
    init(&engine->run, "run", base, run);
    init(&engine->step, "step", base + run, step);
    init(&engine->scratch, "scratch", base + run + step, scratch);
    alloc_run(engine, &engine->run);
    alloc_step(engine, &engine->step);
    for (int i = 0; i < engine->storage.unit_count; i++)
        cy_storage_bind_unit(&engine->storage, i);
    return CY_OK;
}

static cy_status fill_tables(cy_engine *engine)
{
    CY_TRY(cy_context_tables_fill(&engine->tables, &engine->queue));
    return cy_self_attention_fill_rope(
        &engine->context, engine->options.config->training.seq_length);
}

// Opens the queue of the rank on its device, with its operators.
static cy_status open_queue(cy_engine *engine)
{
    const cy_engine_options *options = &engine->options;
    const cy_config *config = options->config;
    cy_queue *queue = &engine->queue;
    CY_TRY(
        cy_thread_pool_open(&engine->pool, options->threads, options->first_core, options->spin));
    queue->pool = engine->pool;
    queue->scratch = &engine->scratch;
    if (options->world != NULL) queue->heartbeat = cy_world_heartbeat(options->world);
    if (options->trace) {
        CY_TRY(cy_trace_open(&engine->trace, TRACE_SPANS));
        queue->trace = &engine->trace;
    }
    const uint64_t rank = (uint64_t)cy_group_rank(options->groups.world);
    CY_TRY(cy_device_open(&engine->device, cy_config_device_name(config->distributed.device),
        cy_random_key_at((uint64_t)config->training.seed, rank)));
    CY_TRY(cy_queue_open(queue, engine->device));
    if (!engine->device->properties.host_access) {
        CY_TRY(cy_staging_open(&engine->staging, engine->device));
        queue->staging = engine->staging;
    }
    const bool strict = config->training.strict;
    CY_TRY(
        (strict ? cy_kernels_open_strict : cy_kernels_open)(queue, &engine->kernels, options->isa));
    const cy_config_model *model = &config->model;
    cy_kernels_use_reference(&engine->kernels, !model->use_flash_attention, !model->use_fused_adam);
    cy_kernels_defer(queue);
    return CY_OK;
}

static cy_status open_parts(cy_engine *engine)
{
    const cy_engine_options *options = &engine->options;
    CY_TRY(open_queue(engine));
    CY_TRY(open_model(engine));
    const cy_context_layout layout = cy_engine_layout(options->config);
    CY_TRY(cy_context_tables_open(&engine->tables, &layout, cy_group_rank(options->groups.cp)));
    engine->update = (cy_optimizer){
        .queue = &engine->queue,
        .storage = &engine->storage,
        .sets = engine->sets,
        .set_count = engine->set_count,
        .max_norm = options->config->training.grad_clip,
    };
    const cy_loss_scaler_spec scaling = cy_loss_scaler_defaults();
    engine->scaler = cy_loss_scaler_start(&scaling);
    if (options->config->model.dtype != CY_F16) engine->scaler.scale = 1.0;
    CY_TRY(plan_memory(engine));
    if (options->plan_only) return CY_OK;
    CY_TRY(cy_engine_check_memory(engine));
    CY_TRY(place_memory(engine));
    CY_TRY(place_pinned(engine));
    return fill_tables(engine);
}

cy_status cy_engine_open(cy_engine *engine, const cy_engine_options *options)
{
    *engine = (cy_engine){.options = *options};
    const cy_status status = open_parts(engine);
    if (status != CY_OK) cy_engine_close(engine);
    return status;
}

void cy_engine_close(cy_engine *engine)
{
    cy_queue_close(&engine->queue); // its work uses all that is closed here
    cy_engine_close_pipeline(engine);
    cy_storage_close(&engine->storage);
    cy_memory_free(engine->sets);
    cy_sums_close(&engine->sums);
    cy_context_tables_close(&engine->tables);
    if (engine->queue.kernels != NULL) cy_kernels_close(&engine->queue);
    cy_trace_close(&engine->trace);
    cy_thread_pool_close(engine->pool);
    cy_staging_close(engine->staging);
    if (engine->device != NULL) {
        cy_device_free_host(engine->device, engine->pinned, engine->pinned_bytes);
        cy_device_free(engine->device, engine->mapped, engine->mapped_bytes);
    }
    cy_device_close(engine->device);
    *engine = (cy_engine){0};
}

// ---- weights

static cy_status fill_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    cy_engine *engine = context;
    const cy_param *param = param_range->tensor->param;
    const cy_view all = cy_view_cols(range->master, param_range->at, param_range->count);
    switch (param->init) {
    case CY_INIT_ONES:
        cy_fill(&engine->queue, all, 1.0);
        return CY_OK;
    case CY_INIT_ZEROS:
        cy_fill(&engine->queue, all, 0.0);
        return CY_OK;
    case CY_INIT_NORMAL:
        break;
    }
    const uint64_t key =
        cy_random_key((uint64_t)engine->options.config->training.seed, param->name);
    cy_param_block part;
    for (int64_t done = 0; cy_param_range_next(param_range, &done, &part);) {
        const cy_view view =
            cy_view_of(cy_view_at(all, 0, part.at), all.dtype, part.rows, part.cols);
        cy_random_fill(
            &engine->queue, view, key, (uint64_t)part.global_first, param->cols, param->init_std);
    }
    return CY_OK;
}

cy_status cy_engine_sync_weights(cy_engine *engine)
{
    for (int g = 0; g < engine->storage.group_count; g++) {
        const cy_reducer *reducer = engine->storage.groups[g].reducer;
        for (int i = 0; i < cy_reducer_owned_count(reducer); i++) {
            const cy_owned_range range = cy_reducer_owned(reducer, i);
            if (!cy_view_is_none(range.weight)) cy_copy(&engine->queue, range.weight, range.master);
        }
    }
    return cy_storage_share_weights(&engine->storage);
}

void cy_engine_populate_memory(cy_engine *engine)
{
    if (!engine->device->properties.host_access) return;
    cy_memory_populate(engine->queue.pool, engine->mapped, engine->mapped_bytes);
}

cy_status cy_engine_initialize(cy_engine *engine)
{
    CY_ASSERT(engine->options.train);
    CY_TRY(cy_param_ranges_visit(&engine->storage, fill_param_range, engine));
    return cy_engine_sync_weights(engine);
}

// ---- the hash of all parameters

typedef struct hash_pass {
    cy_engine *engine;
    int set;      // whose parameters are hashed
    cy_view hash; // [1, 1] int64
} hash_pass;

static cy_status hash_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    const hash_pass *pass = context;
    const cy_param *param = param_range->tensor->param;
    const cy_tensor *tensor = param_range->tensor;
    if (pass->engine->storage.groups[tensor->group].set != pass->set) return CY_OK;
    if (tensor->slice.copy_index != 0) return CY_OK;
    const uint64_t key = cy_random_key(0, param->name);
    cy_param_block part;
    for (int64_t done = 0; cy_param_range_next(param_range, &done, &part);) {
        const cy_view view = cy_view_of(cy_view_at(range->master, 0, param_range->at + part.at),
            range->master.dtype, part.rows, part.cols);
        cy_hash(
            &pass->engine->queue, pass->hash, view, key, (uint64_t)part.global_first, param->cols);
    }
    return CY_OK;
}

cy_status cy_engine_params_hash(cy_engine *engine, uint64_t *hash)
{
    uint64_t all = 0;
    cy_queue *queue = &engine->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    for (int set = 0; set < engine->set_count; set++) {
        int64_t sum = 0;
        hash_pass pass = {
            .engine = engine, .set = set, .hash = cy_view_alloc(queue->scratch, CY_I64, 1, 1)};
        cy_queue_set(queue, pass.hash.data, 0, sizeof(sum));
        CY_TRY(cy_param_ranges_visit(&engine->storage, hash_param_range, &pass));
        cy_queue_download(queue, &sum, pass.hash.data, sizeof(sum));
        cy_arena_rewind(queue->scratch, mark);
        CY_TRY(cy_queue_synchronize(queue));
        CY_TRY(cy_group_all_reduce(
            engine->sets[set].norm, NULL, cy_view_of(&sum, CY_I64, 1, 1), CY_SUM));
        all += (uint64_t)sum;
    }
    *hash = all;
    return CY_OK;
}
