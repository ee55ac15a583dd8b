// Computes the reference operators over flat ranges of parameters and gradients: norm, clipping,
// AdamW, random numbers, hashes, and the compression of gradients.

#include "kernel/ref/ref.h"

#include "base/random.h"
#include "base/status.h"

#include <string.h>

void cy_ref_sum_squares(cy_queue *queue, cy_view out, cy_view x)
{
    if (queue->dry) return;
    double sum = 0.0;
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t i = 0; i < x.cols; i++) {
            const double value = cy_ref_load(x, t, i);
            if (out.dtype == CY_FX64) {
                cy_ref_accumulate(queue, out, 0, 0, value * value);
            } else {
                sum += value * value;
            }
        }
    }
    if (out.dtype != CY_FX64) cy_ref_accumulate(queue, out, 0, 0, sum);
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

// ---- compression of gradients

// The order of magnitudes as one of integers: a NaN is above everything.
static uint64_t magnitude(cy_view view, int64_t i)
{
    const double value = cy_ref_load(view, 0, i);
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits & ~((uint64_t)1 << 63);
}

// The k-th largest magnitude, and how many are above it: found byte by byte from the top.
static uint64_t kth_magnitude(cy_view x, int64_t k, int64_t *above)
{
    uint64_t found = 0;
    *above = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        int64_t counts[256] = {0};
        for (int64_t i = 0; i < x.cols; i++) {
            const uint64_t bits = magnitude(x, i);
            const bool same_top = shift == 56 || bits >> (shift + 8) == found >> (shift + 8);
            if (same_top) counts[bits >> shift & 0xff]++;
        }
        int digit = 255;
        while (*above + counts[digit] < k)
            *above += counts[digit--];
        found |= (uint64_t)digit << shift;
    }
    return found;
}

void cy_ref_topk(cy_queue *queue, cy_view values, cy_view indices, cy_view residual, cy_view grad,
    cy_view sum_squares, double max_norm)
{
    if (queue->dry) return;
    const double scale = cy_ref_topk_scale(sum_squares, max_norm);
    for (int64_t i = 0; i < grad.cols; i++) {
        if (residual.dtype == CY_F32) {
            // Rounded as every table rounds: first the product, then the sum.
            const float added = (float)scale * *(const float *)cy_view_at(grad, 0, i);
            float *kept = cy_view_at(residual, 0, i);
            *kept = *kept + added;
        } else {
            const double added = scale * cy_ref_load(grad, 0, i);
            cy_ref_store(queue, residual, 0, i, cy_ref_load(residual, 0, i) + added);
        }
    }
    int64_t above;
    const uint64_t least = kth_magnitude(residual, values.cols, &above);
    int64_t ties = values.cols - above, at = 0;
    for (int64_t i = 0; i < residual.cols; i++) {
        const uint64_t bits = magnitude(residual, i);
        if (bits < least || (bits == least && ties-- <= 0)) continue;
        ((int32_t *)indices.data)[at] = (int32_t)i;
        cy_ref_store(queue, values, 0, at++, cy_ref_load(residual, 0, i));
        cy_ref_store(queue, residual, 0, i, 0.0);
    }
    CY_ASSERT(at == values.cols);
}

static float step_ahead(const cy_step_ahead_spec *spec, float residual, float v)
{
    const float below = (float)spec->root * sqrtf(v) + (float)spec->eps;
    const float step = (float)spec->scale * residual / below;
    return fminf(fmaxf(step, (float)-spec->most), (float)spec->most);
}

void cy_ref_step_ahead(cy_queue *queue, cy_view weight, cy_view master, cy_view residual, cy_view v,
    const cy_step_ahead_spec *spec)
{
    if (queue->dry) return;
    for (int64_t i = 0; i < master.cols; i++) {
        double ahead;
        if (master.dtype == CY_F32) {
            const float step =
                step_ahead(spec, ((const float *)residual.data)[i], ((const float *)v.data)[i]);
            const float moved = (float)spec->learning_rate * step;
            ahead = (double)(((const float *)master.data)[i] - moved);
        } else {
            const double below = spec->root * sqrt(cy_ref_load(v, 0, i)) + spec->eps;
            const double step = spec->scale * cy_ref_load(residual, 0, i) / below;
            const double most = fmin(fmax(step, -spec->most), spec->most);
            ahead = cy_ref_load(master, 0, i) - spec->learning_rate * most;
        }
        cy_ref_store(queue, weight, 0, i, ahead);
    }
}

void cy_ref_scatter_add(cy_queue *queue, cy_view y, cy_view indices, cy_view values)
{
    if (queue->dry) return;
    const int32_t *places = indices.data;
    for (int64_t i = 0; i < values.cols; i++) {
        const int64_t at = places[i];
        cy_ref_store(queue, y, 0, at, cy_ref_load(y, 0, at) + cy_ref_load(values, 0, i));
    }
}

// The largest magnitude of a block; NaN where one of its elements is not finite.
static double largest(cy_view x, int64_t first, int64_t end)
{
    double most = 0.0;
    for (int64_t i = first; i < end; i++) {
        const double value = fabs(cy_ref_load(x, 0, i));
        if (!isfinite(value)) return (double)NAN;
        if (value > most) most = value;
    }
    return most;
}

void cy_ref_quantize(cy_queue *queue, cy_view codes, cy_view scales, cy_view x)
{
    if (queue->dry) return;
    int8_t *code = codes.data;
    float *scale = scales.data;
    for (int64_t b = 0; b < scales.cols; b++) {
        const int64_t first = b * CY_QUANTIZE_BLOCK;
        const int64_t end = first + CY_QUANTIZE_BLOCK < x.cols ? first + CY_QUANTIZE_BLOCK : x.cols;
        scale[b] = (float)largest(x, first, end) / 127.0f;
        for (int64_t i = first; i < end; i++) {
            float units = 0.0f;
            if (scale[b] > 0.0f) units = rintf((float)cy_ref_load(x, 0, i) / scale[b]);
            code[i] = (int8_t)fminf(fmaxf(units, -127.0f), 127.0f);
        }
    }
}

void cy_ref_dequantize(cy_queue *queue, cy_view y, cy_view codes, cy_view scales, bool accumulate)
{
    if (queue->dry) return;
    const int8_t *code = codes.data;
    const float *scale = scales.data;
    for (int64_t i = 0; i < y.cols; i++) {
        const float value = scale[i / CY_QUANTIZE_BLOCK] * (float)code[i];
        if (y.dtype == CY_F32) {
            float *at = cy_view_at(y, 0, i);
            *at = accumulate ? *at + value : value;
        } else {
            const double before = accumulate ? cy_ref_load(y, 0, i) : 0.0;
            cy_ref_store(queue, y, 0, i, before + (double)value);
        }
    }
}
