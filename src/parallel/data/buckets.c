// Gradients that every rank keeps whole: reduced once a step, a bucket as soon as its last gradient
// is final, so that it travels under the rest of the backward pass.
//
//   backward   layer 3 | layer 2 | layer 1 | layer 0 | embedding
//   bucket 0            >>>>>>>>>
//   bucket 1                      >>>>>>>>>
//   bucket 2                                          >>>>>>>>> finish
//
// The flat range has the order in which gradients become final, so buckets are cut from it without
// sorting, and no gradient is copied: a bucket is a view.

#include "base/assert.h"
#include "parallel/data/reducer_parts.h"

void cy_buckets_reset(cy_reducer *reducer)
{
    reducer->started = 0;
    reducer->compressor.factor = 1.0;
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
    // What is clipped as a whole is sent when all of it is there.
    if (cy_reducer_compresses(reducer) && cy_compressor_clips(reducer)) return CY_OK;
    for (int i = 0; i < reducer->buckets.count; i++) {
        if (!cy_ranges_meet(reducer->buckets.buckets[i], reducer->units[unit])) continue;
        CY_ASSERT(reducer->waiting[i] > 0); // a unit is final once a step
        if (--reducer->waiting[i] == 0) CY_TRY(send(reducer, i));
    }
    return CY_OK;
}

// What no gradient came for is sent too: it is zero, and other ranks wait for it.
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
