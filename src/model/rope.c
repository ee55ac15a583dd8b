#include "model/rope.h"

#include "kernel/strict/math.h"

#include <math.h>

#define PI 3.14159265358979323846

// x^y for x > 0. Not the system's: a frequency is a weight that no training sees, and strict mode
// promises the same bits on every processor and with every mathematics library.
static double power(double x, double y)
{
    return cy_strict_exp(y * cy_strict_log(x));
}

static void plain(double *inv_freq, double theta, int64_t head_dim)
{
    for (int64_t i = 0; i < head_dim / 2; i++) {
        inv_freq[i] = power(theta, -2.0 * (double)i / (double)head_dim);
    }
}

// Wavelengths above the original length over low_freq_factor are stretched by the factor, those
// below the original length over high_freq_factor stay, and between them the two are mixed.
static void scale_llama3(double *inv_freq, const cy_rope_shape *rope, int64_t head_dim)
{
    const double length = (double)rope->original_length;
    const double long_wave = length / rope->low_freq_factor;
    const double short_wave = length / rope->high_freq_factor;
    for (int64_t i = 0; i < head_dim / 2; i++) {
        const double wave = 2.0 * PI / inv_freq[i];
        if (wave < short_wave) continue;
        const double stretched = inv_freq[i] / rope->factor;
        if (wave > long_wave) {
            inv_freq[i] = stretched;
            continue;
        }
        const double smooth = (length / wave - rope->low_freq_factor) /
            (rope->high_freq_factor - rope->low_freq_factor);
        inv_freq[i] = (1.0 - smooth) * stretched + smooth * inv_freq[i];
    }
}

// The pair whose wave turns `rotations` times within the original length.
static double yarn_pair(const cy_rope_shape *rope, int64_t head_dim, double rotations)
{
    return (double)head_dim *
        cy_strict_log((double)rope->original_length / (rotations * 2.0 * PI)) /
        (2.0 * cy_strict_log(rope->theta));
}

static double scale_yarn(double *inv_freq, const cy_rope_shape *rope, int64_t head_dim)
{
    const double last = (double)(head_dim - 1);
    const double low = fmax(floor(yarn_pair(rope, head_dim, rope->beta_fast)), 0.0);
    double high = fmin(ceil(yarn_pair(rope, head_dim, rope->beta_slow)), last);
    if (high <= low) high = low + 0.001; // a ramp of no width would divide by zero
    for (int64_t i = 0; i < head_dim / 2; i++) {
        const double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        inv_freq[i] = inv_freq[i] / rope->factor * ramp + inv_freq[i] * (1.0 - ramp);
    }
    if (rope->attention_factor > 0) return rope->attention_factor;
    return rope->factor > 1.0 ? 0.1 * cy_strict_log(rope->factor) + 1.0 : 1.0;
}

double cy_rope_frequencies(double *inv_freq, const cy_model_shape *shape, int64_t length)
{
    const cy_rope_shape *rope = &shape->rope;
    const int64_t head_dim = shape->head_dim;
    double theta = rope->theta;
    if (rope->scaling == CY_ROPE_DYNAMIC && length > rope->original_length) {
        const double grown =
            rope->factor * (double)length / (double)rope->original_length - (rope->factor - 1.0);
        theta *= power(grown, (double)head_dim / (double)(head_dim - 2));
    }
    plain(inv_freq, theta, head_dim);
    switch (rope->scaling) {
    case CY_ROPE_PLAIN:
    case CY_ROPE_DYNAMIC:
        return 1.0;
    case CY_ROPE_LINEAR:
        for (int64_t i = 0; i < head_dim / 2; i++)
            inv_freq[i] /= rope->factor;
        return 1.0;
    case CY_ROPE_LLAMA3:
        scale_llama3(inv_freq, rope, head_dim);
        return 1.0;
    case CY_ROPE_YARN:
        return scale_yarn(inv_freq, rope, head_dim);
    }
    return 1.0;
}
