#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

void cy_ref_swiglu_forward(cy_queue *queue, cy_view y, cy_view gate_up)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            const double gate = cy_ref_load(gate_up, t, i);
            const double up = cy_ref_load(gate_up, t, y.cols + i);
            cy_ref_store(queue, y, t, i, gate * sigmoid(gate) * up);
        }
    }
}

void cy_ref_swiglu_backward(
    cy_queue *queue, cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < dy.rows; t++) {
        for (int64_t i = 0; i < dy.cols; i++) {
            // Read both before writing either: the gradient may take their place.
            const double gate = cy_ref_load(gate_up, t, i);
            const double up = cy_ref_load(gate_up, t, dy.cols + i);
            const double d = cy_ref_load(dy, t, i);
            const double s = sigmoid(gate);
            if (!cy_view_is_none(y)) cy_ref_store(queue, y, t, i, gate * s * up);
            cy_ref_store(queue, d_gate_up, t, i, d * up * s * (1.0 + gate * (1.0 - s)));
            cy_ref_store(queue, d_gate_up, t, dy.cols + i, d * gate * s);
        }
    }
}
