#include "optim/param_ranges.h"

cy_status cy_param_ranges_visit(
    const cy_storage *storage, const cy_reducer *reducer, cy_param_range_visit visit, void *context)
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
            const cy_param_range param_range = {
                .tensor = tensor,
                .first = from - start,
                .count = to - from,
                .at = from - range.first,
            };
            CY_TRY(visit(context, &range, &param_range));
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
