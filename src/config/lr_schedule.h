// config/lr_schedule.h: what a configuration says about its learning rate, in the optimizer's
// words.
//
// A pure function of the configuration; any thread may call it.

#ifndef CY_CONFIG_LR_SCHEDULE_H
#define CY_CONFIG_LR_SCHEDULE_H

#include "optim/lr_schedule.h"
#include "config/config.h"

// The learning-rate schedule that is asked for, of a run that ends at `last_step`.
cy_lr_schedule cy_config_lr_schedule(const cy_config *config, int64_t last_step);

#endif
