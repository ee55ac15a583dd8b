// Weights of which a rank updates a part: gathered once a step (stages 1 and 2), or unit by unit
// around their use (stage 3), the next unit under the computation of the present one.
//
// A dry run writes down the uses of a step; when it is over they are played back with the fetches
// ahead that are then possible, which measures the buffers. What runs between steps (evaluation) is
// the beginning of a step and needs no other buffers.

#include "base/assert.h"
#include "parallel/data/reducer_parts.h"

static cy_exec_order *order_now(cy_reducer *reducer)
{
    return reducer->in_step ? &reducer->step_order : &reducer->other_order;
}

static cy_status fetch(cy_reducer *reducer, int unit)
{
    cy_whole_unit *whole = &reducer->whole_weights[unit];
    if (whole->buffer >= 0) return CY_OK;
    const cy_flat_range range = reducer->units[unit];
    whole->buffer = cy_buffer_pool_acquire(&reducer->weight_buffers, range.count);
    const cy_view all = cy_buffer_pool_view(&reducer->weight_buffers, whole->buffer, range.count);
    return cy_group_start_all_gather(reducer->spec.group, reducer->spec.queue, &whole->request,
        cy_reducer_by_rank(reducer, all), cy_reducer_shard(reducer, reducer->weights, true, range));
}

// Units much smaller than the others travel in no time: the one after them is fetched as well.
static bool is_small(const cy_reducer *reducer, int unit)
{
    return reducer->units[unit].count < reducer->count / reducer->unit_count / 8;
}

// True when `unit` is what a fetch ahead would bring; with `unit` -1, brings it.
static cy_status prefetch_next(cy_reducer *reducer, int unit, bool *found)
{
    const cy_exec_order *order = order_now(reducer);
    *found = false;
    for (int ahead = 0; !*found; ahead++) {
        const int next = cy_exec_order_next(order, ahead);
        if (next < 0) return CY_OK;
        *found = next == unit;
        if (unit < 0) CY_TRY(fetch(reducer, next));
        if (!is_small(reducer, next)) return CY_OK;
    }
    return CY_OK;
}

static cy_status use(cy_reducer *reducer, int unit)
{
    cy_whole_unit *whole = &reducer->whole_weights[unit];
    cy_exec_order_use(order_now(reducer), unit);
    CY_TRY(fetch(reducer, unit));
    CY_TRY(cy_group_wait(reducer->spec.group, reducer->spec.queue, &whole->request));
    whole->in_use = true;
    bool found;
    return prefetch_next(reducer, -1, &found);
}

static void give_back(cy_reducer *reducer, int unit)
{
    cy_whole_unit *whole = &reducer->whole_weights[unit];
    cy_buffer_pool_release(&reducer->weight_buffers, whole->buffer);
    whole->buffer = -1;
}

static cy_status leave(cy_reducer *reducer, int unit)
{
    bool needed_next;
    reducer->whole_weights[unit].in_use = false;
    CY_TRY(prefetch_next(reducer, unit, &needed_next));
    if (!needed_next) give_back(reducer, unit);
    return CY_OK;
}

cy_status cy_zero_weights_before(cy_reducer *reducer, int unit)
{
    if (!reducer->spec.queue->dry) return use(reducer, unit);
    if (reducer->in_step) CY_TRY(cy_exec_order_append(&reducer->step_events, unit));
    return cy_exec_order_append(order_now(reducer), unit);
}

cy_status cy_zero_weights_after(cy_reducer *reducer, int unit)
{
    if (!reducer->spec.queue->dry) return leave(reducer, unit);
    return reducer->in_step ? cy_exec_order_append(&reducer->step_events, ~unit) : CY_OK;
}

cy_status cy_zero_weights_replay(cy_reducer *reducer)
{
    const cy_exec_order *events = &reducer->step_events;
    cy_exec_order_rewind(&reducer->step_order);
    for (size_t i = 0; i < events->count; i++) {
        const int event = events->units[i];
        CY_TRY(event >= 0 ? use(reducer, event) : leave(reducer, ~event));
    }
    return CY_OK;
}

// Whole units would hold the weights of before the update.
cy_status cy_zero_weights_release(cy_reducer *reducer)
{
    for (int i = 0; i < reducer->unit_count; i++) {
        cy_whole_unit *whole = &reducer->whole_weights[i];
        if (whole->buffer < 0) continue;
        CY_ASSERT(!whole->in_use);
        CY_TRY(cy_group_wait(reducer->spec.group, reducer->spec.queue, &whole->request));
        give_back(reducer, i);
    }
    return CY_OK;
}

// Stages 1 and 2: every rank updated its part of each bucket; whole weights are all parts.
cy_status cy_zero_weights_share(cy_reducer *reducer)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const int count = reducer->buckets.count;
    for (int i = 0; i < count + CY_REDUCER_IN_FLIGHT; i++) {
        const int old = i - CY_REDUCER_IN_FLIGHT;
        if (old >= 0 && old < count) {
            CY_TRY(cy_group_wait(spec->group, spec->queue, &reducer->requests[old]));
        }
        if (i >= count) continue;
        const cy_flat_range bucket = reducer->buckets.buckets[i];
        const cy_view all = cy_view_cols(reducer->weights, bucket.first, bucket.count);
        CY_TRY(cy_group_start_all_gather(spec->group, spec->queue, &reducer->requests[i],
            cy_reducer_by_rank(reducer, all),
            cy_reducer_shard(reducer, reducer->weights, false, bucket)));
    }
    return CY_OK;
}
