// Updates the parameters that a rank owns: their ranges, the global norm of the gradients,
// clipping, AdamW.

#include "optim/adamw.h"

#include "kernel/strict/strict.h"

// ---- parameter ranges

static int64_t start_of(const cy_storage *storage, const cy_tensor *tensor)
{
    return cy_storage_part_of(storage, tensor)->first + tensor->offset;
}

static int64_t end_of(const cy_storage *storage, const cy_tensor *tensor)
{
    return start_of(storage, tensor) + tensor->slice.rows * tensor->slice.cols;
}

// The first tensor of a group that ends after an element. Tensors are in the order of the flat
// range.
static int first_behind(const cy_storage *storage, const cy_param_group *group, int64_t place)
{
    int low = group->tensor_first, high = group->tensor_first + group->tensor_count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (end_of(storage, &storage->tensors[middle]) <= place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static cy_status visit_owned(const cy_storage *storage, const cy_param_group *group,
    const cy_owned_range *range, cy_param_range_visit visit, void *context)
{
    const int64_t range_end = range->first + range->count;
    const int tensor_end = group->tensor_first + group->tensor_count;
    for (int t = first_behind(storage, group, range->first); t < tensor_end; t++) {
        const cy_tensor *tensor = &storage->tensors[t];
        const int64_t start = start_of(storage, tensor), end = end_of(storage, tensor);
        if (start >= range_end) break;
        const int64_t from = start > range->first ? start : range->first;
        const int64_t to = end < range_end ? end : range_end;
        if (from >= to) continue; // the tensor has no elements
        const cy_param_range param_range = {
            .tensor = tensor,
            .first = from - start,
            .count = to - from,
            .at = from - range->first,
        };
        CY_TRY(visit(context, range, &param_range));
    }
    return CY_OK;
}

cy_status cy_param_ranges_visit(
    const cy_storage *storage, cy_param_range_visit visit, void *context)
{
    for (int g = 0; g < storage->group_count; g++) {
        const cy_param_group *group = &storage->groups[g];
        for (int i = 0; i < cy_reducer_owned_count(group->reducer); i++) {
            const cy_owned_range range = cy_reducer_owned(group->reducer, i);
            CY_TRY(visit_owned(storage, group, &range, visit, context));
        }
    }
    return CY_OK;
}

cy_view cy_param_range_grad(
    const cy_storage *storage, const cy_owned_range *range, const cy_param_range *param_range)
{
    const cy_view grad = cy_view_cols(range->grad, param_range->at, param_range->count);
    if (storage->sums == NULL) return grad;
    return cy_fixed_view(cy_sums_gradient(storage->sums, param_range->tensor->param), grad);
}

bool cy_param_range_next(const cy_param_range *param_range, int64_t *done, cy_param_block *part)
{
    const int64_t left = param_range->count - *done;
    if (left == 0) return false;
    const cy_slice *slice = &param_range->tensor->slice;
    const int64_t row = (param_range->first + *done) / slice->cols;
    const int64_t col = (param_range->first + *done) % slice->cols;
    const int64_t to_row_end = slice->cols - col;
    *part = (cy_param_block){
        .at = *done,
        .rows = 1,
        .cols = to_row_end < left ? to_row_end : left,
        .global_first =
            (slice->row_first + row) * param_range->tensor->param->cols + slice->col_first + col,
    };
    if (col == 0 && left >= slice->cols) part->rows = left / slice->cols;
    *done += part->rows * part->cols;
    return true;
}

// ---- the step

void cy_optimizer_alloc(cy_optimizer *update, cy_arena *run)
{
    const bool fixed = update->storage->sums != NULL;
    const cy_view squares = cy_view_alloc(
        run, fixed ? CY_FX64 : CY_F64, update->set_count, fixed ? CY_STRICT_SQUARE_CELLS : 1);
    update->cells = (cy_optimizer_scalars){
        .sum_squares = cy_view_rows(squares, 0, 1),
        .set_squares = squares,
        .norm = cy_view_alloc(run, CY_F64, 1, 1),
        .scale = cy_view_alloc(run, CY_F64, 1, 1),
    };
}

static cy_status add_squares(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    const cy_optimizer *update = context;
    const cy_tensor *tensor = param_range->tensor;
    if (tensor->slice.copy_index != 0) return CY_OK;
    const int set = update->storage->groups[tensor->group].set;
    cy_sum_squares(update->queue, cy_view_rows(update->cells.set_squares, set, 1),
        cy_param_range_grad(update->storage, range, param_range));
    return CY_OK;
}

cy_status cy_optimizer_grad_norm(cy_optimizer *update, double divisor)
{
    cy_optimizer_scalars *cells = &update->cells;
    if (update->storage->sums != NULL) {
        cells->sum_squares.exponent = update->storage->sums->square_exponent;
        cells->set_squares.exponent = cells->sum_squares.exponent;
    }
    cy_fill(update->queue, cells->set_squares, 0.0);
    CY_TRY(cy_param_ranges_visit(update->storage, add_squares, update));
    for (int set = 0; set < update->set_count; set++) {
        const cy_view squares = cy_view_rows(cells->set_squares, set, 1);
        CY_TRY(cy_group_all_reduce(update->sets[set].norm, update->queue, squares, CY_SUM));
        if (set > 0) cy_add(update->queue, cells->sum_squares, cells->sum_squares, squares);
    }
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
        spec.freeze.steps = 0; // vectors are never compressed
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
    return cy_param_ranges_visit(update->storage, update_param_range, &pass);
}
