#include "engine/partial_grads.h"

#include "optim/adamw.h"

// A run of gradients that lie one after another and meet in the same group.
typedef struct sums {
    cy_engine *engine;
    cy_group *group;      // of the run; NULL: none
    cy_owned_range range; // that the run lies in
    int64_t first, end;   // in the range
} sums;

static cy_group *group_of(const cy_engine *engine, const cy_param *param)
{
    const cy_engine_groups *groups = &engine->options.groups;
    switch (param->split) {
    case CY_SPLIT_KV_ROWS:
        return cy_group_size(groups->kv) > 1 ? groups->kv : NULL;
    case CY_SPLIT_NONE:
        if (cy_group_size(groups->tp) == 1) return NULL;
        if (param->role == CY_ROLE_Q_NORM || param->role == CY_ROLE_K_NORM) return groups->tp;
        return engine->context.tp.sequence ? groups->tp : NULL;
    case CY_SPLIT_ROWS:
    case CY_SPLIT_VOCAB:
    case CY_SPLIT_COLS:
        return NULL;
    }
    return NULL;
}

static cy_status finish_run(sums *run)
{
    if (run->group == NULL) return CY_OK;
    cy_group *group = run->group;
    run->group = NULL;
    return cy_group_all_reduce(group, &run->engine->queue,
        cy_view_cols(run->range.grad, run->first, run->end - run->first), CY_SUM);
}

// Stretches come in order, so neighbours such as K and V make one message.
static cy_status add_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    sums *run = context;
    cy_group *group = group_of(run->engine, param_range->tensor->param);
    const bool goes_on =
        run->group == group && run->range.first == range->first && run->end == param_range->at;
    if (!goes_on) {
        CY_TRY(finish_run(run));
        run->group = group;
        run->range = *range;
        run->first = param_range->at;
    }
    run->end = param_range->at + param_range->count;
    return CY_OK;
}

cy_status cy_engine_reduce_partial_grads(cy_engine *engine)
{
    sums run = {.engine = engine};
    if (cy_group_size(engine->options.groups.tp) == 1) return CY_OK;
    CY_TRY(cy_param_ranges_visit(&engine->storage, engine->reducer, add_param_range, &run));
    return finish_run(&run);
}
