// parallel/data/reducer.h: who keeps what of the flat arrays, and how gradients meet.
//
// A rank's parameters are one flat range cut into units, in the order in which their gradients
// become final. The reducer owns the layout of five arrays over it: weights for compute, gradients,
// master copies and the two moments. ZeRO (Rajbhandari et al., 2020) is which of them are kept as a
// 1/size shard of each unit: none (0), master and moments (1), gradients too (2), weights too (3).
// It knows neither layers nor parameters, only units.
//
// Every rank of the group makes the same calls in the same order.

#ifndef CY_PARALLEL_DATA_REDUCER_H
#define CY_PARALLEL_DATA_REDUCER_H

#include "comm/group.h"
#include "kernel/kernel.h"

typedef struct cy_reducer_spec {
    cy_group *group; // borrowed: data x context parallel
    cy_queue *queue; // borrowed
    int zero_stage;  // 0..3
    bool naive;      // one message a unit after the backward pass, instead of buckets under it
    size_t bucket_bytes;
    cy_dtype weight_dtype; // of compute
    cy_dtype master_dtype; // the same dtype: weights are the master copy
    cy_dtype grad_dtype;
    bool train; // false: weights alone
} cy_reducer_spec;

// A unit's place in the flat range, in elements. Counts are multiples of the group's size.
typedef struct cy_flat_range {
    int64_t first, count;
} cy_flat_range;

// What this rank updates of one unit: [1, count] each, starting at `first` of the flat range.
typedef struct cy_owned_range {
    int64_t first, count;
    cy_view weight; // 16-bit copy to write; none when the master is the weight
    cy_view master, m, v;
    cy_view grad; // reduced, once cy_reducer_finish has returned
} cy_owned_range;

typedef struct cy_reducer cy_reducer;

CY_MUST_CHECK cy_status cy_reducer_open(
    cy_reducer **reducer, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count);
void cy_reducer_close(cy_reducer *reducer);

// Takes the arrays from the arena: once from a measuring one, once for good.
void cy_reducer_take(cy_reducer *reducer, cy_arena *run);

// Bytes of the arrays, once they were taken.
typedef struct cy_reducer_bytes {
    size_t weights; // for compute
    size_t gradients;
    size_t optimizer; // master copies and moments
} cy_reducer_bytes;
cy_reducer_bytes cy_reducer_memory(const cy_reducer *reducer);

// Where a unit's whole weights and gradients lie now; NULL while they are not here.
void *cy_reducer_weights(const cy_reducer *reducer, int unit);
void *cy_reducer_grads(const cy_reducer *reducer, int unit);

// Start of an optimizer step: gradients are zero.
void cy_reducer_zero(cy_reducer *reducer);

// A unit's weights are needed, are no more needed, its gradients are final for this micro-batch
// (`last`: for this step).
CY_MUST_CHECK cy_status cy_reducer_before_unit(cy_reducer *reducer, int unit);
CY_MUST_CHECK cy_status cy_reducer_after_unit(cy_reducer *reducer, int unit);
CY_MUST_CHECK cy_status cy_reducer_gradient_final(cy_reducer *reducer, int unit, bool last);

// Returns when the owned gradients are sums over the group.
CY_MUST_CHECK cy_status cy_reducer_finish(cy_reducer *reducer);

// After the update: every rank's weights are whole again (stages 1 and 2).
CY_MUST_CHECK cy_status cy_reducer_share_weights(cy_reducer *reducer);

int cy_reducer_owned_count(const cy_reducer *reducer);
cy_owned_range cy_reducer_owned(const cy_reducer *reducer, int index);

#endif
