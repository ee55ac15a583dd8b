#include "config/lr_schedule.h"

cy_lr_schedule cy_config_lr_schedule(const cy_config *config, int64_t last_step)
{
    const cy_config_training *training = &config->training;
    return (cy_lr_schedule){
        .kind = training->lr_schedule,
        .learning_rate = training->learning_rate,
        .min_learning_rate = training->min_learning_rate,
        .warmup_steps = training->warmup_steps,
        .decay_steps = training->lr_decay_steps,
        .total_steps = last_step,
    };
}
