// Cuts the flat range into buckets, and reduces gradients that every rank keeps whole: once a step,
// each bucket as soon as its last gradient is final, so that it travels under the rest of the
// backward pass.
//
//   backward   layer 3 | layer 2 | layer 1 | layer 0 | embedding
//   bucket 0            >>>>>>>>>
//   bucket 1                      >>>>>>>>>
//   bucket 2                                          >>>>>>>>> finish
//
// The flat range has the order in which gradients become final, so buckets are cut from it without
// sorting, and no gradient is copied: a bucket is a view.

#include "base/memory.h"
#include "base/status.h"
#include "parallel/data/reducer_parts.h"

#include <string.h>

// ---- traffic

void cy_buckets_reset(cy_reducer *reducer)
{
    reducer->started = 0;
    reducer->compressor.sent = 0;
    for (int i = 0; i < reducer->buckets.count; i++) {
        reducer->waiting[i] = 0;
        for (int u = 0; u < reducer->unit_count; u++) {
            reducer->waiting[i] += cy_ranges_meet(reducer->buckets.buckets[i], reducer->units[u]);
        }
    }
}

static cy_status wait_for(cy_reducer *reducer, int started)
{
    return cy_group_wait(
        reducer->spec.group, reducer->spec.queue, &reducer->requests[reducer->sent[started]]);
}

// Stage 0 sums a bucket everywhere, stage 1 each rank's part of it there.
static cy_status send(cy_reducer *reducer, int bucket)
{
    const cy_reducer_spec *spec = &reducer->spec;
    if (cy_reducer_compresses(reducer)) return cy_compressor_send(reducer, bucket);
    const cy_flat_range range = reducer->buckets.buckets[bucket];
    const cy_view data = cy_view_cols(reducer->grads, range.first, range.count);
    if (reducer->started >= CY_REDUCER_IN_FLIGHT) {
        CY_TRY(wait_for(reducer, reducer->started - CY_REDUCER_IN_FLIGHT));
    }
    reducer->waiting[bucket] = -1;
    reducer->sent[reducer->started++] = bucket;
    cy_request *request = &reducer->requests[bucket];
    if (spec->zero_stage == 0) {
        return cy_group_start_all_reduce(spec->group, spec->queue, request, data, CY_SUM);
    }
    const cy_view part = cy_reducer_shard(reducer, reducer->grads, false, range);
    const cy_view rows = cy_reducer_by_rank(reducer, data);
    return cy_group_start_reduce_scatter(spec->group, spec->queue, request, part, rows, CY_SUM);
}

cy_status cy_buckets_gradient_final(cy_reducer *reducer, int unit)
{
    if (reducer->spec.naive) return CY_OK;
    // Gradients that are clipped as a whole are sent when all of them are final.
    if (cy_reducer_compresses(reducer) && cy_compressor_clips(reducer)) return CY_OK;
    for (int i = 0; i < reducer->buckets.count; i++) {
        if (!cy_ranges_meet(reducer->buckets.buckets[i], reducer->units[unit])) continue;
        CY_ASSERT(reducer->waiting[i] > 0); // a unit is final once a step
        if (--reducer->waiting[i] == 0) CY_TRY(send(reducer, i));
    }
    return CY_OK;
}

// Buckets without gradients are sent too: they are zero, and other ranks wait for them.
cy_status cy_buckets_finish(cy_reducer *reducer)
{
    const bool compresses = cy_reducer_compresses(reducer);
    if (compresses) CY_TRY(cy_compressor_clip(reducer));
    for (int i = 0; i < reducer->buckets.count; i++) {
        if (reducer->waiting[i] < 0) continue;
        CY_TRY(send(reducer, i));
        if (reducer->spec.naive) CY_TRY(wait_for(reducer, reducer->started - 1));
    }
    if (compresses) return cy_compressor_finish(reducer);
    for (int i = 0; i < reducer->started; i++)
        CY_TRY(wait_for(reducer, i));
    return CY_OK;
}

// ---- cutting

static int64_t elements_of(const cy_reducer_spec *spec, size_t bytes)
{
    const int64_t multiple = (int64_t)64 * cy_group_size(spec->group);
    const int64_t wanted = (int64_t)(bytes / cy_dtype_size(spec->grad_dtype));
    const int64_t whole = wanted / multiple * multiple;
    return whole > multiple ? whole : multiple;
}

int64_t cy_bucket_elements(const cy_reducer_spec *spec)
{
    return elements_of(spec, spec->bucket_bytes);
}

int64_t cy_first_bucket_elements(const cy_reducer_spec *spec)
{
    const size_t bytes = spec->first_bucket_bytes;
    return elements_of(spec, bytes > 0 ? bytes : spec->bucket_bytes);
}

static cy_status copy_ranges(cy_bucket_list *list, const cy_flat_range *ranges, int count)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(cy_flat_range)));
    memcpy(block, ranges, (size_t)count * sizeof(cy_flat_range));
    *list = (cy_bucket_list){.buckets = block, .count = count};
    return CY_OK;
}

// One bucket of `first` elements, then buckets of `elements`; the last has what is left.
static cy_status cut_buckets(cy_bucket_list *list, int64_t total, int64_t first, int64_t elements)
{
    void *block = NULL;
    const int64_t beyond = total > first ? total - first : 0;
    const int count = 1 + (int)((beyond + elements - 1) / elements);
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(cy_flat_range)));
    *list = (cy_bucket_list){.buckets = block, .count = count};
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        const int64_t wanted = i == 0 ? first : elements;
        const int64_t left = total - at;
        list->buckets[i] = (cy_flat_range){.first = at, .count = left < wanted ? left : wanted};
        at += list->buckets[i].count;
    }
    return CY_OK;
}

cy_status cy_bucket_list_make(
    cy_bucket_list *list, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count)
{
    if (spec->naive) {
        CY_ASSERT(spec->zero_stage == 0 && spec->parameter_count > 0);
        return copy_ranges(list, spec->parameters, spec->parameter_count);
    }
    if (spec->zero_stage >= 2) return copy_ranges(list, units, unit_count);
    const cy_flat_range last = units[unit_count - 1];
    return cut_buckets(
        list, last.first + last.count, cy_first_bucket_elements(spec), cy_bucket_elements(spec));
}

void cy_bucket_list_free(cy_bucket_list *list)
{
    cy_memory_free(list->buckets);
    *list = (cy_bucket_list){0};
}

cy_flat_range cy_bucket_shard(cy_flat_range bucket, int rank, int size)
{
    CY_ASSERT(bucket.count % size == 0);
    const int64_t count = bucket.count / size;
    return (cy_flat_range){.first = bucket.first + rank * count, .count = count};
}

bool cy_ranges_meet(cy_flat_range a, cy_flat_range b)
{
    return a.first < b.first + b.count && b.first < a.first + a.count;
}
