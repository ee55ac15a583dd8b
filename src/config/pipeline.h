// config/pipeline.h: what a configuration says about its pipeline, in the pipeline's words.
//
// Pure functions of the configuration; any thread may call them.

#ifndef CY_CONFIG_PIPELINE_H
#define CY_CONFIG_PIPELINE_H

#include "parallel/pipeline/schedule.h"
#include "config/config.h"

// The schedule that is asked for.
cy_schedule_options cy_config_schedule(const cy_config *config);

// The layers of each segment of a schedule, [cy_schedule_segments]: distributed.pp_layers, or cut
// so that the most expensive rank is as cheap as it can be, by the floating-point operations of a
// layer, the embedding and the head. CY_ERR_REQUEST where they cannot be cut like that.
CY_MUST_CHECK cy_status cy_config_partition(
    cy_layer_range *ranges, const cy_config *config, const cy_schedule *schedule);

// Why the configuration's other keys do not go with a schedule, or NULL.
const char *cy_config_schedule_conflict(const cy_config *config, const cy_schedule *schedule);

#endif
