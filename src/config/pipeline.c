#include "config/pipeline.h"

#include "kernel/cost.h"

cy_schedule_options cy_config_schedule(const cy_config *config)
{
    return (cy_schedule_options){
        .engine = config->distributed.pp_engine,
        .stages = config->distributed.pp_size,
        .microbatches = (int)config->training.gradient_accumulation_steps,
        .chunks = config->distributed.pp_chunks,
        .csv = config->distributed.pp_schedule,
    };
}

// Costs look at shapes only, but a view without data is none.
static cy_view shape_of(int64_t rows, int64_t cols)
{
    static char nothing;
    return cy_view_of(&nothing, CY_F32, rows, cols);
}

static double product(int64_t tokens, int64_t out, int64_t in)
{
    return cy_cost_matmul(shape_of(tokens, out), shape_of(tokens, in), shape_of(out, in),
        (cy_matmul_spec){.transpose_b = true})
        .flops;
}

// Of the forward pass of one sequence; the backward pass is twice that, for head and layers alike.
static cy_partition_costs costs_of(const cy_model_shape *shape, int64_t length)
{
    const int64_t q = shape->heads * shape->head_dim, kv = shape->kv_heads * shape->head_dim;
    const cy_attention_span span = {.q_count = length, .k_count = length};
    const cy_attention_spec attention = {
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .window = shape->window,
        .spans = &span,
        .span_count = 1,
    };
    const cy_cost heads =
        cy_cost_attention_forward(shape_of(length, q), shape_of(shape->heads, length),
            shape_of(length, q), shape_of(length, kv), shape_of(length, kv), &attention);
    return (cy_partition_costs){
        .layer = product(length, q + 2 * kv, shape->hidden) + heads.flops +
            product(length, shape->hidden, q) + product(length, 2 * shape->ffn, shape->hidden) +
            product(length, shape->hidden, shape->ffn),
        .embedding = cy_cost_embedding_forward(
            shape_of(length, shape->hidden), shape_of(shape->vocab, shape->hidden))
                         .flops,
        .head = product(length, shape->vocab, shape->hidden),
    };
}

cy_status cy_config_partition(
    cy_layer_range *ranges, const cy_config *config, const cy_schedule *schedule)
{
    const cy_config_distributed *distributed = &config->distributed;
    const int layers = config->shape.layers;
    if (distributed->pp_layer_count > 0 && schedule->stages > 1) {
        return cy_partition_by_list(
            ranges, schedule, layers, distributed->pp_layers, distributed->pp_layer_count);
    }
    const cy_partition_costs costs = costs_of(&config->shape, config->training.seq_length);
    return cy_partition_by_cost(ranges, schedule, layers, &costs);
}

const char *cy_config_schedule_conflict(const cy_config *config, const cy_schedule *schedule)
{
    if (config->training.recompute == CY_CONFIG_RECOMPUTE_NONE) return NULL;
    if (schedule->stages == 1) return NULL; // that runs 1F1B, whatever the engine is called
    for (int rank = 0; rank < schedule->stages; rank++) {
        const cy_action_list *list = &schedule->ranks[rank];
        for (size_t i = 0; i < list->count; i++) {
            if (list->actions[i].kind == CY_ACTION_BACKWARD_INPUT) {
                return "a backward pass in two parts keeps what recomputation would make again";
            }
        }
    }
    return NULL;
}
