// parallel/data/reducer_parts.h: the inside of the reducer. Included by parallel/data/*.c only.

#ifndef CY_PARALLEL_DATA_REDUCER_PARTS_H
#define CY_PARALLEL_DATA_REDUCER_PARTS_H

#include "parallel/data/bucket_list.h"
#include "parallel/data/buffer_pool.h"
#include "parallel/data/exec_order.h"
#include "parallel/data/reducer.h"

// Transfers that may be in flight at once: backends keep a bounded number of records.
#define CY_REDUCER_IN_FLIGHT 32

// A unit's whole array while it is here.
typedef struct cy_whole_unit {
    int buffer; // of the pool; -1: not here
    cy_request request;
    bool in_use; // weights: between before and after. Gradients: being added to
} cy_whole_unit;

// Compressed buckets that may be on their way at once.
#define CY_COMPRESSED_IN_FLIGHT 4

typedef struct cy_compressor {
    cy_flat_range *dense; // owned, [dense_count]: ranges that are sent as they are
    int dense_count;
    int64_t dense_total;                      // elements of them
    cy_view dense_grads;                      // [1, dense_total]
    cy_view residual;                         // [1, count], of topk
    cy_view buffers[CY_COMPRESSED_IN_FLIGHT]; // uint8: messages on their way
    size_t buffer_bytes;
    cy_view squares; // [1, 1] fp64
    double factor;   // of this step's gradient: clipping
    double ratio;    // of topk, now
    int64_t sent;    // of topk: elements in this step
} cy_compressor;

struct cy_reducer {
    cy_reducer_spec spec;
    cy_flat_range *units; // owned, [unit_count]
    int unit_count;
    cy_bucket_list buckets; // owned
    int64_t count;          // elements of all units
    int rank, size;         // in the group

    // Each [1, count], or [1, count / size] where it is kept as shards: those of the buckets, one
    // after another.
    cy_view weights, grads, master, m, v;

    // Stages 0 and 1.
    cy_request *requests; // owned, [buckets.count]
    int *waiting;         // owned, [buckets.count]: units of a bucket that are not final; -1: sent
    int started;          // buckets of this step that were sent
    int *sent;            // owned, [buckets.count]: those, in order

    cy_compressor compressor; // stage 0, where asked for

    // Stages 2 and 3: gradients; stage 3: weights.
    cy_whole_unit *whole_grads;   // owned, [unit_count]
    cy_whole_unit *whole_weights; // owned, [unit_count]
    cy_buffer_pool grad_buffers, weight_buffers;
    int reducing; // the unit whose gradients are in flight, or -1
    cy_exec_order step_order, other_order;
    cy_exec_order step_events; // of the dry run: a unit where it is used, ~unit where it is left
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

// This rank's part of a bucket in one of the arrays.
cy_view cy_reducer_shard(
    const cy_reducer *reducer, cy_view array, bool sharded, cy_flat_range bucket);

// An array with one row a rank.
static inline cy_view cy_reducer_by_rank(const cy_reducer *reducer, cy_view all)
{
    return cy_view_of(all.data, all.dtype, reducer->size, all.cols / reducer->size);
}

static inline bool cy_reducer_compresses(const cy_reducer *reducer)
{
    return reducer->spec.train && reducer->size > 1 &&
        reducer->spec.compression.kind != CY_COMPRESSION_NONE;
}

static inline bool cy_compressor_is_topk(const cy_reducer *reducer)
{
    return reducer->spec.compression.kind == CY_COMPRESSION_TOPK;
}

// ---- compress.c: buckets that are made small

cy_status cy_compressor_open(cy_reducer *reducer);
void cy_compressor_close(cy_compressor *compressor);
void cy_compressor_alloc(cy_reducer *reducer, cy_arena *run);
size_t cy_compressor_bytes(const cy_compressor *compressor);
cy_status cy_compressor_send(cy_reducer *reducer, int bucket);

// Clipping has to see all of a rank's gradient before any of it is sent: cy_compressor_clip comes
// before the first send of a step.
static inline bool cy_compressor_clips(const cy_reducer *reducer)
{
    const cy_compression_spec *spec = &reducer->spec.compression;
    return spec->kind == CY_COMPRESSION_TOPK && spec->most_norm > 0.0;
}
cy_status cy_compressor_clip(cy_reducer *reducer);

// After the last send: sums stand where gradients were.
cy_status cy_compressor_finish(cy_reducer *reducer);

// ---- buckets.c: gradients of stages 0 and 1

void cy_buckets_reset(cy_reducer *reducer);
cy_status cy_buckets_gradient_final(cy_reducer *reducer, int unit);
cy_status cy_buckets_finish(cy_reducer *reducer);

// ---- zero_gradients.c: gradients of stages 2 and 3

cy_status cy_zero_gradients_before(cy_reducer *reducer, int unit);
cy_status cy_zero_gradients_final(cy_reducer *reducer, int unit);
cy_status cy_zero_gradients_finish(cy_reducer *reducer);

// ---- zero_weights.c: weights of stages 1 to 3

cy_status cy_zero_weights_before(cy_reducer *reducer, int unit);
cy_status cy_zero_weights_after(cy_reducer *reducer, int unit);
cy_status cy_zero_weights_replay(cy_reducer *reducer);
cy_status cy_zero_weights_release(cy_reducer *reducer);
cy_status cy_zero_weights_share(cy_reducer *reducer);

#endif
