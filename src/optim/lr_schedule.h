// optim/lr_schedule.h: the learning rate of a step.
//
// A pure function of (spec, step) without state: a resumed run has the same value at every step as
// one that was not interrupted, and every rank computes it by itself. It uses IEEE basic operations
// only, so the bits are the same on every machine. Any thread may call it.
//
// Step n counts from 1, W is warmup_steps, L the learning rate, M the smallest one.
//   warm-up     n <= W:  L n / W, so that step W is the first at full rate
//   constant    L
//   linear      M + (L - M) (1 - t),               t = (n - W) / (D - W), at most 1, and
//   cosine      M + (L - M) (1 + cos(pi t)) / 2,   D = decay_steps: the step that is at M
//   wsd         L up to step T - C, then M + (L - M) (1 - (n - (T - C)) / C), T = total_steps and
//               C = decay_steps: the length of the decay at the end ("warm-up, stable, decay", Hu
//               et al., "MiniCPM", 2024)
// After its end a schedule stays at M. Without decay_steps, D is T, and C is a tenth of T, rounded
// up.

#ifndef CY_OPTIM_LR_SCHEDULE_H
#define CY_OPTIM_LR_SCHEDULE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum cy_lr_schedule_kind {
    CY_LR_CONSTANT,
    CY_LR_LINEAR,
    CY_LR_COSINE,
    CY_LR_WSD,
    CY_LR_SCHEDULES,
} cy_lr_schedule_kind;

typedef struct cy_lr_schedule {
    cy_lr_schedule_kind kind;
    double learning_rate;
    double min_learning_rate;
    int64_t warmup_steps;
    int64_t decay_steps; // lr_decay_steps; 0: from total_steps
    int64_t total_steps; // last step of the run, by the first of its two limits; 0: unknown
} cy_lr_schedule;

// The learning rate of step `step` >= 1. The spec must be one that cy_config_check accepts.
double cy_lr_at(const cy_lr_schedule *spec, int64_t step);

#endif
