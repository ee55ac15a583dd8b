#include "base/random.h"
#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

#include <string.h>

void cy_ref_sum_squares(cy_queue *queue, cy_view out, cy_view x)
{
    if (queue->dry) return;
    double sum = 0.0;
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t i = 0; i < x.cols; i++) {
            const double value = cy_ref_load(x, t, i);
            if (out.dtype == CY_FX64) {
                cy_ref_add(queue, out, 0, 0, value * value);
            } else {
                sum += value * value;
            }
        }
    }
    if (out.dtype != CY_FX64) cy_ref_add(queue, out, 0, 0, sum);
}

void cy_ref_clip_scale(cy_queue *queue, cy_view scale, cy_view norm, cy_view sum_squares,
    double divisor, double max_norm)
{
    if (queue->dry) return;
    const double length = sqrt(cy_ref_load(sum_squares, 0, 0)) / divisor;
    double factor = 1.0 / divisor;
    if (!isfinite(length)) {
        factor = (double)NAN;
    } else if (max_norm > 0.0 && length > max_norm) {
        factor *= max_norm / length;
    }
    cy_ref_store(queue, norm, 0, 0, length);
    cy_ref_store(queue, scale, 0, 0, factor);
}

void cy_ref_adamw(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, cy_view scale, const cy_adamw_spec *spec)
{
    if (queue->dry) return;
    const double factor = cy_ref_load(scale, 0, 0);
    if (!isfinite(factor)) return;
    const double correction1 = 1.0 - pow(spec->beta1, (double)spec->step);
    const cy_adamw_second_moment of_second = cy_adamw_second_moment_of(spec);
    const double beta2 = of_second.beta2;
    const double correction2 = 1.0 - pow(spec->beta2, (double)of_second.steps);
    for (int64_t i = 0; i < master.cols; i++) {
        const double g = factor * cy_ref_load(grad, 0, i);
        const double first = spec->beta1 * cy_ref_load(m, 0, i) + (1.0 - spec->beta1) * g;
        const double least = of_second.share * g * of_second.share * g;
        const double second = fmax(beta2 * cy_ref_load(v, 0, i) + (1.0 - beta2) * g * g, least);
        const double step = first / correction1 / (sqrt(second / correction2) + spec->eps);
        const double kept =
            cy_ref_load(master, 0, i) * (1.0 - spec->learning_rate * spec->weight_decay);
        cy_ref_store(queue, m, 0, i, first);
        cy_ref_store(queue, v, 0, i, second);
        cy_ref_store(queue, master, 0, i, kept - spec->learning_rate * step);
        if (!cy_view_is_none(weight)) {
            cy_ref_store(queue, weight, 0, i, cy_ref_load(master, 0, i)); // of what is kept
        }
    }
}

#define BATCH 256

void cy_ref_random_fill(
    cy_queue *queue, cy_view x, uint64_t key, uint64_t first, int64_t global_cols, double std)
{
    if (queue->dry) return;
    float normal[BATCH];
    for (int64_t row = 0; row < x.rows; row++) {
        const uint64_t start = first + (uint64_t)(row * global_cols);
        for (int64_t col = 0; col < x.cols; col += BATCH) {
            const int64_t count = x.cols - col < BATCH ? x.cols - col : BATCH;
            cy_random_normal(normal, key, start + (uint64_t)col, count);
            for (int64_t i = 0; i < count; i++) {
                cy_ref_store(queue, x, row, col + i, std * (double)normal[i]);
            }
        }
    }
}

void cy_ref_hash(
    cy_queue *queue, cy_view hash, cy_view x, uint64_t key, uint64_t first, int64_t global_cols)
{
    if (queue->dry) return;
    uint64_t sum = 0;
    for (int64_t row = 0; row < x.rows; row++) {
        for (int64_t col = 0; col < x.cols; col++) {
            const double value = cy_ref_load(x, row, col);
            uint64_t bits;
            memcpy(&bits, &value, sizeof(bits));
            const uint64_t index = first + (uint64_t)(row * global_cols + col);
            sum += cy_random_key_at(cy_random_key_at(key, index), bits);
        }
    }
    *(uint64_t *)hash.data += sum;
}
