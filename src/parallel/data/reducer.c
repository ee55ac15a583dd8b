// Owns the flat arrays of weights, gradients and optimizer state, and drives their traffic: memory,
// places, and the calls of a step.

#include "parallel/data/reducer.h"

#include "base/memory.h"
#include "base/status.h"
#include "parallel/data/reducer_parts.h"

#include <string.h>

// ---- opening

static cy_status take_table(void *table, int count, size_t size)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, size));
    memcpy(table, &block, sizeof(block));
    return CY_OK;
}

static cy_status take_tables(cy_reducer *reducer, const cy_flat_range *units, int unit_count)
{
    CY_TRY(take_table(&reducer->units, unit_count, sizeof(cy_flat_range)));
    CY_TRY(take_table(&reducer->whole_grads, unit_count, sizeof(cy_whole_unit)));
    CY_TRY(take_table(&reducer->whole_weights, unit_count, sizeof(cy_whole_unit)));
    CY_TRY(cy_buffer_pool_open(&reducer->grad_buffers, reducer->spec.grad_dtype, unit_count));
    CY_TRY(cy_buffer_pool_open(&reducer->weight_buffers, reducer->spec.weight_dtype, unit_count));
    for (int i = 0; i < unit_count; i++) {
        CY_ASSERT(units[i].first == reducer->count);
        CY_ASSERT(units[i].count % ((int64_t)64 * reducer->size) == 0 || reducer->size == 1);
        reducer->units[i] = units[i];
        reducer->whole_grads[i].buffer = reducer->whole_weights[i].buffer = -1;
        reducer->count += units[i].count;
    }
    reducer->unit_count = unit_count;
    CY_TRY(cy_bucket_list_make(&reducer->buckets, &reducer->spec, units, unit_count));
    const int buckets = reducer->buckets.count;
    CY_TRY(take_table(&reducer->requests, buckets, sizeof(cy_request)));
    CY_TRY(take_table(&reducer->waiting, buckets, sizeof(int)));
    return take_table(&reducer->sent, buckets, sizeof(int));
}

cy_status cy_reducer_open(
    cy_reducer **reducer, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count)
{
    CY_ASSERT(0 <= spec->zero_stage && spec->zero_stage <= 3 && unit_count > 0);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_reducer)));
    cy_reducer *made = block;
    made->spec = *spec;
    CY_ASSERT(
        spec->compression.kind == CY_COMPRESSION_NONE || (spec->zero_stage == 0 && !spec->naive));
    if (!spec->train) {
        made->spec.zero_stage = 0;
        made->spec.naive = false;
    }
    made->rank = cy_group_rank(spec->group);
    made->size = cy_group_size(spec->group);
    made->reducing = -1;
    made->other_order.repeats = true;
    cy_status status = take_tables(made, units, unit_count);
    if (status == CY_OK) status = cy_compressor_open(made);
    if (status != CY_OK) {
        cy_reducer_close(made);
        return status;
    }
    made->spec.parameters = NULL;
    made->spec.compression.dense = NULL;
    *reducer = made;
    return CY_OK;
}

void cy_reducer_close(cy_reducer *reducer)
{
    if (reducer == NULL) return;
    cy_buffer_pool_close(&reducer->grad_buffers);
    cy_buffer_pool_close(&reducer->weight_buffers);
    cy_exec_order_free(&reducer->step_order);
    cy_exec_order_free(&reducer->other_order);
    cy_memory_free(reducer->events);
    cy_compressor_close(&reducer->compressor);
    cy_bucket_list_free(&reducer->buckets);
    cy_memory_free(reducer->requests);
    cy_memory_free(reducer->waiting);
    cy_memory_free(reducer->sent);
    cy_memory_free(reducer->whole_grads);
    cy_memory_free(reducer->whole_weights);
    cy_memory_free(reducer->units);
    cy_memory_free(reducer);
}

// ---- memory

static cy_view take_array(const cy_reducer *reducer, cy_arena *run, cy_dtype dtype, bool sharded)
{
    return cy_view_alloc(run, dtype, 1, sharded ? reducer->count / reducer->size : reducer->count);
}

// With topk the weights for compute are a step ahead of the master copies.
static bool separate_master(const cy_reducer *reducer)
{
    const cy_reducer_spec *spec = &reducer->spec;
    return spec->master_dtype != spec->weight_dtype ||
        (cy_reducer_compresses(reducer) && cy_compressor_is_topk(reducer));
}

void cy_reducer_alloc(cy_reducer *reducer, cy_arena *run)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const bool sharded = cy_reducer_shards_optimizer(reducer);
    reducer->weights =
        take_array(reducer, run, spec->weight_dtype, cy_reducer_shards_weights(reducer));
    if (!spec->train) return;
    reducer->master = reducer->weights;
    if (separate_master(reducer)) {
        reducer->master = take_array(reducer, run, spec->master_dtype, sharded);
    }
    reducer->m = take_array(reducer, run, spec->master_dtype, sharded);
    reducer->v = take_array(reducer, run, spec->master_dtype, sharded);
    reducer->grads = take_array(reducer, run, spec->grad_dtype, cy_reducer_shards_grads(reducer));
    cy_buffer_pool_alloc(&reducer->grad_buffers, run);
    cy_buffer_pool_alloc(&reducer->weight_buffers, run);
    cy_compressor_alloc(reducer, run);
}

cy_reducer_bytes cy_reducer_memory(const cy_reducer *reducer)
{
    return (cy_reducer_bytes){
        .weights = cy_view_bytes(reducer->weights),
        .gradients = cy_view_bytes(reducer->grads),
        .optimizer = cy_view_bytes(reducer->m) + cy_view_bytes(reducer->v) +
            (separate_master(reducer) ? cy_view_bytes(reducer->master) : 0),
        .units = cy_buffer_pool_bytes(&reducer->grad_buffers) +
            cy_buffer_pool_bytes(&reducer->weight_buffers),
        .compression = cy_compressor_bytes(&reducer->compressor),
    };
}

const cy_flat_range *cy_reducer_buckets(const cy_reducer *reducer, int *count)
{
    *count = reducer->buckets.count;
    return reducer->buckets.buckets;
}

// ---- where things lie

void *cy_reducer_weights(const cy_reducer *reducer, int unit)
{
    const cy_flat_range range = reducer->units[unit];
    if (!cy_reducer_shards_weights(reducer)) {
        return cy_view_at(reducer->weights, 0, range.first);
    }
    // A dry run gathers nothing and reads nothing: any address will do.
    if (reducer->spec.queue->dry) return reducer->weights.data;
    const cy_whole_unit *whole = &reducer->whole_weights[unit];
    if (!whole->in_use) return NULL;
    return cy_buffer_pool_view(&reducer->weight_buffers, whole->buffer, range.count).data;
}

void *cy_reducer_grads(const cy_reducer *reducer, int unit)
{
    const cy_flat_range range = reducer->units[unit];
    if (!reducer->spec.train) return NULL;
    if (!cy_reducer_shards_grads(reducer)) return cy_view_at(reducer->grads, 0, range.first);
    const cy_whole_unit *whole = &reducer->whole_grads[unit];
    if (!whole->in_use) return NULL;
    return cy_buffer_pool_view(&reducer->grad_buffers, whole->buffer, range.count).data;
}

cy_view cy_reducer_shard(
    const cy_reducer *reducer, cy_view array, bool sharded, cy_flat_range bucket)
{
    const cy_flat_range part = cy_bucket_shard(bucket, reducer->rank, reducer->size);
    return cy_view_cols(array, sharded ? bucket.first / reducer->size : part.first, part.count);
}

cy_view cy_reducer_residual(const cy_reducer *reducer)
{
    return reducer->compressor.residual;
}

int cy_reducer_owned_count(const cy_reducer *reducer)
{
    return reducer->spec.zero_stage == 0 ? reducer->unit_count : reducer->buckets.count;
}

static cy_owned_range owned_whole(const cy_reducer *reducer, cy_flat_range range)
{
    return (cy_owned_range){
        .first = range.first,
        .count = range.count,
        .weight = separate_master(reducer)
            ? cy_view_cols(reducer->weights, range.first, range.count)
            : cy_view_none(),
        .master = cy_view_cols(reducer->master, range.first, range.count),
        .m = cy_view_cols(reducer->m, range.first, range.count),
        .v = cy_view_cols(reducer->v, range.first, range.count),
        .grad = cy_view_cols(reducer->grads, range.first, range.count),
    };
}

cy_owned_range cy_reducer_owned(const cy_reducer *reducer, int index)
{
    if (reducer->spec.zero_stage == 0) return owned_whole(reducer, reducer->units[index]);
    const cy_flat_range bucket = reducer->buckets.buckets[index];
    const cy_flat_range part = cy_bucket_shard(bucket, reducer->rank, reducer->size);
    const bool sharded_weights = cy_reducer_shards_weights(reducer);
    const cy_view weight = cy_reducer_shard(reducer, reducer->weights, sharded_weights, bucket);
    const bool separate = separate_master(reducer);
    return (cy_owned_range){
        .first = part.first,
        .count = part.count,
        .weight = separate ? weight : cy_view_none(),
        .master = separate ? cy_reducer_shard(reducer, reducer->master, true, bucket) : weight,
        .m = cy_reducer_shard(reducer, reducer->m, true, bucket),
        .v = cy_reducer_shard(reducer, reducer->v, true, bucket),
        .grad = cy_reducer_shard(reducer, reducer->grads, cy_reducer_shards_grads(reducer), bucket),
    };
}

// ---- a step

void cy_reducer_zero(cy_reducer *reducer)
{
    cy_fill(reducer->spec.queue, reducer->grads, 0.0);
    cy_reducer_begin(reducer);
}

void cy_reducer_begin(cy_reducer *reducer)
{
    cy_buckets_reset(reducer);
    if (reducer->spec.queue->dry) {
        cy_exec_order_clear(&reducer->step_order);
        reducer->event_count = 0;
    }
    cy_exec_order_rewind(&reducer->step_order);
    reducer->in_step = true;
}

void cy_reducer_set_ratio(cy_reducer *reducer, double ratio)
{
    CY_ASSERT(ratio <= reducer->spec.compression.most_ratio);
    reducer->compressor.ratio = ratio;
}

cy_status cy_reducer_before_unit(cy_reducer *reducer, int unit)
{
    CY_ASSERT(0 <= unit && unit < reducer->unit_count);
    return cy_reducer_shards_weights(reducer) ? cy_zero_weights_before(reducer, unit) : CY_OK;
}

cy_status cy_reducer_after_unit(cy_reducer *reducer, int unit)
{
    CY_ASSERT(0 <= unit && unit < reducer->unit_count);
    return cy_reducer_shards_weights(reducer) ? cy_zero_weights_after(reducer, unit) : CY_OK;
}

cy_status cy_reducer_before_gradient(cy_reducer *reducer, int unit)
{
    CY_ASSERT(0 <= unit && unit < reducer->unit_count);
    return cy_reducer_shards_grads(reducer) ? cy_zero_gradients_before(reducer, unit) : CY_OK;
}

cy_status cy_reducer_gradient_final(cy_reducer *reducer, int unit, bool last)
{
    CY_ASSERT(0 <= unit && unit < reducer->unit_count);
    if (cy_reducer_shards_grads(reducer)) return cy_zero_gradients_final(reducer, unit);
    return last ? cy_buckets_gradient_final(reducer, unit) : CY_OK;
}

cy_status cy_reducer_finish(cy_reducer *reducer)
{
    if (cy_reducer_shards_grads(reducer)) {
        CY_TRY(cy_zero_gradients_finish(reducer));
    } else {
        CY_TRY(cy_buckets_finish(reducer));
    }
    if (cy_reducer_shards_weights(reducer) && reducer->spec.queue->dry) {
        CY_TRY(cy_zero_weights_replay(reducer));
    }
    reducer->in_step = false;
    cy_exec_order_rewind(&reducer->other_order);
    return CY_OK;
}

cy_status cy_reducer_share_weights(cy_reducer *reducer)
{
    if (reducer->spec.zero_stage == 0) return CY_OK;
    return cy_reducer_shards_weights(reducer) ? cy_zero_weights_release(reducer)
                                              : cy_zero_weights_share(reducer);
}
