// A plan for a person.

#include "observe/number.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define GB 0x1p-30
#define MB 0x1p-20

// Ranks of a long list are cut, the largest is always told.
#define MOST_RANKS 64

static const char *layer_kind(const cy_model_shape *shape, int layer)
{
    if (layer < 0) return "embedding";
    return layer == shape->layers ? "end" : "each layer";
}

// Which parameters lie in one matrix with this one.
static const char *fused(cy_role role)
{
    if (role == CY_ROLE_Q || role == CY_ROLE_K || role == CY_ROLE_V) return "q k v";
    if (role == CY_ROLE_GATE || role == CY_ROLE_UP) return "gate up";
    const bool bias = role == CY_ROLE_Q_BIAS || role == CY_ROLE_K_BIAS || role == CY_ROLE_V_BIAS;
    return bias ? "q k v bias" : "";
}

// The name without what differs from layer to layer.
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
        if (param->layer > 0 && param->layer < shape->layers) continue;
        char size[48];
        snprintf(size, sizeof(size), "%lld x %lld", (long long)param->rows, (long long)param->cols);
        CY_TRY(cy_text_add(text, "  %-10s  %-32s %-16s %-11s", layer_kind(shape, param->layer),
            short_name(param->name), size, fused(param->role)));
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

// "e 0-1 h"; of several chunks "0-1,4-5", or "0,4,..,28".
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

// Of the column of layers: chunks make lists of them.
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
        "\nmemory in GB, each rank of %d thread%s (e embedding, h head; units: rooms of ZeRO)\n"
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

// "steps 1-50, ratio 0.25: 0.24 MB a step" for each stage, and the whole run.
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

// By what `train` would refuse to run all ranks here; libraries are resident already.
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
