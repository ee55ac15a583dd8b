// Prints a plan as text for people, and as one JSON object.

#include "base/json.h"
#include "observe/profile.h"
#include "observe/progress.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define GB 0x1p-30
#define MB 0x1p-20

// The maximum of listed ranks. The rank that needs most memory is always listed.
#define MOST_RANKS 64

static const char *layer_kind(const cy_model_shape *shape, int layer)
{
    if (layer < 0) return "embedding";
    return layer == shape->layers ? "end" : "each layer";
}

// The names of the parameters that share a matrix with this one.
static const char *fused(cy_role role)
{
    if (role == CY_ROLE_Q || role == CY_ROLE_K || role == CY_ROLE_V) return "q k v";
    if (role == CY_ROLE_GATE || role == CY_ROLE_UP) return "gate up";
    const bool bias = role == CY_ROLE_Q_BIAS || role == CY_ROLE_K_BIAS || role == CY_ROLE_V_BIAS;
    return bias ? "q k v bias" : "";
}

// Removes the part of a name that differs between layers.
static const char *short_name(const char *name)
{
    static const char layers[] = "model.layers.0.";
    return strncmp(name, layers, sizeof(layers) - 1) == 0 ? name + sizeof(layers) - 1 : name;
}

static cy_status add_slices(cy_text *text, const cy_plan *plan, const cy_param *param)
{
    const int tp = plan->mesh.size[CY_AXIS_TP];
    if (tp == 1 || param->split == CY_SPLIT_NONE) return cy_text_add(text, "whole\n");
    const bool by_cols = param->split == CY_SPLIT_COLS;
    CY_TRY(cy_text_add(text, "%s", by_cols ? "columns" : "rows"));
    for (int i = 0; i < tp; i++) {
        if (i >= 4 && i < tp - 1) {
            if (i == 4) CY_TRY(cy_text_add(text, " | .."));
            continue;
        }
        const cy_slice slice = cy_param_slice(param, &plan->config->shape, i, tp);
        const int64_t first = by_cols ? slice.col_first : slice.row_first;
        const int64_t last = first + (by_cols ? slice.cols : slice.rows) - 1;
        CY_TRY(cy_text_add(
            text, "%s %lld-%lld", i > 0 ? " |" : "", (long long)first, (long long)last));
    }
    return cy_text_add(text, "\n");
}

static cy_status add_shards(cy_text *text, const cy_plan *plan)
{
    const cy_model_shape *shape = &plan->config->shape;
    CY_TRY(cy_text_add(text, "\nshards (by tensor-parallel rank)\n"));
    for (int i = 0; i < plan->manifest.count; i++) {
        const cy_param *param = &plan->manifest.params[i];
        if (param->key.layer > 0 && param->key.layer < shape->layers) continue;
        char size[48];
        snprintf(size, sizeof(size), "%lld x %lld", (long long)param->rows, (long long)param->cols);
        CY_TRY(cy_text_add(text, "  %-10s  %-32s %-16s %-11s", layer_kind(shape, param->key.layer),
            short_name(param->name), size, fused(param->key.role)));
        CY_TRY(add_slices(text, plan, param));
    }
    return CY_OK;
}

static cy_status add_schedule(cy_text *text, const cy_plan *plan)
{
    if (!plan->has_schedule) {
        return cy_text_add(text, "\nschedule: one stage, %lld microbatch%s one after another\n",
            (long long)plan->config->training.gradient_accumulation_steps,
            plan->config->training.gradient_accumulation_steps == 1 ? "" : "es");
    }
    const cy_schedule *schedule = &plan->schedule;
    const cy_schedule_cost *cost = &plan->schedule_cost;
    CY_TRY(cy_text_add(text,
        "\nschedule: %s, %d stages, %d microbatches, %d chunk%s a stage: %lld ticks, bubble "
        "%.2f %%, %lld messages\n  live activations by stage:",
        cy_pipeline_engine_name(schedule->engine), schedule->stages, schedule->microbatches,
        schedule->chunks, schedule->chunks == 1 ? "" : "s", (long long)cost->ticks,
        100 * cost->bubble, (long long)cost->messages));
    for (int i = 0; i < schedule->stages; i++)
        CY_TRY(cy_text_add(text, " %d", cost->ranks[i].peak_stash));
    return cy_text_add(text, "\n");
}

static cy_status add_buckets(cy_text *text, const cy_plan *plan)
{
    if (plan->bucket_count == 0) return CY_OK;
    int64_t most = 0, all = 0;
    for (int i = 0; i < plan->bucket_count; i++) {
        all += plan->buckets[i].count;
        if (plan->buckets[i].count > most) most = plan->buckets[i].count;
    }
    const double element = (double)plan->bucket_element;
    return cy_text_add(text,
        "\ngradients: ZeRO %d, %d message%s %s over %d ranks, %.2f MB in all, the largest %.2f "
        "MB\n",
        plan->config->distributed.zero_stage, plan->bucket_count,
        plan->bucket_count == 1 ? "" : "s",
        plan->config->distributed.zero_stage < 2 ? "a step" : "a microbatch",
        plan->mesh.size[CY_AXIS_DP] * plan->mesh.size[CY_AXIS_CP], (double)all * element * MB,
        (double)most * element * MB);
}

// Writes "e 0-1 h"; for several chunks "0-1,4-5" or "0,4,..,28".
static void name_layers(char *text, size_t bytes, const cy_plan_rank *rank)
{
    size_t length = (size_t)snprintf(text, bytes, "%s", rank->embedding ? "e " : "");
    for (int i = 0; i < rank->run_count && i < CY_PLAN_LAYER_RUNS; i++) {
        const cy_layer_run run = rank->runs[i];
        const bool skips = i == CY_PLAN_LAYER_RUNS - 1 && rank->run_count > CY_PLAN_LAYER_RUNS;
        length += (size_t)snprintf(text + length, bytes - length, "%s%s%d", i > 0 ? "," : "",
            skips ? "..," : "", run.first);
        if (run.last > run.first || rank->run_count == 1) {
            length += (size_t)snprintf(text + length, bytes - length, "-%d", run.last);
        }
    }
    snprintf(text + length, bytes - length, "%s", rank->head ? " h" : "");
}

// The width of the column of layers, which holds lists where a rank has several chunks.
static int layers_width(const cy_plan *plan)
{
    return plan->config->distributed.pp_chunks > 1 ? 20 : 10;
}

static cy_status add_rank(cy_text *text, const cy_plan *plan, int number)
{
    const cy_plan_rank *rank = &plan->ranks[number];
    const cy_engine_memory *memory = &rank->memory;
    char layers[64]; // three runs of at most 11 bytes, commas and words
    name_layers(layers, sizeof(layers), rank);
    return cy_text_add(text,
        "  %4d %3d %3d %3d %3d  %-*s %9.3f %9.3f %9.3f %9.3f %9.3f %11.3f %9.3f %9.3f\n", number,
        rank->at.at[CY_AXIS_TP], rank->at.at[CY_AXIS_CP], rank->at.at[CY_AXIS_PP],
        rank->at.at[CY_AXIS_DP], layers_width(plan), layers, (double)memory->weights * GB,
        (double)memory->gradients * GB, (double)memory->optimizer * GB, (double)memory->units * GB,
        (double)memory->tables * GB, (double)memory->activations * GB, (double)memory->scratch * GB,
        (double)memory->total * GB);
}

static cy_status add_memory(cy_text *text, const cy_plan *plan)
{
    const int largest = cy_plan_largest(plan);
    CY_TRY(cy_text_add(text,
        "\nmemory in GB, each rank of %d thread%s (e embedding, h head; units: "
        "buffer pool of ZeRO)\n"
        "  rank  tp  cp  pp  dp  %-*s   weights gradients optimizer     units    tables "
        "activations "
        "  scratch     total\n",
        plan->threads, plan->threads == 1 ? "" : "s", layers_width(plan), "layers"));
    for (int i = 0; i < plan->mesh.world; i++) {
        if (i < MOST_RANKS || i == largest) CY_TRY(add_rank(text, plan, i));
    }
    const int listed = MOST_RANKS + (largest >= MOST_RANKS ? 1 : 0);
    if (plan->mesh.world > listed) {
        CY_TRY(cy_text_add(text, "  %d ranks more\n", plan->mesh.world - listed));
    }
    const cy_engine_memory *most = &plan->ranks[largest].memory;
    if (most->compression > 0) {
        CY_TRY(cy_text_add(text,
            "  %.3f GB of rank %d are for compression: gradients kept back, messages on their "
            "way\n",
            (double)most->compression * GB, largest));
    }
    if (most->boundaries > 0) {
        CY_TRY(cy_text_add(text, "  %.3f GB of rank %d travel between stages of the pipeline\n",
            (double)most->boundaries * GB, largest));
    }
    return cy_text_add(text,
        "  program and libraries %.3f GB, most on rank %d; all ranks in one process %.3f GB\n",
        (double)plan->resident * GB, largest, (double)cy_plan_bytes(plan) * GB);
}

static cy_status add_work(cy_text *text, const cy_plan *plan)
{
    const cy_plan_rank *zero = &plan->ranks[0];
    double flops = 0;
    for (int i = 0; i < plan->mesh.world; i++)
        flops += plan->ranks[i].cost.flops;
    CY_TRY(cy_text_add(text, "\nwork of a step: "));
    CY_TRY(cy_number_short(text, flops));
    CY_TRY(cy_text_add(text, " FLOP of all ranks, "));
    CY_TRY(cy_number_short(text, zero->cost.flops));
    CY_TRY(cy_text_add(text, " FLOP and %.3f GB of operands of rank 0\n", zero->cost.bytes * GB));
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        const cy_traffic *sent = &zero->traffic.of[i];
        if (sent->messages == 0) continue;
        CY_TRY(cy_text_add(text, "  %-5s rank 0 sends %.3f MB in %lld message%s\n",
            cy_traffic_dimension(i), sent->bytes * MB, (long long)sent->messages,
            sent->messages == 1 ? "" : "s"));
    }
    return CY_OK;
}

// Adds "steps 1-50, ratio 0.25: 0.24 MB a step" for each stage, and the sum of the run.
static cy_status add_topk(cy_text *text, const cy_plan *plan)
{
    if (plan->stage_count == 0) return CY_OK;
    CY_TRY(cy_text_add(text,
        "\ntop-k compression: of gradients rank 0 sends, where it would send %.3f MB a step\n",
        plan->dense_bytes * MB));
    for (int i = 0; i < plan->stage_count; i++) {
        const cy_plan_topk_stage *stage = &plan->stages[i];
        if (i + 1 < plan->stage_count) {
            CY_TRY(cy_text_add(
                text, "  steps %lld-%lld", (long long)stage->first, (long long)stage[1].first - 1));
        } else {
            CY_TRY(cy_text_add(text, "  from step %lld", (long long)stage->first));
        }
        CY_TRY(cy_text_add(text, ", ratio %g: %.3f MB a step\n", stage->ratio, stage->bytes * MB));
    }
    return cy_text_add(text, "  in %lld steps: %.3f MB, %.2f %% of what it would send\n",
        (long long)cy_config_last_step(plan->config), cy_plan_topk_bytes(plan) * MB,
        100.0 * cy_plan_topk_bytes(plan) / cy_plan_dense_bytes(plan));
}

// Warns where `train` would not run all ranks on this machine. Libraries are already resident.
static cy_status add_fit(cy_text *text, const cy_plan *plan)
{
    const size_t needed = cy_plan_bytes(plan) - plan->resident;
    if (needed <= plan->free_bytes) return CY_OK;
    return cy_text_add(text, "\nthis machine has %.3f GB free, %.3f GB less than all ranks need\n",
        (double)plan->free_bytes * GB, (double)(needed - plan->free_bytes) * GB);
}

cy_status cy_plan_add_text(cy_text *text, const cy_plan *plan)
{
    const cy_config *config = plan->config;
    CY_TRY(cy_mesh_describe(&plan->mesh, text));
    CY_TRY(cy_text_add(text, "model: "));
    CY_TRY(cy_number_short(text, (double)cy_manifest_elements(&plan->manifest)));
    CY_TRY(cy_text_add(text, " parameters, %s; a step takes %lld samples, %lld tokens\n",
        cy_dtype_name(config->model.dtype), (long long)cy_config_batch_samples(config),
        (long long)cy_config_batch_tokens(config)));
    CY_TRY(add_shards(text, plan));
    CY_TRY(add_schedule(text, plan));
    CY_TRY(add_buckets(text, plan));
    CY_TRY(add_memory(text, plan));
    CY_TRY(add_work(text, plan));
    CY_TRY(add_topk(text, plan));
    return add_fit(text, plan);
}

// ---- JSON: sizes are bytes and elements, rectangles [first, count]
//
// Each function returns a new value, or NULL if memory runs out (base/json.h).

static json_t *mesh_json(const cy_mesh *mesh)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "world", mesh->world, "tp",
        mesh->size[CY_AXIS_TP], "cp", mesh->size[CY_AXIS_CP], "pp", mesh->size[CY_AXIS_PP], "dp",
        mesh->size[CY_AXIS_DP], "ep", mesh->ep, "etp", mesh->etp);
}

static json_t *model_json(const cy_plan *plan)
{
    const cy_config *config = plan->config;
    return json_pack("{s:I, s:i, s:s, s:o}", "parameters",
        (json_int_t)cy_manifest_elements(&plan->manifest), "layers", config->shape.layers, "dtype",
        cy_dtype_name(config->model.dtype), "flops_per_token",
        cy_json_real(cy_flops_per_token(&config->shape, config->training.seq_length)));
}

static json_t *slices_json(const cy_plan *plan, const cy_param *param)
{
    const int tp = plan->mesh.size[CY_AXIS_TP];
    json_t *slices = json_array();
    for (int i = 0; i < tp; i++) {
        const cy_slice slice = cy_param_slice(param, &plan->config->shape, i, tp);
        cy_json_append(&slices,
            json_pack("{s:[I, I], s:[I, I], s:i}", "rows", (json_int_t)slice.row_first,
                (json_int_t)slice.rows, "cols", (json_int_t)slice.col_first, (json_int_t)slice.cols,
                "copies", slice.copies));
    }
    return slices;
}

// Every layer has the same shards: only those of the first are listed.
static json_t *shards_json(const cy_plan *plan)
{
    json_t *shards = json_array();
    for (int i = 0; i < plan->manifest.count; i++) {
        const cy_param *param = &plan->manifest.params[i];
        if (param->key.layer > 0 && param->key.layer < plan->config->shape.layers) continue;
        cy_json_append(&shards,
            json_pack("{s:s, s:[I, I], s:o}", "name", param->name, "shape", (json_int_t)param->rows,
                (json_int_t)param->cols, "tp", slices_json(plan, param)));
    }
    return shards;
}

static json_t *schedule_json(const cy_plan *plan)
{
    const int microbatches = (int)plan->config->training.gradient_accumulation_steps;
    if (!plan->has_schedule) {
        // A forward pass takes one tick, a backward pass two.
        return json_pack("{s:n, s:i, s:i, s:i, s:I, s:i, s:[i]}", "engine", "stages", 1,
            "microbatches", microbatches, "chunks", 1, "ticks", (json_int_t)3 * microbatches,
            "bubble", 0, "peak_stash", 1);
    }
    const cy_schedule *schedule = &plan->schedule;
    const cy_schedule_cost *cost = &plan->schedule_cost;
    json_t *stashes = json_array();
    for (int i = 0; i < schedule->stages; i++) {
        cy_json_append(&stashes, json_integer(cost->ranks[i].peak_stash));
    }
    return json_pack("{s:s, s:i, s:i, s:i, s:I, s:o, s:o}", "engine",
        cy_pipeline_engine_name(schedule->engine), "stages", schedule->stages, "microbatches",
        schedule->microbatches, "chunks", schedule->chunks, "ticks", (json_int_t)cost->ticks,
        "bubble", cy_json_real(cost->bubble), "peak_stash", stashes);
}

static json_t *buckets_json(const cy_plan *plan)
{
    json_t *elements = json_array();
    for (int i = 0; i < plan->bucket_count; i++) {
        cy_json_append(&elements,
            json_pack(
                "[I, I]", (json_int_t)plan->buckets[i].first, (json_int_t)plan->buckets[i].count));
    }
    return json_pack("{s:i, s:I, s:o}", "zero_stage", plan->config->distributed.zero_stage,
        "element_bytes", (json_int_t)plan->bucket_element, "elements", elements);
}

static json_t *topk_json(const cy_plan *plan)
{
    json_t *stages = json_array();
    for (int i = 0; i < plan->stage_count; i++) {
        const cy_plan_topk_stage *stage = &plan->stages[i];
        cy_json_append(&stages,
            json_pack("{s:I, s:o, s:o}", "first_step", (json_int_t)stage->first, "ratio",
                cy_json_real(stage->ratio), "rank_bytes", cy_json_real(stage->bytes)));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "stages", stages, "dense_rank_bytes",
        cy_json_real(plan->dense_bytes), "run_rank_bytes", cy_json_real(cy_plan_topk_bytes(plan)),
        "run_dense_rank_bytes", cy_json_real(cy_plan_dense_bytes(plan)));
}

static json_t *memory_json(const cy_engine_memory *memory)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "weights",
        (json_int_t)memory->weights, "gradients", (json_int_t)memory->gradients, "optimizer",
        (json_int_t)memory->optimizer, "units", (json_int_t)memory->units, "compression",
        (json_int_t)memory->compression, "tables", (json_int_t)memory->tables, "activations",
        (json_int_t)memory->activations, "boundaries", (json_int_t)memory->boundaries, "scratch",
        (json_int_t)memory->scratch, "total", (json_int_t)memory->total);
}

static json_t *traffic_json(const cy_rank_traffic *traffic)
{
    json_t *dimensions = json_object();
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        const cy_traffic *sent = &traffic->of[i];
        if (sent->messages == 0) continue;
        cy_json_set(&dimensions, cy_traffic_dimension(i),
            json_pack("{s:o, s:I}", "bytes", cy_json_real(sent->bytes), "messages",
                (json_int_t)sent->messages));
    }
    return dimensions;
}

static json_t *rank_json(const cy_plan_rank *rank, int index)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:[i, i], s:b, s:b, s:I, s:o, s:o, s:o, s:o}",
        "rank", index, "tp", rank->at.at[CY_AXIS_TP], "cp", rank->at.at[CY_AXIS_CP], "pp",
        rank->at.at[CY_AXIS_PP], "dp", rank->at.at[CY_AXIS_DP], "layers", rank->runs[0].first,
        rank->layer_count, "embedding", rank->embedding, "head", rank->head, "parameters",
        (json_int_t)rank->parameters, "memory", memory_json(&rank->memory), "flops",
        cy_json_real(rank->cost.flops), "operand_bytes", cy_json_real(rank->cost.bytes), "comm",
        traffic_json(&rank->traffic));
}

static json_t *ranks_json(const cy_plan *plan)
{
    json_t *ranks = json_array();
    for (int i = 0; i < plan->mesh.world; i++)
        cy_json_append(&ranks, rank_json(&plan->ranks[i], i));
    return ranks;
}

cy_status cy_plan_add_json(cy_text *text, const cy_plan *plan)
{
    json_t *root = json_pack("{s:o, s:o, s:{s:I, s:I}, s:i, s:o, s:o, s:o}", "mesh",
        mesh_json(&plan->mesh), "model", model_json(plan), "batch", "samples",
        (json_int_t)cy_config_batch_samples(plan->config), "tokens",
        (json_int_t)cy_config_batch_tokens(plan->config), "threads", plan->threads, "shards",
        shards_json(plan), "schedule", schedule_json(plan), "buckets", buckets_json(plan));
    if (plan->stage_count > 0) cy_json_set(&root, "topk", topk_json(plan));
    cy_json_set(&root, "ranks", ranks_json(plan));
    cy_json_set(&root, "largest_rank", json_integer(cy_plan_largest(plan)));
    cy_json_set(&root, "libraries_bytes", json_integer((json_int_t)plan->resident));
    cy_json_set(&root, "total_bytes", json_integer((json_int_t)cy_plan_bytes(plan)));
    CY_TRY(cy_json_add(text, root, JSON_COMPACT));
    return cy_text_add(text, "\n");
}
