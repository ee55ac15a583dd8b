// parallel/data/reducer_parts.h: the inside of the reducer: buckets, buffer pool, execution order,
// compressor. Private to parallel/data/ and its tests.

#ifndef CY_PARALLEL_DATA_REDUCER_PARTS_H
#define CY_PARALLEL_DATA_REDUCER_PARTS_H

#include "base/status.h"
#include "device/view.h"
#include "parallel/data/reducer.h"

#include <stdbool.h>
#include <stddef.h>

// ---- buckets: how the flat range of parameters is cut into messages (buckets.c)
//
// A bucket is one message: consecutive gradients for stages 0 and 1, a unit for stages 2 and 3, one
// parameter for the naive way. Buckets are disjoint and ascend. With ZeRO each is divided evenly
// over the ranks, which is why they are cut at multiples of 64 elements a rank. Pure data: the same
// on every rank.

typedef struct cy_bucket_list {
    cy_flat_range *buckets; // owned, [count]
    int count;
} cy_bucket_list;

// Start from a zeroed list.
CY_MUST_CHECK cy_status cy_bucket_list_make(
    cy_bucket_list *list, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count);
void cy_bucket_list_free(cy_bucket_list *list);

// Elements of a full bucket: a multiple of 64 a rank, at least that.
int64_t cy_bucket_elements(const cy_reducer_spec *spec);

// Elements of the bucket that fills first, likewise.
int64_t cy_first_bucket_elements(const cy_reducer_spec *spec);

// The equal part of a bucket that a rank owns.
cy_flat_range cy_bucket_shard(cy_flat_range bucket, int rank, int size);

// True when two ranges have elements in common.
bool cy_ranges_meet(cy_flat_range a, cy_flat_range b);

// ---- buffer pool: memory for whole units that are kept as shards, while they are in use (zero.c)
//
// The number of buffers and their sizes are learned, not configured: on a measuring arena a buffer
// is made or enlarged whenever none is free, so the dry run of a step leaves exactly what a step
// needs; then the same buffers are placed. Units share a buffer where their sizes have the same
// number of binary digits, so a layer does not occupy the embedding's. The first free buffer is
// used, so the real run makes the choices of the dry one. A pool belongs to one reducer.

typedef struct cy_pool_buffer {
    cy_view data; // [1, capacity]; while measuring, only its size is meant
    bool in_use;
} cy_pool_buffer;

typedef struct cy_buffer_pool {
    cy_dtype dtype;
    cy_pool_buffer *buffers; // owned, [most]
    int buffer_count;
    int most;
    cy_arena *measuring; // borrowed; NULL once the buffers are placed
} cy_buffer_pool;

CY_MUST_CHECK cy_status cy_buffer_pool_open(cy_buffer_pool *pool, cy_dtype dtype, int most);
void cy_buffer_pool_close(cy_buffer_pool *pool);

// With a measuring arena: discards all buffers. With another: places those that were learned.
void cy_buffer_pool_alloc(cy_buffer_pool *pool, cy_arena *run);

// Reserves a buffer for `count` elements and returns its number, by which it is released.
int cy_buffer_pool_acquire(cy_buffer_pool *pool, int64_t count);
cy_view cy_buffer_pool_view(const cy_buffer_pool *pool, int buffer, int64_t count); // [1, count]
void cy_buffer_pool_release(cy_buffer_pool *pool, int buffer);

size_t cy_buffer_pool_bytes(const cy_buffer_pool *pool);

// ---- execution order: the order in which units are used, learned from a dry run, so that the next
// one can be gathered ahead (zero.c)
//
// A step has one order; passes between steps (evaluation) have another one, which repeats. Every
// rank of a group has the same.

// Start from a zeroed struct; free with cy_exec_order_free.
typedef struct cy_exec_order {
    int *units; // owned, [count]
    size_t count, capacity;
    size_t at; // the next use
    bool repeats;
} cy_exec_order;

void cy_exec_order_free(cy_exec_order *order);
CY_MUST_CHECK cy_status cy_exec_order_append(cy_exec_order *order, int unit);
void cy_exec_order_rewind(cy_exec_order *order);
void cy_exec_order_clear(cy_exec_order *order);

// A unit is used now. Where the order differs from the learned one, nothing is known until the
// rewind.
void cy_exec_order_use(cy_exec_order *order, int unit);

// The unit of the use `ahead` uses after the present one, from 0; -1 where it is not known.
int cy_exec_order_next(const cy_exec_order *order, int ahead);

// What the dry run of a step records of stage 3, to be replayed.
typedef enum cy_unit_event_kind {
    CY_UNIT_USED, // its weights are needed from here on
    CY_UNIT_LEFT, // they are not needed any more
} cy_unit_event_kind;

typedef struct cy_unit_event {
    cy_unit_event_kind kind;
    int unit;
} cy_unit_event;

// ---- the reducer

// Transfers that may be in flight at once: backends keep a bounded number of records.
#define CY_REDUCER_IN_FLIGHT 32

// A unit's whole array while this rank holds it.
typedef struct cy_whole_unit {
    int buffer; // of the buffer pool; -1: this rank does not hold it
    cy_request request;
    bool in_use; // weights: between before and after. Gradients: being added to
} cy_whole_unit;

// Compressed buckets that may be in flight at once.
#define CY_COMPRESSED_IN_FLIGHT 4

typedef struct cy_compressor {
    cy_flat_range *dense; // owned, [dense_count]: ranges that are sent uncompressed
    int dense_count;
    int64_t dense_total;                      // elements of them
    cy_view dense_grads;                      // [1, dense_total]
    cy_view residual;                         // [1, count], of topk
    cy_view buffers[CY_COMPRESSED_IN_FLIGHT]; // uint8: messages in flight
    size_t buffer_bytes;
    cy_view squares; // [1, 1] fp64: of this step's gradient, for clipping
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
    cy_unit_event *events; // owned, [event_count]: of the dry run of a step
    size_t event_count, event_capacity;
    bool in_step;
};

// ---- which arrays are sharded

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

// ---- compress.c: compressed buckets

cy_status cy_compressor_open(cy_reducer *reducer);
void cy_compressor_close(cy_compressor *compressor);
void cy_compressor_alloc(cy_reducer *reducer, cy_arena *run);
size_t cy_compressor_bytes(const cy_compressor *compressor);
cy_status cy_compressor_send(cy_reducer *reducer, int bucket);

// Clipping needs all of a rank's gradient before any of it is sent: cy_compressor_clip precedes the
// first send of a step.
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

// ---- zero.c: gradients of stages 2 and 3

cy_status cy_zero_gradients_before(cy_reducer *reducer, int unit);
cy_status cy_zero_gradients_final(cy_reducer *reducer, int unit);
cy_status cy_zero_gradients_finish(cy_reducer *reducer);

// ---- zero.c: weights of stages 1 to 3

cy_status cy_zero_weights_before(cy_reducer *reducer, int unit);
cy_status cy_zero_weights_after(cy_reducer *reducer, int unit);
cy_status cy_zero_weights_replay(cy_reducer *reducer);
cy_status cy_zero_weights_release(cy_reducer *reducer);
cy_status cy_zero_weights_share(cy_reducer *reducer);

#endif
