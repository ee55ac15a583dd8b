// parallel/data/reducer_parts.h: the inside of the reducer. Included by parallel/data/*.c only.

#ifndef CY_PARALLEL_DATA_REDUCER_PARTS_H
#define CY_PARALLEL_DATA_REDUCER_PARTS_H

#include "parallel/data/layout.h"
#include "parallel/data/lender.h"
#include "parallel/data/order.h"
#include "parallel/data/reducer.h"

// Transfers that may be in flight at once: backends keep a bounded number of records.
#define CY_REDUCER_IN_FLIGHT 32

// A unit's whole array while it is here.
typedef struct cy_whole_unit {
    int room; // of the lender; -1: not here
    cy_request request;
    bool in_use; // weights: between before and after. Gradients: being added to
} cy_whole_unit;

struct cy_reducer {
    cy_reducer_spec spec;
    cy_flat_range *units; // owned, [unit_count]
    int unit_count;
    cy_piece_list pieces; // owned
    int64_t count;        // elements of all units
    int rank, size;       // in the group

    // Each [1, count], or [1, count / size] where it is kept as shards: those of the pieces, one
    // after another.
    cy_view weights, grads, master, m, v;

    // Stages 0 and 1.
    cy_request *requests; // owned, [pieces.count]
    int *waiting;         // owned, [pieces.count]: units of a bucket that are not final; -1: sent
    int started;          // buckets of this step that were sent
    int *sent;            // owned, [pieces.count]: those, in order

    // Stages 2 and 3: gradients; stage 3: weights.
    cy_whole_unit *whole_grads;   // owned, [unit_count]
    cy_whole_unit *whole_weights; // owned, [unit_count]
    cy_lender grad_rooms, weight_rooms;
    int reducing; // the unit whose gradients are in flight, or -1
    cy_order step_order, other_order;
    cy_order step_events; // of the dry run: a unit where it is used, ~unit where it is left
    bool in_step;
};

// ---- what is kept as shards

static inline bool cy_reducer_shards_optimizer(const cy_reducer *reducer)
{
    return reducer->spec.zero_stage >= 1;
}

static inline bool cy_reducer_shards_grads(const cy_reducer *reducer)
{
    return reducer->spec.zero_stage >= 2;
}

static inline bool cy_reducer_shards_weights(const cy_reducer *reducer)
{
    return reducer->spec.zero_stage >= 3;
}

// This rank's part of a piece in one of the arrays.
cy_view cy_reducer_part(
    const cy_reducer *reducer, cy_view array, bool sharded, cy_flat_range piece);

// ---- buckets.c: gradients of stages 0 and 1

void cy_buckets_reset(cy_reducer *reducer);
cy_status cy_buckets_gradient_final(cy_reducer *reducer, int unit);
cy_status cy_buckets_finish(cy_reducer *reducer);

// ---- shards.c: gradients of stages 2 and 3

cy_status cy_shards_before_gradient(cy_reducer *reducer, int unit);
cy_status cy_shards_gradient_final(cy_reducer *reducer, int unit);
cy_status cy_shards_finish(cy_reducer *reducer);

// ---- gather.c: weights

cy_status cy_gather_before_unit(cy_reducer *reducer, int unit);
cy_status cy_gather_after_unit(cy_reducer *reducer, int unit);
cy_status cy_gather_play_back(cy_reducer *reducer);
cy_status cy_gather_drop(cy_reducer *reducer);
cy_status cy_gather_shares(cy_reducer *reducer);

#endif
