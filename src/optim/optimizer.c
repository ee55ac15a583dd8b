#include "optim/optimizer.h"

#include "kernel/strict/strict.h"
#include "optim/param_ranges.h"

void cy_optimizer_alloc(cy_optimizer *update, cy_arena *run)
{
    const bool fixed = update->storage->sums != NULL;
    update->cells = (cy_optimizer_scalars){
        .sum_squares = fixed ? cy_view_alloc(run, CY_FX64, 1, CY_STRICT_SQUARE_CELLS)
                             : cy_view_alloc(run, CY_F64, 1, 1),
        .norm = cy_view_alloc(run, CY_F64, 1, 1),
        .scale = cy_view_alloc(run, CY_F64, 1, 1),
    };
}

static cy_status add_squares(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    const cy_optimizer *update = context;
    if (param_range->tensor->slice.copy_index != 0) return CY_OK;
    cy_sum_squares(update->queue, update->cells.sum_squares,
        cy_param_range_grad(update->storage, range, param_range));
    return CY_OK;
}

cy_status cy_optimizer_grad_norm(cy_optimizer *update, double divisor)
{
    cy_optimizer_scalars *cells = &update->cells;
    if (update->storage->sums != NULL) {
        cells->sum_squares.exponent = update->storage->sums->square_exponent;
    }
    cy_fill(update->queue, cells->sum_squares, 0.0);
    CY_TRY(cy_param_ranges_visit(update->storage, update->reducer, add_squares, update));
    CY_TRY(cy_group_all_reduce(update->norm_group, update->queue, cells->sum_squares, CY_SUM));
    cy_clip_scale(
        update->queue, cells->scale, cells->norm, cells->sum_squares, divisor, update->max_norm);
    return CY_OK;
}

typedef struct adamw_pass {
    const cy_optimizer *update;
    const cy_adamw_spec *spec;
} adamw_pass;

static cy_status update_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    const adamw_pass *pass = context;
    cy_adamw_spec spec = *pass->spec;
    if (!param_range->tensor->param->decay) spec.weight_decay = 0.0;
    cy_view weight = range->weight;
    if (!cy_view_is_none(weight))
        weight = cy_view_cols(weight, param_range->at, param_range->count);
    if (param_range->tensor->param->dimensions == 1)
        spec.freeze.steps = 0; // is never sent in parts
    cy_adamw(pass->update->queue, weight,
        cy_view_cols(range->master, param_range->at, param_range->count),
        cy_view_cols(range->m, param_range->at, param_range->count),
        cy_view_cols(range->v, param_range->at, param_range->count),
        cy_param_range_grad(pass->update->storage, range, param_range), pass->update->cells.scale,
        &spec);
    return CY_OK;
}

cy_status cy_optimizer_step(cy_optimizer *update, const cy_adamw_spec *spec)
{
    adamw_pass pass = {.update = update, .spec = spec};
    return cy_param_ranges_visit(update->storage, update->reducer, update_param_range, &pass);
}
