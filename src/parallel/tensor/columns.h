// parallel/tensor/columns.h: between a matrix that is whole on every rank and one whose columns are
// split over the group. Each is the other's gradient: the columns of a whole gradient, taken, are
// those of the matrix that was gathered.
//
// Parts are equal. Matrices are dense and the caller's, but for the `x` of a taking; scratch memory
// is from the queue.

#ifndef CY_PARALLEL_TENSOR_COLUMNS_H
#define CY_PARALLEL_TENSOR_COLUMNS_H

#include "comm/group.h"

// y [rows, cols * size]: the columns of all ranks side by side, from x [rows, cols]. Fails when the
// group does.
CY_MUST_CHECK cy_status cy_tensor_gather_cols(
    cy_group *group, cy_queue *queue, cy_view y, cy_view x);

// y [rows, cols / size]: this rank's columns of x [rows, cols], which is the same on every rank.
void cy_tensor_scatter_cols(const cy_group *group, cy_queue *queue, cy_view y, cy_view x);

#endif
