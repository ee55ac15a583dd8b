// parallel/data/reducer.h: which rank keeps which part of the flat arrays, and how gradients are
// reduced.
//
// A rank's parameters are one flat range cut into units, in the order in which their gradients
// become final. The reducer owns the layout of five arrays over it: weights for compute, gradients,
// master copies and the two moments. ZeRO (Rajbhandari et al., 2020) is which of them are kept as a
// 1/size shard of each unit: none (0), master and moments (1), gradients too (2), weights too (3).
// It knows neither layers nor parameters, only ranges.
//
// Stages 0 and 1 keep whole gradients and send them once a step, bucket by bucket, each as soon as
// its last gradient is final. Stages 2 and 3 have a unit's whole gradients only while a backward
// pass adds to them, and send them at every microbatch; stage 3 does the same with weights, and
// gathers the next unit while the present one computes. docs/data-parallel.md, docs/zero.md.
//
// Every rank of the group makes the same calls in the same order.

#ifndef CY_PARALLEL_DATA_REDUCER_H
#define CY_PARALLEL_DATA_REDUCER_H

#include "parallel/data/compress.h"

// A place in the flat range, in elements. A unit's count is a multiple of 64 a rank of the group.
typedef struct cy_flat_range {
    int64_t first, count;
} cy_flat_range;

typedef struct cy_reducer_spec {
    cy_group *group; // borrowed: data x context parallel
    cy_queue *queue; // borrowed
    int zero_stage;  // 0..3
    bool naive;      // one message a parameter after the backward pass, not buckets under it
    cy_compression_spec compression; // of buckets, at stage 0; one rank alone has nothing to send
    size_t bucket_bytes;
    size_t first_bucket_bytes; // of the bucket that fills first; 0: bucket_bytes
    cy_dtype weight_dtype;     // of compute
    cy_dtype master_dtype;     // the same dtype: weights are the master copy
    cy_dtype grad_dtype;
    bool train;                      // false: weights alone, whole
    const cy_flat_range *parameters; // borrowed while opening: [parameter_count], for the naive way
    int parameter_count;
} cy_reducer_spec;

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
void cy_reducer_alloc(cy_reducer *reducer, cy_arena *run);

// Bytes of the arrays, once they were taken.
typedef struct cy_reducer_bytes {
    size_t weights; // for compute
    size_t gradients;
    size_t optimizer;   // master copies and moments
    size_t units;       // buffers of whole units in use: known after the dry run
    size_t compression; // the residual, and messages in flight
} cy_reducer_bytes;
cy_reducer_bytes cy_reducer_memory(const cy_reducer *reducer);

// The buckets, one message each: [*count], ascending.
const cy_flat_range *cy_reducer_buckets(const cy_reducer *reducer, int *count);

// The addresses of a unit's whole weights and gradients; NULL while this rank does not hold them.
void *cy_reducer_weights(const cy_reducer *reducer, int unit);
void *cy_reducer_grads(const cy_reducer *reducer, int unit);

// Start of an optimizer step: gradients are zero; or, where they are whole (stages 0 and 1), what
// the caller has made of them.
void cy_reducer_zero(cy_reducer *reducer);
void cy_reducer_begin(cy_reducer *reducer);

// Before cy_reducer_zero: the part of its elements that topk sends of a bucket from now on, at most
// the most_ratio of the specification. Without topk it changes nothing.
void cy_reducer_set_ratio(cy_reducer *reducer, double ratio);

// Before the first forward pass of a step: the weights for compute become what the master copies
// would be if topk had sent the residual of this rank's gradients (Xu et al., "Step-ahead
// error feedback", 2021). The update makes them copies of the masters again. Without topk it
// changes nothing.
void cy_reducer_step_ahead(cy_reducer *reducer, const cy_step_ahead_spec *spec);

// What topk sent of this rank's buckets in the step that was finished last.
typedef struct cy_topk_sent {
    double ratio;     // that was in force; 0: topk is not in use
    int64_t sent;     // elements, each a value and an index
    int64_t elements; // of all buckets
} cy_topk_sent;
cy_topk_sent cy_reducer_topk_sent(const cy_reducer *reducer);

// A unit's weights are needed from here on, or no longer; its gradients are about to be added to
// (again), or are final for this microbatch (`last`: for this step). The results of
// cy_reducer_weights and cy_reducer_grads may change with each call.
CY_MUST_CHECK cy_status cy_reducer_before_unit(cy_reducer *reducer, int unit);
CY_MUST_CHECK cy_status cy_reducer_after_unit(cy_reducer *reducer, int unit);
CY_MUST_CHECK cy_status cy_reducer_before_gradient(cy_reducer *reducer, int unit);
CY_MUST_CHECK cy_status cy_reducer_gradient_final(cy_reducer *reducer, int unit, bool last);

// Returns when the owned gradients are sums over the group.
CY_MUST_CHECK cy_status cy_reducer_finish(cy_reducer *reducer);

// After the update: every rank's weights are the new ones.
CY_MUST_CHECK cy_status cy_reducer_share_weights(cy_reducer *reducer);

// The error-feedback residual of topk compression, of this rank's gradients, [1, elements of all
// units]; none without topk. Zero at the start of a training.
cy_view cy_reducer_residual(const cy_reducer *reducer);

int cy_reducer_owned_count(const cy_reducer *reducer);
cy_owned_range cy_reducer_owned(const cy_reducer *reducer, int index);

#endif
