// parallel/pipeline/partition.h: which layers each segment of the model holds.
//
// Segments are in the order of the model (schedule.h says on which rank each lies). The embedding
// goes with the first segment, the final norm and the head with the last; their cost counts, so
// that the first and last segment may get fewer layers. Pure: safe from any thread.

#ifndef CY_PARALLEL_PIPELINE_PARTITION_H
#define CY_PARALLEL_PIPELINE_PARTITION_H

#include "parallel/pipeline/schedule.h"

typedef struct cy_layer_range {
    int first;
    int count;
} cy_layer_range;

// What a forward costs, in any unit: measured or modelled. Only ratios matter.
typedef struct cy_partition_costs {
    double layer;
    double embedding;
    double head;
} cy_partition_costs;

// Fills ranges [segments] so that the most expensive rank is as cheap as it can be, and among
// those cuts the one whose layers are spread most evenly. Each segment gets at least one layer:
// more segments than layers is CY_ERR_REQUEST.
CY_MUST_CHECK cy_status cy_partition_by_cost(cy_layer_range *ranges, const cy_schedule *schedule,
    int layers, const cy_partition_costs *costs);

// From a list that a user gave: the layers of each segment, in the order of the model. Their sum
// must be `layers`, each at least 1.
CY_MUST_CHECK cy_status cy_partition_by_list(cy_layer_range *ranges, const cy_schedule *schedule,
    int layers, const int *list, int list_count);

#endif
