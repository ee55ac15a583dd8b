// Computes the learning rate of a step.

#include "optim/lr_schedule.h"

#include "base/status.h"

#include <math.h>

// The step at which linear and cosine end; 0 if unknown.
static int64_t decay_end(const cy_lr_schedule *spec)
{
    return spec->decay_steps > 0 ? spec->decay_steps : spec->total_steps;
}

// The number of steps of the decay of wsd.
static int64_t decay_length(const cy_lr_schedule *spec)
{
    if (spec->decay_steps > 0) return spec->decay_steps;
    return spec->total_steps / 10 + (spec->total_steps % 10 != 0);
}

// cos(pi t) for 0 <= t <= 1, by a Taylor series over an eighth of a turn with an error below 1e-16.
// The last bit of the C library's cos differs between machines.
static double cos_pi(double t)
{
    const double pi = 3.14159265358979323846;
    if (t > 0.5) return -cos_pi(1.0 - t);
    const bool as_sine = t > 0.25; // cos(pi t) = sin(pi (1/2 - t))
    const double x = pi * (as_sine ? 0.5 - t : t);
    const double square = x * x;
    double term = as_sine ? x : 1.0;
    double sum = term;
    for (int n = as_sine ? 2 : 1; n < 20; n += 2) {
        term *= -square / (n * (n + 1.0));
        sum += term;
    }
    return sum;
}

// (n - first) / length, limited to [0, 1]; 1 after a decay of length 0.
static double progress(int64_t step, int64_t first, int64_t length)
{
    if (step <= first) return 0;
    if (step - first >= length) return 1;
    return (double)(step - first) / (double)length;
}

double cy_lr_at(const cy_lr_schedule *spec, int64_t step)
{
    CY_ASSERT(step >= 1);
    const double top = spec->learning_rate, least = spec->min_learning_rate;
    const int64_t warmup = spec->warmup_steps;
    if (step <= warmup) return top * ((double)step / (double)warmup);

    double left = 1; // the part of the difference between both rates that is left
    switch (spec->kind) {
    case CY_LR_CONSTANT:
        break;
    case CY_LR_LINEAR:
        left = 1 - progress(step, warmup, decay_end(spec) - warmup);
        break;
    case CY_LR_COSINE:
        left = 0.5 * (1 + cos_pi(progress(step, warmup, decay_end(spec) - warmup)));
        break;
    case CY_LR_WSD:
        left = 1 - progress(step, spec->total_steps - decay_length(spec), decay_length(spec));
        break;
    case CY_LR_SCHEDULES:
        CY_ASSERT(false);
        break;
    }
    if (left >= 1) return top; // M + (L - M) need not round to L
    return least + (top - least) * left;
}
