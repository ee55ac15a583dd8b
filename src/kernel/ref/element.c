#include "kernel/ref/element.h"

#include "base/assert.h"
#include "kernel/ref/ref.h"

// An element in the units of a fixed-point view: taken over as it is from one with the same unit.
static int64_t in_units(cy_queue *queue, cy_view of, int64_t row, int64_t col, int exponent)
{
    if (of.dtype == CY_FX64) {
        CY_ASSERT(of.exponent == exponent);
        return ((const int64_t *)of.data)[row * of.stride + col];
    }
    return cy_ref_to_fixed(queue, cy_ref_load(of, row, col), exponent);
}

static void store_units(cy_view y, int64_t row, int64_t col, int64_t units)
{
    ((int64_t *)y.data)[row * y.stride + col] = units;
}

void cy_ref_fill(cy_queue *queue, cy_view y, double value)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++)
            cy_ref_store(queue, y, t, i, value);
    }
}

void cy_ref_copy(cy_queue *queue, cy_view y, cy_view x)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            if (y.dtype == CY_FX64) {
                store_units(y, t, i, in_units(queue, x, t, i, y.exponent));
            } else {
                cy_ref_store(queue, y, t, i, cy_ref_load(x, t, i));
            }
        }
    }
}

void cy_ref_add_views(cy_queue *queue, cy_view y, cy_view a, cy_view b)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            if (y.dtype == CY_FX64) {
                const int64_t left = in_units(queue, a, t, i, y.exponent);
                const int64_t right = in_units(queue, b, t, i, y.exponent);
                store_units(y, t, i, cy_ref_fixed_sum(queue, left, right));
            } else {
                cy_ref_store(queue, y, t, i, cy_ref_load(a, t, i) + cy_ref_load(b, t, i));
            }
        }
    }
}

void cy_ref_add_bias(cy_queue *queue, cy_view y, cy_view bias)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            cy_ref_add(queue, y, t, i, cy_ref_load(bias, 0, i));
        }
    }
}

void cy_ref_sum_rows(cy_queue *queue, cy_view sum, cy_view x)
{
    if (queue->dry) return;
    for (int64_t i = 0; i < x.cols; i++) {
        if (sum.dtype == CY_FX64) {
            int64_t units = in_units(queue, sum, 0, i, sum.exponent);
            for (int64_t t = 0; t < x.rows; t++) {
                units = cy_ref_fixed_sum(queue, units, in_units(queue, x, t, i, sum.exponent));
            }
            store_units(sum, 0, i, units);
        } else {
            double total = 0.0;
            for (int64_t t = 0; t < x.rows; t++)
                total += cy_ref_load(x, t, i);
            cy_ref_add(queue, sum, 0, i, total);
        }
    }
}
