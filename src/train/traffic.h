// train/traffic.h: what a rank has sent through its groups, by dimension.
//
// Several groups may serve one dimension: the copies of kv heads are tensor parallelism, the two
// copies of a tied embedding are the pipeline. What all ranks agree on (norm, hash) is "world". The
// plan and the metrics count with the same functions. Pure reading; one thread, the rank's.

#ifndef CY_TRAIN_TRAFFIC_H
#define CY_TRAIN_TRAFFIC_H

#include "engine/engine.h"

#define CY_TRAFFIC_DIMENSIONS 5
#define CY_TRAFFIC_WORLD      4 // the last; those before it carry the model's tensors

typedef struct cy_rank_traffic {
    cy_traffic of[CY_TRAFFIC_DIMENSIONS]; // tp, cp, pp, dp, world
} cy_rank_traffic;

// "tp", "cp", "pp", "dp", "world". Static storage.
const char *cy_traffic_dimension(int index);

// What the groups count now; a group that serves twice is counted once.
cy_rank_traffic cy_traffic_now(const cy_engine_groups *groups);

// What was counted between two of them.
cy_rank_traffic cy_traffic_between(const cy_rank_traffic *before, const cy_rank_traffic *after);

#endif
