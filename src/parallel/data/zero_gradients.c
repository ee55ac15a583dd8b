// Gradients that are kept as shards: whole only while a backward pass adds to them.
//
// A unit's buffer is acquired and zeroed before its first gradient; when its gradients are final,
// each rank's part of the sum lands in that part of the buffer, is added to the shard, and the
// buffer is free for another unit. One unit is in flight under the next one's backward pass.

#include "base/assert.h"
#include "parallel/data/reducer_parts.h"

static cy_view buffer_of(const cy_reducer *reducer, int unit)
{
    return cy_buffer_pool_view(
        &reducer->grad_buffers, reducer->whole_grads[unit].buffer, reducer->units[unit].count);
}

static cy_status settle(cy_reducer *reducer)
{
    const int unit = reducer->reducing;
    if (unit < 0) return CY_OK;
    const cy_reducer_spec *spec = &reducer->spec;
    cy_whole_unit *whole = &reducer->whole_grads[unit];
    CY_TRY(cy_group_wait(spec->group, spec->queue, &whole->request));
    const cy_view sum =
        cy_view_rows(cy_reducer_by_rank(reducer, buffer_of(reducer, unit)), reducer->rank, 1);
    const cy_view shard = cy_reducer_shard(reducer, reducer->grads, true, reducer->units[unit]);
    cy_add(spec->queue, shard, shard, sum);
    cy_buffer_pool_release(&reducer->grad_buffers, whole->buffer);
    whole->buffer = -1;
    reducer->reducing = -1;
    return CY_OK;
}

cy_status cy_zero_gradients_before(cy_reducer *reducer, int unit)
{
    cy_whole_unit *whole = &reducer->whole_grads[unit];
    if (whole->in_use) return CY_OK;
    // Within a backward pass the unit before this one is still on its way. What the last
    // microbatch left has had all of a forward pass, and its buffer may be the one to acquire.
    if (unit != reducer->reducing + 1) CY_TRY(settle(reducer));
    const int64_t count = reducer->units[unit].count;
    whole->buffer = cy_buffer_pool_acquire(&reducer->grad_buffers, count);
    whole->in_use = true;
    cy_fill(reducer->spec.queue, buffer_of(reducer, unit), 0.0);
    return CY_OK;
}

cy_status cy_zero_gradients_final(cy_reducer *reducer, int unit)
{
    const cy_reducer_spec *spec = &reducer->spec;
    cy_whole_unit *whole = &reducer->whole_grads[unit];
    if (!whole->in_use) return CY_OK; // nothing was added
    CY_TRY(settle(reducer));
    whole->in_use = false;
    reducer->reducing = unit;
    const cy_view all = cy_reducer_by_rank(reducer, buffer_of(reducer, unit));
    return cy_group_start_reduce_scatter(spec->group, spec->queue, &whole->request,
        cy_view_rows(all, reducer->rank, 1), all, CY_SUM);
}

cy_status cy_zero_gradients_finish(cy_reducer *reducer)
{
    CY_TRY(settle(reducer));
    for (int i = 0; i < reducer->unit_count; i++)
        CY_ASSERT(!reducer->whole_grads[i].in_use);
    return CY_OK;
}
