// optim/loss_scaler.h: dynamic loss scaling, which keeps small fp16 gradients above zero.
//
// The loss is multiplied by `scale` before the backward pass, and the optimizer divides the
// gradients by it before clipping. A step whose gradients overflow is skipped and the scale halved;
// after `growth_interval` clean steps in a row it is doubled (Micikevicius et al., "Mixed precision
// training", 2018).
//
// The state is plain data without pointers: checkpoints save and restore it as it is. *All* ranks,
// of every axis, must agree on whether a step overflowed; then their states stay equal. No function
// fails. One thread at a time changes a state.

#ifndef CY_OPTIM_LOSS_SCALER_H
#define CY_OPTIM_LOSS_SCALER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cy_loss_scaler_spec {
    double initial; // powers of two, so that scaling rounds nothing
    double growth;
    double backoff;
    int64_t growth_interval; // clean steps in a row
    double least, most;      // limits of the scale
} cy_loss_scaler_spec;

typedef struct cy_loss_scaler {
    double scale;
    int64_t clean_steps;   // in a row, since the last change of the scale
    int64_t skipped_steps; // of the whole run
    int64_t stuck_steps;   // overflows in a row while the scale was at its lower limit
} cy_loss_scaler;

// 65536, doubled after 2000 clean steps, halved on overflow, between 1 and 2^24.
cy_loss_scaler_spec cy_loss_scaler_defaults(void);

cy_loss_scaler cy_loss_scaler_start(const cy_loss_scaler_spec *spec);

// Whether a sequence of steps can lead to a state that was read from a file.
bool cy_loss_scaler_is_valid(const cy_loss_scaler *scaler, const cy_loss_scaler_spec *spec);

// Records a step. Returns true if its update must be applied, false if it must be skipped.
bool cy_loss_scaler_step(cy_loss_scaler *scaler, const cy_loss_scaler_spec *spec, bool overflow);

#endif
