// Updates the parameters that a rank owns: their ranges, the global norm of the gradients,
// clipping, AdamW.

#include "optim/adamw.h"

#include "kernel/strict/strict.h"

// ---- parameter ranges

cy_status cy_owned_visit(
    const cy_storage *storage, const cy_reducer *reducer, cy_stretch_visit visit, void *context)
{
    for (int i = 0; i < cy_reducer_owned_count(reducer); i++) {
        const cy_owned_range range = cy_reducer_owned(reducer, i);
        for (int t = 0; t < storage->tensor_count; t++) {
            const cy_tensor *tensor = &storage->tensors[t];
            const int64_t start = storage->units[tensor->unit].first + tensor->offset;
            const int64_t end = start + tensor->slice.rows * tensor->slice.cols;
            const int64_t from = start > range.first ? start : range.first;
            const int64_t to = end < range.first + range.count ? end : range.first + range.count;
            if (from >= to) continue;
            const cy_stretch stretch = {
                .tensor = tensor,
                .first = from - start,
                .count = to - from,
                .at = from - range.first,
            };
            CY_TRY(visit(context, &range, &stretch));
        }
    }
    return CY_OK;
}

cy_view cy_stretch_grad(
    const cy_storage *storage, const cy_owned_range *range, const cy_stretch *stretch)
{
    const cy_view grad = cy_view_cols(range->grad, stretch->at, stretch->count);
    if (storage->sums == NULL) return grad;
    return cy_fixed_view(cy_sums_gradient(storage->sums, stretch->tensor->param), grad);
}

bool cy_stretch_next(const cy_stretch *stretch, int64_t *done, cy_owned_part *part)
{
    const int64_t left = stretch->count - *done;
    if (left == 0) return false;
    const cy_slice *slice = &stretch->tensor->slice;
    const int64_t row = (stretch->first + *done) / slice->cols;
    const int64_t col = (stretch->first + *done) % slice->cols;
    const int64_t to_row_end = slice->cols - col;
    *part = (cy_owned_part){
        .at = *done,
        .rows = 1,
        .cols = to_row_end < left ? to_row_end : left,
        .global_first =
            (slice->row_first + row) * stretch->tensor->param->cols + slice->col_first + col,
    };
    if (col == 0 && left >= slice->cols) part->rows = left / slice->cols;
    *done += part->rows * part->cols;
    return true;
}

// ---- the step

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
    if (stretch->tensor->param->dimensions == 1) spec.v_steps = 0; // is never compressed
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
