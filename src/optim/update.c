#include "optim/update.h"

#include "kernel/strict/strict.h"
#include "optim/owned.h"

void cy_update_take(cy_update *update, cy_arena *run)
{
    const bool fixed = update->storage->sums != NULL;
    update->cells = (cy_update_cells){
        .sum_squares = fixed ? cy_view_take(run, CY_FX64, 1, CY_STRICT_SQUARE_CELLS)
                             : cy_view_take(run, CY_F64, 1, 1),
        .norm = cy_view_take(run, CY_F64, 1, 1),
        .scale = cy_view_take(run, CY_F64, 1, 1),
    };
}

static cy_status add_squares(void *context, const cy_owned_range *range, const cy_stretch *stretch)
{
    const cy_update *update = context;
    if (stretch->tensor->slice.copy_index != 0) return CY_OK;
    cy_sum_squares(
        update->queue, update->cells.sum_squares, cy_stretch_grad(update->storage, range, stretch));
    return CY_OK;
}

cy_status cy_update_norm(cy_update *update, double divisor)
{
    cy_update_cells *cells = &update->cells;
    if (update->storage->sums != NULL) {
        cells->sum_squares.exponent = update->storage->sums->square_exponent;
    }
    cy_fill(update->queue, cells->sum_squares, 0.0);
    CY_TRY(cy_owned_visit(update->storage, update->reducer, add_squares, update));
    CY_TRY(cy_group_all_reduce(update->norm_group, update->queue, cells->sum_squares, CY_SUM));
    cy_clip_scale(
        update->queue, cells->scale, cells->norm, cells->sum_squares, divisor, update->max_norm);
    return CY_OK;
}

typedef struct adamw_pass {
    const cy_update *update;
    const cy_adamw_spec *spec;
} adamw_pass;

static cy_status update_stretch(
    void *context, const cy_owned_range *range, const cy_stretch *stretch)
{
    const adamw_pass *pass = context;
    cy_adamw_spec spec = *pass->spec;
    if (!stretch->tensor->param->decay) spec.weight_decay = 0.0;
    cy_view weight = range->weight;
    if (!cy_view_is_none(weight)) weight = cy_view_cols(weight, stretch->at, stretch->count);
    if (stretch->tensor->param->dimensions == 1) spec.freeze.steps = 0; // is never sent in parts
    cy_adamw(pass->update->queue, weight, cy_view_cols(range->master, stretch->at, stretch->count),
        cy_view_cols(range->m, stretch->at, stretch->count),
        cy_view_cols(range->v, stretch->at, stretch->count),
        cy_stretch_grad(pass->update->storage, range, stretch), pass->update->cells.scale, &spec);
    return CY_OK;
}

cy_status cy_update_apply(cy_update *update, const cy_adamw_spec *spec)
{
    adamw_pass pass = {.update = update, .spec = spec};
    return cy_owned_visit(update->storage, update->reducer, update_stretch, &pass);
}
