#include "optim/rate.h"

#include "base/assert.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const kind_names[] = {
    [CY_RATE_CONSTANT] = "constant",
    [CY_RATE_LINEAR] = "linear",
    [CY_RATE_COSINE] = "cosine",
    [CY_RATE_WSD] = "wsd",
};

const char *cy_rate_kind_name(cy_rate_kind kind)
{
    return kind_names[kind];
}

bool cy_rate_kind_from_name(cy_rate_kind *kind, const char *name)
{
    for (int i = CY_RATE_CONSTANT; i <= CY_RATE_WSD; i++) {
        if (strcmp(kind_names[i], name) != 0) continue;
        *kind = (cy_rate_kind)i;
        return true;
    }
    return false;
}

// The step at which linear and cosine reach their end; 0 when nothing says it.
static int64_t decay_end(const cy_rate_spec *spec)
{
    return spec->decay_steps > 0 ? spec->decay_steps : spec->total_steps;
}

// How many steps the decay of wsd takes.
static int64_t decay_length(const cy_rate_spec *spec)
{
    if (spec->decay_steps > 0) return spec->decay_steps;
    return spec->total_steps / 10 + (spec->total_steps % 10 != 0);
}

static cy_status list_faults(cy_text *faults, const cy_rate_spec *spec)
{
    const double top = spec->learning_rate, least = spec->min_learning_rate;
    if (!isfinite(top) || top < 0) {
        CY_TRY(cy_text_add(faults, "\nlearning_rate is %g, must be 0 or more", top));
    }
    if (!isfinite(least) || least < 0 || least > top) {
        CY_TRY(cy_text_add(
            faults, "\nmin_learning_rate is %g, must be in 0..learning_rate (%g)", least, top));
    }
    if (spec->warmup_steps < 0 || spec->decay_steps < 0 || spec->total_steps < 0) {
        CY_TRY(cy_text_add(faults,
            "\nwarmup_steps %" PRId64 ", lr_decay_steps %" PRId64 ", total_train_steps %" PRId64
            ": none may be negative",
            spec->warmup_steps, spec->decay_steps, spec->total_steps));
        return CY_OK;
    }
    switch (spec->kind) {
    case CY_RATE_CONSTANT:
        break;
    case CY_RATE_LINEAR:
    case CY_RATE_COSINE:
        if (decay_end(spec) == 0) {
            CY_TRY(cy_text_add(faults,
                "\nlr_schedule %s needs an end: lr_decay_steps, "
                "total_train_steps or max_tokens",
                cy_rate_kind_name(spec->kind)));
        } else if (spec->decay_steps > 0 && spec->decay_steps < spec->warmup_steps) {
            CY_TRY(cy_text_add(faults,
                "\nlr_decay_steps is %" PRId64 ", before the end of warmup_steps (%" PRId64 ")",
                spec->decay_steps, spec->warmup_steps));
        }
        break;
    case CY_RATE_WSD:
        if (spec->total_steps == 0) {
            CY_TRY(cy_text_add(
                faults, "\nlr_schedule wsd needs an end: total_train_steps or max_tokens"));
        } else if (spec->decay_steps > spec->total_steps) {
            CY_TRY(cy_text_add(faults,
                "\nlr_decay_steps is %" PRId64 ", more than the %" PRId64 " steps of the run",
                spec->decay_steps, spec->total_steps));
        }
        break;
    }
    return CY_OK;
}

cy_status cy_rate_check(const cy_rate_spec *spec)
{
    cy_text faults = {0};
    cy_status status = list_faults(&faults, spec);
    if (status == CY_OK && faults.length > 0) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s", faults.bytes + 1);
    }
    cy_text_free(&faults);
    return status;
}

// cos(pi t) for 0 <= t <= 1: Taylor series over an eighth of a turn, below 1e-16 there. Our own,
// because the C library's last bit differs between machines.
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

// (n - first) / length as a fraction in [0, 1]; a decay of no length is over at once.
static double progress(int64_t step, int64_t first, int64_t length)
{
    if (step <= first) return 0;
    if (length <= 0 || step - first >= length) return 1;
    return (double)(step - first) / (double)length;
}

double cy_rate_at(const cy_rate_spec *spec, int64_t step)
{
    CY_ASSERT(step >= 1);
    const double top = spec->learning_rate, least = spec->min_learning_rate;
    const int64_t warmup = spec->warmup_steps;
    if (step <= warmup) return top * ((double)step / (double)warmup);

    double left = 1; // of the way from the least rate to the top
    switch (spec->kind) {
    case CY_RATE_CONSTANT:
        break;
    case CY_RATE_LINEAR:
        left = 1 - progress(step, warmup, decay_end(spec) - warmup);
        break;
    case CY_RATE_COSINE:
        left = 0.5 * (1 + cos_pi(progress(step, warmup, decay_end(spec) - warmup)));
        break;
    case CY_RATE_WSD:
        left = 1 - progress(step, spec->total_steps - decay_length(spec), decay_length(spec));
        break;
    }
    if (left >= 1) return top; // M + (L - M) need not round to L
    return least + (top - least) * left;
}
