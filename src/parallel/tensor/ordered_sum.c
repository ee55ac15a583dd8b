// Adding the parts of ranks: the first 2 e of 2^k + e in pairs, then pairs of what there is, and so
// on.

#include "parallel/tensor/ordered_sum.h"

#include "base/assert.h"
#include "kernel/kernel.h"

typedef struct order {
    cy_queue *queue;
    cy_view to;
    cy_partial_view part;
    const void *context; // borrowed
    int extra;           // the first 2 extra parts are added in pairs
} order;

// Where the sum of two parts goes: to the end of all, or to a place that does not round it.
static cy_view place_of_sum(const order *o, bool last)
{
    if (last) return o->to;
    const bool narrow = cy_dtype_size(o->to.dtype) < sizeof(float);
    cy_view made =
        cy_view_alloc(o->queue->scratch, narrow ? CY_F32 : o->to.dtype, o->to.rows, o->to.cols);
    made.exponent = o->to.exponent;
    return made;
}

// The sum of `places`, a power of two: each is the part of a rank, or of a pair of ranks.
static cy_view sum_places(const order *o, int place, int places, bool last)
{
    cy_view left;
    cy_view right;
    if (places > 1) {
        left = sum_places(o, place, places / 2, false);
        right = sum_places(o, place + places / 2, places / 2, false);
    } else if (place < o->extra) {
        left = o->part(o->context, 2 * place);
        right = o->part(o->context, 2 * place + 1);
    } else {
        return o->part(o->context, place + o->extra);
    }
    const cy_view sum = place_of_sum(o, last);
    cy_add(o->queue, sum, left, right);
    return sum;
}

void cy_tensor_add_partials(
    cy_queue *queue, cy_view to, cy_partial_view part, const void *context, int count)
{
    CY_ASSERT(count > 1);
    int core = 1;
    while (core * 2 <= count)
        core *= 2;
    const order o = {queue, to, part, context, count - core};
    const size_t mark = cy_arena_mark(queue->scratch);
    (void)sum_places(&o, 0, core, true);
    cy_arena_rewind(queue->scratch, mark);
}
