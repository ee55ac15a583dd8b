// The operators that make gradients small: what kernel.h promises of them, checked.

#include "base/assert.h"
#include "kernel/call.h"
#include "kernel/check.h"
#include "kernel/cost.h"

static bool is_row(cy_view view, cy_dtype dtype, int64_t cols)
{
    return view.data != NULL && view.dtype == dtype && view.rows == 1 && view.cols == cols;
}

void cy_topk(
    cy_queue *queue, cy_view values, cy_view indices, cy_view residual, cy_view grad, double scale)
{
    CY_ASSERT(is_wide(grad) && is_row(grad, grad.dtype, grad.cols) && grad.cols <= INT32_MAX);
    CY_ASSERT(is_row(residual, grad.dtype, grad.cols) && residual.data != grad.data);
    CY_ASSERT(is_row(values, grad.dtype, values.cols) && is_row(indices, CY_I32, values.cols));
    CY_ASSERT(1 <= values.cols && values.cols <= grad.cols);
    CY_CALL(queue, topk, cy_cost_topk(values, indices, residual, grad), values, indices, residual,
        grad, scale);
}

void cy_scatter_add(cy_queue *queue, cy_view y, cy_view indices, cy_view values)
{
    CY_ASSERT(is_wide(y) && is_row(y, y.dtype, y.cols) && is_row(values, y.dtype, values.cols));
    CY_ASSERT(is_row(indices, CY_I32, values.cols) && values.cols <= y.cols);
    CY_CALL(queue, scatter_add, cy_cost_scatter_add(y, indices, values), y, indices, values);
}

void cy_step_ahead(cy_queue *queue, cy_view weight, cy_view master, cy_view residual, cy_view v,
    const cy_step_ahead_spec *spec)
{
    CY_ASSERT(is_wide(master) && is_row(master, master.dtype, master.cols));
    CY_ASSERT(is_row(weight, weight.dtype, master.cols) && weight.data != master.data);
    CY_ASSERT(is_row(residual, master.dtype, master.cols) && is_row(v, master.dtype, master.cols));
    CY_CALL(queue, step_ahead, cy_cost_step_ahead(weight, master, residual, v), weight, master,
        residual, v, spec);
}

static bool has_codes(cy_view codes, cy_view scales, cy_view x)
{
    const int64_t blocks = (x.cols + CY_QUANTIZE_BLOCK - 1) / CY_QUANTIZE_BLOCK;
    return is_wide(x) && is_row(x, x.dtype, x.cols) && is_row(codes, CY_U8, x.cols) &&
        is_row(scales, CY_F32, blocks);
}

void cy_quantize(cy_queue *queue, cy_view codes, cy_view scales, cy_view x)
{
    CY_ASSERT(has_codes(codes, scales, x));
    CY_CALL(queue, quantize, cy_cost_quantize(codes, scales, x), codes, scales, x);
}

void cy_dequantize(cy_queue *queue, cy_view y, cy_view codes, cy_view scales, bool accumulate)
{
    CY_ASSERT(has_codes(codes, scales, y));
    CY_CALL(queue, dequantize, cy_cost_dequantize(y, codes, scales, accumulate), y, codes, scales,
        accumulate);
}
