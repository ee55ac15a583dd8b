// parallel/tensor/ordered_sum.h: adding what ranks sent in the order in which collectives add.
//
// So a sum has the same bits whoever computes it: comm/reduce.h has the order. Nothing is owned.

#ifndef CY_PARALLEL_TENSOR_ORDERED_SUM_H
#define CY_PARALLEL_TENSOR_ORDERED_SUM_H

#include "device/queue.h"
#include "device/view.h"

// The part that a rank sent, of the shape of `to`.
typedef cy_view (*cy_partial_view)(const void *context, int from);

// to [rows, cols] = the sum of the parts of `count` ranks, two or more, rounded once. `to` is none
// of the parts. Takes scratch memory for less than `count` wide parts.
void cy_tensor_add_partials(
    cy_queue *queue, cy_view to, cy_partial_view part, const void *context, int count);

#endif
