// Shards gradients (ZeRO 2 and 3) and weights (ZeRO 3), and gathers updated weights (ZeRO 1 and 2).
//
// Gradients are whole only while a backward pass adds to them: a unit gets a zeroed buffer before
// its first gradient; when its gradients are final, a reduce-scatter leaves each rank's part of the
// sum in that buffer, the part is added to the shard, and the buffer is free for another unit. One
// unit is in flight under the backward pass of the next.
//
// Weights of stage 3 are gathered unit by unit around their use, the next unit under the
// computation of the present one. A dry run records the uses of a step; at its end they are
// replayed with the prefetches that they allow, which measures the buffers. Evaluation between
// steps uses units in the order of the beginning of a step and needs no other buffers.

#include "parallel/data/reducer_parts.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/staged.h"

// ---- buffer pool

cy_status cy_buffer_pool_open(cy_buffer_pool *pool, cy_dtype dtype, int most)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)most, sizeof(cy_pool_buffer)));
    *pool = (cy_buffer_pool){.dtype = dtype, .buffers = block, .most = most};
    return CY_OK;
}

void cy_buffer_pool_close(cy_buffer_pool *pool)
{
    cy_memory_free(pool->buffers);
    *pool = (cy_buffer_pool){0};
}

void cy_buffer_pool_alloc(cy_buffer_pool *pool, cy_arena *run)
{
    for (int i = 0; i < pool->buffer_count; i++)
        CY_ASSERT(!pool->buffers[i].in_use);
    if (run->measuring) {
        pool->measuring = run;
        pool->buffer_count = 0;
        return;
    }
    pool->measuring = NULL;
    for (int i = 0; i < pool->buffer_count; i++) {
        cy_view *data = &pool->buffers[i].data;
        *data = cy_view_alloc(run, pool->dtype, 1, data->cols);
    }
}

static int digits(int64_t count)
{
    int digit_count = 0;
    for (; count > 0; count >>= 1)
        digit_count++;
    return digit_count;
}

static int first_free(const cy_buffer_pool *pool, int64_t count)
{
    for (int i = 0; i < pool->buffer_count; i++) {
        const cy_pool_buffer *buffer = &pool->buffers[i];
        if (!buffer->in_use && digits(buffer->data.cols) == digits(count)) return i;
    }
    return -1;
}

int cy_buffer_pool_acquire(cy_buffer_pool *pool, int64_t count)
{
    int index = first_free(pool, count);
    if (index < 0) {
        CY_ASSERT(pool->measuring != NULL && pool->buffer_count < pool->most);
        index = pool->buffer_count++;
        pool->buffers[index] =
            (cy_pool_buffer){.data = cy_view_alloc(pool->measuring, pool->dtype, 1, count)};
    }
    cy_pool_buffer *buffer = &pool->buffers[index];
    if (buffer->data.cols < count) {
        CY_ASSERT(pool->measuring != NULL);
        cy_view_alloc(pool->measuring, pool->dtype, 1, count - buffer->data.cols);
        buffer->data.cols = count;
    }
    buffer->in_use = true;
    return index;
}

cy_view cy_buffer_pool_view(const cy_buffer_pool *pool, int buffer, int64_t count)
{
    CY_ASSERT(pool->buffers[buffer].in_use);
    return cy_view_cols(pool->buffers[buffer].data, 0, count);
}

void cy_buffer_pool_release(cy_buffer_pool *pool, int buffer)
{
    CY_ASSERT(pool->buffers[buffer].in_use);
    pool->buffers[buffer].in_use = false;
}

size_t cy_buffer_pool_bytes(const cy_buffer_pool *pool)
{
    size_t bytes = 0;
    for (int i = 0; i < pool->buffer_count; i++)
        bytes += cy_view_bytes(pool->buffers[i].data);
    return bytes;
}

// ---- execution order

void cy_exec_order_free(cy_exec_order *order)
{
    cy_memory_free(order->units);
    *order = (cy_exec_order){0};
}

cy_status cy_exec_order_append(cy_exec_order *order, int unit)
{
    void *block = order->units;
    CY_TRY(cy_memory_grow(&block, &order->capacity, order->count + 1, sizeof(int)));
    order->units = block;
    order->units[order->count++] = unit;
    order->at = order->count;
    return CY_OK;
}

void cy_exec_order_rewind(cy_exec_order *order)
{
    order->at = 0;
}

void cy_exec_order_clear(cy_exec_order *order)
{
    order->count = order->at = 0;
}

void cy_exec_order_use(cy_exec_order *order, int unit)
{
    if (order->repeats && order->at == order->count) order->at = 0;
    const bool as_learned = order->at < order->count && order->units[order->at] == unit;
    order->at = as_learned ? order->at + 1 : order->count;
}

int cy_exec_order_next(const cy_exec_order *order, int ahead)
{
    const size_t at = order->at + (size_t)ahead;
    return at < order->count ? order->units[at] : -1;
}

// ---- gradients of stages 2 and 3

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
    // Within a backward pass the unit before this one is still in flight. The last unit of the
    // previous microbatch has had all of a forward pass, and this unit may need its buffer.
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

// ---- weights of stages 1 to 3

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

// Units much smaller than the others arrive at once: the unit after them is fetched as well.
static bool is_small(const cy_reducer *reducer, int unit)
{
    return reducer->units[unit].count < reducer->count / reducer->unit_count / 8;
}

// The unit of the use `ahead` uses after the present one if it is prefetched now, otherwise -1: the
// next unit is, and the one after it where that is small, and so on.
static int prefetch_unit(cy_reducer *reducer, int ahead)
{
    const cy_exec_order *order = order_now(reducer);
    if (ahead > 0 && !is_small(reducer, cy_exec_order_next(order, ahead - 1))) return -1;
    return cy_exec_order_next(order, ahead);
}

static cy_status prefetch_units(cy_reducer *reducer)
{
    int ahead = 0;
    for (int unit; (unit = prefetch_unit(reducer, ahead)) >= 0; ahead++)
        CY_TRY(fetch(reducer, unit));
    return CY_OK;
}

static bool is_needed_next(cy_reducer *reducer, int unit)
{
    int ahead = 0;
    for (int next; (next = prefetch_unit(reducer, ahead)) >= 0; ahead++) {
        if (next == unit) return true;
    }
    return false;
}

static cy_status use(cy_reducer *reducer, int unit)
{
    cy_whole_unit *whole = &reducer->whole_weights[unit];
    cy_exec_order_use(order_now(reducer), unit);
    CY_TRY(fetch(reducer, unit));
    CY_TRY(cy_group_wait(reducer->spec.group, reducer->spec.queue, &whole->request));
    whole->in_use = true;
    return prefetch_units(reducer);
}

static void give_back(cy_reducer *reducer, int unit)
{
    cy_whole_unit *whole = &reducer->whole_weights[unit];
    cy_buffer_pool_release(&reducer->weight_buffers, whole->buffer);
    whole->buffer = -1;
}

static void leave(cy_reducer *reducer, int unit)
{
    reducer->whole_weights[unit].in_use = false;
    if (!is_needed_next(reducer, unit)) give_back(reducer, unit);
}

static cy_status record_event(cy_reducer *reducer, cy_unit_event_kind kind, int unit)
{
    void *block = reducer->events;
    CY_TRY(cy_memory_grow(
        &block, &reducer->event_capacity, reducer->event_count + 1, sizeof(cy_unit_event)));
    reducer->events = block;
    reducer->events[reducer->event_count++] = (cy_unit_event){.kind = kind, .unit = unit};
    return CY_OK;
}

cy_status cy_zero_weights_before(cy_reducer *reducer, int unit)
{
    if (!reducer->spec.queue->dry) return use(reducer, unit);
    if (reducer->in_step) CY_TRY(record_event(reducer, CY_UNIT_USED, unit));
    return cy_exec_order_append(order_now(reducer), unit);
}

cy_status cy_zero_weights_after(cy_reducer *reducer, int unit)
{
    if (reducer->spec.queue->dry) {
        return reducer->in_step ? record_event(reducer, CY_UNIT_LEFT, unit) : CY_OK;
    }
    leave(reducer, unit);
    return CY_OK;
}

cy_status cy_zero_weights_replay(cy_reducer *reducer)
{
    // The other traffic of the step, with which this will be in flight, has been counted already.
    cy_staging_begin_beside(reducer->spec.queue->staging);
    cy_exec_order_rewind(&reducer->step_order);
    for (size_t i = 0; i < reducer->event_count; i++) {
        const cy_unit_event event = reducer->events[i];
        switch (event.kind) {
        case CY_UNIT_USED:
            CY_TRY(use(reducer, event.unit));
            break;
        case CY_UNIT_LEFT:
            leave(reducer, event.unit);
            break;
        }
    }
    cy_staging_end_beside(reducer->spec.queue->staging);
    return CY_OK;
}

// Whole units would hold the weights from before the update.
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

// Stages 1 and 2: every rank has updated its part of each bucket and gathers the others' parts.
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
