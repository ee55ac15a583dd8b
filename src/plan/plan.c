// Plans a run: opens the engine of each rank without memory and runs its steps on a dry queue.

#include "plan/plan.h"

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "observe/memory.h"

#include <string.h>

// ---- one rank

static void add_layer(cy_plan_rank *planned, int layer)
{
    planned->layer_count++;
    const int kept =
        planned->run_count < CY_PLAN_LAYER_RUNS ? planned->run_count : CY_PLAN_LAYER_RUNS;
    if (kept > 0 && planned->runs[kept - 1].last == layer - 1) {
        planned->runs[kept - 1].last = layer;
        return;
    }
    planned->runs[kept < CY_PLAN_LAYER_RUNS ? kept : kept - 1] = (cy_layer_run){layer, layer};
    planned->run_count++;
}

static void count_parameters(cy_plan_rank *planned, const cy_storage *storage)
{
    for (int i = 0; i < storage->tensor_count; i++) {
        const cy_slice *slice = &storage->tensors[i].slice;
        planned->parameters += slice->rows * slice->cols;
    }
    const int layers = storage->manifest.shape.layers;
    for (int i = storage->unit_count - 1; i >= 0; i--) { // the last layer comes first
        const int layer = storage->units[i].layer;
        planned->embedding = planned->embedding || layer < 0;
        planned->head = planned->head || layer == layers;
        if (layer < 0 || layer == layers) continue;
        add_layer(planned, layer);
    }
}

static cy_status run_dry_step(cy_rank_traffic *sent, cy_engine *engine, int64_t step)
{
    const cy_adamw_spec adamw = {.step = step};
    cy_step_result result;
    const cy_rank_traffic before = cy_traffic_now(&engine->options.groups);
    engine->queue.dry = true;
    CY_TRY(cy_engine_train_step(engine, NULL, &adamw, &result));
    const cy_rank_traffic after = cy_traffic_now(&engine->options.groups);
    *sent = cy_traffic_between(&before, &after);
    return CY_OK;
}

// Runs a step on the dry queue, whose costs the plan shows; with top-k compression it is a step
// after the warm-up. Opening the engine has already run a step and an evaluation in the same way.
static cy_status plan_step(cy_plan_rank *planned, cy_engine *engine)
{
    const int64_t warmup = engine->options.config->distributed.topk_warmup_steps;
    const cy_cost before = engine->queue.planned;
    CY_TRY(run_dry_step(&planned->traffic, engine, warmup > 0 ? warmup + 1 : 1));
    planned->cost.flops = engine->queue.planned.flops - before.flops;
    planned->cost.bytes = engine->queue.planned.bytes - before.bytes;
    return CY_OK;
}

static cy_status keep_buckets(cy_plan *plan, const cy_engine *engine)
{
    if (cy_group_size(engine->options.groups.gradient) == 1) return CY_OK;
    const cy_storage *storage = &engine->storage;
    size_t capacity = 0;
    void *block = NULL;
    for (int g = 0; g < storage->group_count; g++) {
        int count;
        const cy_flat_range *pieces = cy_reducer_buckets(storage->groups[g].reducer, &count);
        const size_t before = (size_t)plan->bucket_count;
        CY_TRY(cy_memory_grow(&block, &capacity, before + (size_t)count, sizeof(cy_flat_range)));
        plan->buckets = block;
        memcpy(plan->buckets + before, pieces, (size_t)count * sizeof(cy_flat_range));
        plan->bucket_count += count;
        plan->bucket_element = cy_dtype_size(storage->groups[g].grad_dtype); // of all groups
    }
    return CY_OK;
}

static cy_status plan_topk_stages(cy_plan *plan, cy_engine *engine)
{
    const cy_config_distributed *distributed = &plan->config->distributed;
    const double ratio = distributed->topk_ratio;
    const int64_t warmup = distributed->topk_warmup_steps;
    const double ranks = cy_group_size(engine->options.groups.gradient);
    if (distributed->compression != CY_COMPRESSION_TOPK || ranks == 1) return CY_OK;
    int dp = 0;
    while (strcmp(cy_traffic_dimension(dp), "dp") != 0)
        dp++;
    for (int i = 0; i <= cy_topk_stages(ratio, warmup); i++) {
        cy_rank_traffic sent;
        const int64_t first = cy_topk_stage_first(ratio, warmup, i);
        CY_TRY(run_dry_step(&sent, engine, first));
        plan->stages[plan->stage_count++] = (cy_plan_topk_stage){
            .first = first,
            .ratio = cy_topk_stage_ratio(ratio, warmup, i),
            .bytes = sent.of[dp].bytes,
        };
    }
    for (int i = 0; i < plan->bucket_count; i++)
        plan->dense_bytes += (double)plan->buckets[i].count * (double)plan->bucket_element;
    plan->dense_bytes *= 2.0 * (ranks - 1.0) / ranks;
    return CY_OK;
}

static cy_status plan_engine(cy_plan *plan, const cy_rank *rank, cy_engine *engine)
{
    cy_plan_rank *planned = &plan->ranks[rank->rank];
    cy_engine_options options = cy_rank_engine_options(rank, plan->config);
    options.plan_only = true;
    options.spin = false;
    CY_TRY(cy_engine_open(engine, &options));
    planned->at = rank->at;
    planned->memory = engine->memory;
    count_parameters(planned, &engine->storage);
    cy_status status = plan_step(planned, engine);
    if (status == CY_OK && rank->rank == 0) {
        // Kernels and libraries are loaded by now, but no tensor is allocated.
        cy_rss resident;
        status = cy_rss_read(&resident);
        if (status == CY_OK) plan->resident = resident.now_bytes;
        if (status == CY_OK) status = keep_buckets(plan, engine);
        if (status == CY_OK) status = plan_topk_stages(plan, engine);
    }
    cy_engine_close(engine);
    return status;
}

static cy_status plan_rank(cy_plan *plan, const cy_config_machine *machine, int number)
{
    cy_engine *engine = NULL;
    cy_rank rank;
    CY_TRY(CY_ALLOC(&engine, 1));
    cy_status status = cy_rank_open_dry(&rank, plan->config, machine, number);
    if (status == CY_OK) {
        plan->threads = rank.threads;
        status = plan_engine(plan, &rank, engine);
        cy_rank_close_dry(&rank);
    }
    cy_memory_free(engine);
    return status;
}

// ---- all ranks

static cy_status plan_schedule(cy_plan *plan)
{
    if (plan->config->distributed.pp_size == 1) return CY_OK;
    const cy_schedule_options options = cy_config_schedule(plan->config);
    CY_TRY(cy_schedule_open(&plan->schedule, &options));
    plan->has_schedule = true;
    return cy_schedule_check(&plan->schedule_cost, &plan->schedule, NULL);
}

// The first rank with the same plan: without ZeRO, the rank at the same coordinates of the first
// data-parallel replica.
static int first_alike(const cy_plan *plan, const cy_coordinates *at)
{
    const bool sharded = plan->config->distributed.zero_stage > 0;
    return cy_mesh_rank(&plan->mesh, at->at[CY_AXIS_TP], at->at[CY_AXIS_CP], at->at[CY_AXIS_PP],
        sharded ? at->at[CY_AXIS_DP] : 0);
}

static cy_status open_parts(cy_plan *plan, const cy_config_machine *machine)
{
    CY_TRY(cy_config_mesh(&plan->mesh, plan->config));
    CY_TRY(cy_manifest_open(
        &plan->manifest, &plan->config->shape, cy_precision_of(plan->config->model.dtype)));
    CY_TRY(plan_schedule(plan));
    plan->free_bytes = cy_free_memory_read("").bytes;
    CY_TRY(CY_ALLOC(&plan->ranks, (size_t)plan->mesh.world));
    for (int i = 0; i < plan->mesh.world; i++) {
        const cy_coordinates at = cy_mesh_coordinates(&plan->mesh, i);
        const int first = first_alike(plan, &at);
        if (first == i) {
            CY_TRY(plan_rank(plan, machine, i));
        } else {
            plan->ranks[i] = plan->ranks[first];
            plan->ranks[i].at = at;
        }
    }
    return CY_OK;
}

cy_status cy_plan_open(cy_plan *plan, const cy_config *config, const cy_config_machine *machine)
{
    *plan = (cy_plan){.config = config};
    const cy_status status = open_parts(plan, machine);
    if (status != CY_OK) cy_plan_close(plan);
    return status;
}

void cy_plan_close(cy_plan *plan)
{
    cy_memory_free(plan->buckets);
    cy_memory_free(plan->ranks);
    cy_manifest_close(&plan->manifest);
    cy_schedule_cost_close(&plan->schedule_cost);
    cy_schedule_close(&plan->schedule);
    *plan = (cy_plan){0};
}

int cy_plan_largest(const cy_plan *plan)
{
    int largest = 0;
    for (int i = 1; i < plan->mesh.world; i++) {
        if (plan->ranks[i].memory.total > plan->ranks[largest].memory.total) largest = i;
    }
    return largest;
}

size_t cy_plan_bytes(const cy_plan *plan)
{
    size_t bytes = plan->resident;
    for (int i = 0; i < plan->mesh.world; i++)
        bytes += plan->ranks[i].memory.total;
    return bytes;
}

double cy_plan_topk_bytes(const cy_plan *plan)
{
    const int64_t end = cy_config_last_step(plan->config) + 1;
    double bytes = 0;
    for (int i = 0; i < plan->stage_count; i++) {
        const bool last = i == plan->stage_count - 1;
        const int64_t next = last ? end : plan->stages[i + 1].first;
        const int64_t steps = (next < end ? next : end) - plan->stages[i].first;
        if (steps > 0) bytes += (double)steps * plan->stages[i].bytes;
    }
    return bytes;
}

double cy_plan_dense_bytes(const cy_plan *plan)
{
    return (double)cy_config_last_step(plan->config) * plan->dense_bytes;
}
