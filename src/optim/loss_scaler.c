// Adapts the loss scale of fp16 training to overflows.

#include "optim/loss_scaler.h"

#include "base/status.h"

cy_loss_scaler_spec cy_loss_scaler_defaults(void)
{
    return (cy_loss_scaler_spec){
        .initial = 65536,
        .growth = 2,
        .backoff = 0.5,
        .growth_interval = 2000,
        .least = 1,
        .most = 16777216,
    };
}

cy_loss_scaler cy_loss_scaler_start(const cy_loss_scaler_spec *spec)
{
    CY_ASSERT(spec->least > 0 && spec->least <= spec->initial && spec->initial <= spec->most);
    CY_ASSERT(spec->growth > 1 && 0 < spec->backoff && spec->backoff < 1);
    CY_ASSERT(spec->growth_interval > 0);
    return (cy_loss_scaler){.scale = spec->initial};
}

static double within(double scale, const cy_loss_scaler_spec *spec)
{
    if (scale < spec->least) return spec->least;
    return scale > spec->most ? spec->most : scale;
}

static bool is_count(int64_t count)
{
    return 0 <= count && count <= (int64_t)1 << 48;
}

bool cy_loss_scaler_is_valid(const cy_loss_scaler *scaler, const cy_loss_scaler_spec *spec)
{
    return spec->least <= scaler->scale && scaler->scale <= spec->most &&
        is_count(scaler->clean_steps) && scaler->clean_steps < spec->growth_interval &&
        is_count(scaler->skipped_steps) && is_count(scaler->stuck_steps);
}

bool cy_loss_scaler_step(cy_loss_scaler *scaler, const cy_loss_scaler_spec *spec, bool overflow)
{
    if (overflow) {
        scaler->stuck_steps = scaler->scale <= spec->least ? scaler->stuck_steps + 1 : 0;
        scaler->scale = within(scaler->scale * spec->backoff, spec);
        scaler->clean_steps = 0;
        scaler->skipped_steps++;
        return false;
    }
    scaler->stuck_steps = 0;
    scaler->clean_steps++;
    if (scaler->clean_steps == spec->growth_interval) {
        scaler->scale = within(scaler->scale * spec->growth, spec);
        scaler->clean_steps = 0;
    }
    return true;
}
