// A plan as one JSON object. Sizes are bytes and elements, rectangles [first, count].

#include "observe/flops.h"
#include "observe/number.h"
#include "plan/plan.h"

static cy_status add_number(cy_text *json, const char *before, double value)
{
    return cy_text_add(json, "%s%s", before, cy_json_number(value, 17).bytes);
}

static cy_status add_mesh(cy_text *json, const cy_plan *plan)
{
    const cy_mesh *mesh = &plan->mesh;
    return cy_text_add(json,
        "{\"world\":%d,\"tp\":%d,\"cp\":%d,\"pp\":%d,\"dp\":%d,\"ep\":%d,\"etp\":%d}", mesh->world,
        mesh->size[CY_AXIS_TP], mesh->size[CY_AXIS_CP], mesh->size[CY_AXIS_PP],
        mesh->size[CY_AXIS_DP], mesh->ep, mesh->etp);
}

static cy_status add_model(cy_text *json, const cy_plan *plan)
{
    const cy_config *config = plan->config;
    CY_TRY(cy_text_add(json, "{\"parameters\":%lld,\"layers\":%d,\"dtype\":\"%s\"",
        (long long)cy_manifest_elements(&plan->manifest), config->shape.layers,
        cy_dtype_name(config->model.dtype)));
    CY_TRY(add_number(json,
        ",\"flops_per_token\":", cy_flops_per_token(&config->shape, config->training.seq_length)));
    return cy_text_add(json, "}");
}

static cy_status add_slice(cy_text *json, const cy_slice *slice, bool first)
{
    return cy_text_add(json, "%s{\"rows\":[%lld,%lld],\"cols\":[%lld,%lld],\"copies\":%d}",
        first ? "" : ",", (long long)slice->row_first, (long long)slice->rows,
        (long long)slice->col_first, (long long)slice->cols, slice->copies);
}

// One entry for what is alike in every layer: that of the first.
static cy_status add_shards(cy_text *json, const cy_plan *plan)
{
    const cy_model_shape *shape = &plan->config->shape;
    const int tp = plan->mesh.size[CY_AXIS_TP];
    bool first = true;
    for (int i = 0; i < plan->manifest.count; i++) {
        const cy_param *param = &plan->manifest.params[i];
        if (param->layer > 0 && param->layer < shape->layers) continue;
        CY_TRY(cy_text_add(json, "%s{\"name\":\"%s\",\"shape\":[%lld,%lld],\"tp\":[",
            first ? "" : ",", param->name, (long long)param->rows, (long long)param->cols));
        for (int j = 0; j < tp; j++) {
            const cy_slice slice = cy_param_slice(param, shape, j, tp);
            CY_TRY(add_slice(json, &slice, j == 0));
        }
        CY_TRY(cy_text_add(json, "]}"));
        first = false;
    }
    return CY_OK;
}

static cy_status add_schedule(cy_text *json, const cy_plan *plan)
{
    const int microbatches = (int)plan->config->training.gradient_accumulation_steps;
    if (!plan->has_schedule) {
        // A forward counts one tick, a backward two.
        return cy_text_add(json,
            "{\"engine\":null,\"stages\":1,\"microbatches\":%d,\"chunks\":1,\"ticks\":%lld,"
            "\"bubble\":0,\"peak_stash\":[1]}",
            microbatches, 3LL * microbatches);
    }
    const cy_schedule *schedule = &plan->schedule;
    const cy_schedule_cost *cost = &plan->schedule_cost;
    CY_TRY(cy_text_add(json,
        "{\"engine\":\"%s\",\"stages\":%d,\"microbatches\":%d,\"chunks\":%d,\"ticks\":%lld",
        cy_pipeline_engine_name(schedule->engine), schedule->stages, schedule->microbatches,
        schedule->chunks, (long long)cost->ticks));
    CY_TRY(add_number(json, ",\"bubble\":", cost->bubble));
    CY_TRY(cy_text_add(json, ",\"peak_stash\":["));
    for (int i = 0; i < schedule->stages; i++)
        CY_TRY(cy_text_add(json, "%s%d", i > 0 ? "," : "", cost->ranks[i].peak_stash));
    return cy_text_add(json, "]}");
}

static cy_status add_buckets(cy_text *json, const cy_plan *plan)
{
    CY_TRY(cy_text_add(json, "{\"zero_stage\":%d,\"element_bytes\":%zu,\"elements\":[",
        plan->config->distributed.zero_stage, plan->bucket_element));
    for (int i = 0; i < plan->bucket_count; i++) {
        CY_TRY(cy_text_add(json, "%s[%lld,%lld]", i > 0 ? "," : "",
            (long long)plan->buckets[i].first, (long long)plan->buckets[i].count));
    }
    return cy_text_add(json, "]}");
}

static cy_status add_rank(cy_text *json, const cy_plan_rank *rank, int number)
{
    const cy_engine_memory *memory = &rank->memory;
    CY_TRY(cy_text_add(json,
        "%s{\"rank\":%d,\"tp\":%d,\"cp\":%d,\"pp\":%d,\"dp\":%d,\"layers\":[%d,%d],"
        "\"embedding\":%s,\"head\":%s,\"parameters\":%lld",
        number > 0 ? "," : "", number, rank->at.at[CY_AXIS_TP], rank->at.at[CY_AXIS_CP],
        rank->at.at[CY_AXIS_PP], rank->at.at[CY_AXIS_DP], rank->runs[0].first, rank->layer_count,
        rank->embedding ? "true" : "false", rank->head ? "true" : "false",
        (long long)rank->parameters));
    CY_TRY(cy_text_add(json,
        ",\"memory\":{\"weights\":%zu,\"gradients\":%zu,\"optimizer\":%zu,\"units\":%zu,"
        "\"compression\":%zu,\"tables\":%zu,"
        "\"activations\":%zu,\"boundaries\":%zu,\"scratch\":%zu,\"total\":%zu}",
        memory->weights, memory->gradients, memory->optimizer, memory->units, memory->compression,
        memory->tables, memory->activations, memory->boundaries, memory->scratch, memory->total));
    CY_TRY(add_number(json, ",\"flops\":", rank->cost.flops));
    CY_TRY(add_number(json, ",\"operand_bytes\":", rank->cost.bytes));
    CY_TRY(cy_text_add(json, ",\"comm\":{"));
    bool first = true;
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        const cy_traffic *sent = &rank->traffic.of[i];
        if (sent->messages == 0) continue;
        CY_TRY(cy_text_add(json, "%s\"%s\":{", first ? "" : ",", cy_traffic_dimension(i)));
        CY_TRY(add_number(json, "\"bytes\":", sent->bytes));
        CY_TRY(cy_text_add(json, ",\"messages\":%lld}", (long long)sent->messages));
        first = false;
    }
    return cy_text_add(json, "}}");
}

static cy_status add_topk(cy_text *json, const cy_plan *plan)
{
    if (plan->stage_count == 0) return CY_OK;
    CY_TRY(cy_text_add(json, ",\"topk\":{\"stages\":["));
    for (int i = 0; i < plan->stage_count; i++) {
        const cy_plan_topk_stage *stage = &plan->stages[i];
        CY_TRY(
            cy_text_add(json, "%s{\"first_step\":%lld", i > 0 ? "," : "", (long long)stage->first));
        CY_TRY(add_number(json, ",\"ratio\":", stage->ratio));
        CY_TRY(add_number(json, ",\"rank_bytes\":", stage->bytes));
        CY_TRY(cy_text_add(json, "}"));
    }
    CY_TRY(add_number(json, "],\"dense_rank_bytes\":", plan->dense_bytes));
    CY_TRY(add_number(json, ",\"run_rank_bytes\":", cy_plan_topk_bytes(plan)));
    CY_TRY(add_number(json, ",\"run_dense_rank_bytes\":", cy_plan_dense_bytes(plan)));
    return cy_text_add(json, "}");
}

cy_status cy_plan_add_json(cy_text *json, const cy_plan *plan)
{
    CY_TRY(cy_text_add(json, "{\"mesh\":"));
    CY_TRY(add_mesh(json, plan));
    CY_TRY(cy_text_add(json, ",\"model\":"));
    CY_TRY(add_model(json, plan));
    CY_TRY(cy_text_add(json, ",\"batch\":{\"samples\":%lld,\"tokens\":%lld},\"threads\":%d",
        (long long)cy_config_batch_samples(plan->config),
        (long long)cy_config_batch_tokens(plan->config), plan->threads));
    CY_TRY(cy_text_add(json, ",\"shards\":["));
    CY_TRY(add_shards(json, plan));
    CY_TRY(cy_text_add(json, "],\"schedule\":"));
    CY_TRY(add_schedule(json, plan));
    CY_TRY(cy_text_add(json, ",\"buckets\":"));
    CY_TRY(add_buckets(json, plan));
    CY_TRY(add_topk(json, plan));
    CY_TRY(cy_text_add(json, ",\"ranks\":["));
    for (int i = 0; i < plan->mesh.world; i++)
        CY_TRY(add_rank(json, &plan->ranks[i], i));
    return cy_text_add(json, "],\"largest_rank\":%d,\"libraries_bytes\":%zu,\"total_bytes\":%zu}\n",
        cy_plan_largest(plan), plan->resident, cy_plan_bytes(plan));
}
