#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

void cy_ref_norm_forward(cy_queue *queue, cy_view y, cy_view inv_rms, cy_view x, cy_view branch,
    cy_view weight, double eps)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < x.rows; t++) {
        // The statistics are those of x as it is stored: the backward pass reads no other.
        double squares = 0.0;
        for (int64_t i = 0; i < x.cols; i++) {
            if (!cy_view_is_none(branch)) cy_ref_add(queue, x, t, i, cy_ref_load(branch, t, i));
            const double value = cy_ref_load(x, t, i);
            squares += value * value;
        }
        cy_ref_store(queue, inv_rms, 0, t, 1.0 / sqrt(squares / (double)x.cols + eps));
    }
    cy_ref_norm_apply(queue, y, x, inv_rms, weight);
}

void cy_ref_norm_apply(cy_queue *queue, cy_view y, cy_view x, cy_view inv_rms, cy_view weight)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < x.rows; t++) {
        const double inv = cy_ref_load(inv_rms, 0, t);
        for (int64_t i = 0; i < x.cols; i++) {
            const double value = cy_ref_load(x, t, i) * inv * cy_ref_load(weight, 0, i);
            cy_ref_store(queue, y, t, i, value);
        }
    }
}

// With r = inv_rms and g = dy * weight: dx = r g - x r^3 mean(g x), dweight = sum over t of dy x r.
static void norm_backward_x(
    cy_queue *queue, cy_view dx, cy_view dy, cy_view x, cy_view inv_rms, cy_view weight)
{
    for (int64_t t = 0; t < x.rows; t++) {
        const double r = cy_ref_load(inv_rms, 0, t);
        double dot = 0.0;
        for (int64_t i = 0; i < x.cols; i++) {
            dot += cy_ref_load(dy, t, i) * cy_ref_load(weight, 0, i) * cy_ref_load(x, t, i);
        }
        const double pull = r * r * r * dot / (double)x.cols;
        for (int64_t i = 0; i < x.cols; i++) {
            const double g = cy_ref_load(dy, t, i) * cy_ref_load(weight, 0, i);
            cy_ref_add(queue, dx, t, i, r * g - pull * cy_ref_load(x, t, i));
        }
    }
}

static void norm_backward_weight(
    cy_queue *queue, cy_view dweight, cy_view dy, cy_view x, cy_view inv_rms)
{
    const bool fixed = dweight.dtype == CY_FX64;
    for (int64_t i = 0; i < x.cols; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < x.rows; t++) {
            const double part =
                cy_ref_load(dy, t, i) * cy_ref_load(x, t, i) * cy_ref_load(inv_rms, 0, t);
            if (fixed) {
                cy_ref_add(queue, dweight, 0, i, part);
            } else {
                sum += part;
            }
        }
        if (!fixed) cy_ref_add(queue, dweight, 0, i, sum);
    }
}

void cy_ref_norm_backward(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy, cy_view x,
    cy_view inv_rms, cy_view weight)
{
    if (queue->dry) return;
    if (!cy_view_is_none(dx)) norm_backward_x(queue, dx, dy, x, inv_rms, weight);
    if (!cy_view_is_none(dweight)) norm_backward_weight(queue, dweight, dy, x, inv_rms);
}
