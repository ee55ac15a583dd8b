#include "train/config/rate.h"

#include "base/assert.h"

static cy_rate_kind kind_of(cy_config_lr schedule)
{
    switch (schedule) {
    case CY_CONFIG_LR_CONSTANT:
        return CY_RATE_CONSTANT;
    case CY_CONFIG_LR_LINEAR:
        return CY_RATE_LINEAR;
    case CY_CONFIG_LR_COSINE:
        return CY_RATE_COSINE;
    case CY_CONFIG_LR_WSD:
        return CY_RATE_WSD;
    case CY_CONFIG_LRS:
        break;
    }
    CY_ASSERT(false);
    return CY_RATE_CONSTANT;
}

cy_rate_spec cy_config_rate(const cy_config *config)
{
    const cy_config_training *training = &config->training;
    return (cy_rate_spec){
        .kind = kind_of(training->lr_schedule),
        .learning_rate = training->learning_rate,
        .min_learning_rate = training->min_learning_rate,
        .warmup_steps = training->warmup_steps,
        .decay_steps = training->lr_decay_steps,
        .total_steps = cy_config_last_step(config),
    };
}
