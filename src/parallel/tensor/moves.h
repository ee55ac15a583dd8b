// parallel/tensor/moves.h: what happens to a matrix between one side of a split layer and the
// other, and what then happens to its gradient: the pairs of Shoeybi et al. (f and g of
// "Megatron-LM", 2019) and Korthikanti et al. (g with a bar, 2022).
//
//   move           forward                                   backward
//   copy           the same x on every rank is used by all   sum
//   sum            partial sums become the sum on every rank copy
//   take_cols      own columns of a whole matrix             gather_cols
//   gather_cols    columns of all ranks, side by side        take_cols
//   gather_rows    tokens of all ranks, one after another    scatter_sum
//   scatter_sum    own tokens of the sum of partial sums     gather_rows
//
// Parts are equal. Matrices are dense and the caller's; scratch memory is from the queue. Fails
// when the group does.

#ifndef CY_PARALLEL_TENSOR_MOVES_H
#define CY_PARALLEL_TENSOR_MOVES_H

#include "comm/group.h"

typedef enum cy_tensor_move {
    CY_MOVE_COPY,
    CY_MOVE_SUM,
    CY_MOVE_TAKE_COLS,
    CY_MOVE_GATHER_COLS,
    CY_MOVE_GATHER_ROWS,
    CY_MOVE_SCATTER_SUM,
} cy_tensor_move;

#define CY_TENSOR_MOVES 6

// As in the table above. Static storage.
const char *cy_tensor_move_name(cy_tensor_move move);

// The move of the gradient, from the side of y to the side of x.
cy_tensor_move cy_tensor_move_back(cy_tensor_move move);

// y = move of x [rows, cols]. y is [rows, cols] of copy and sum, [rows, cols / size] of take_cols,
// [rows, cols * size] of gather_cols, [rows * size, cols] of gather_rows and [rows / size, cols] of
// scatter_sum. y may be x for copy and sum.
CY_MUST_CHECK cy_status cy_tensor_move_run(
    cy_tensor_move move, cy_group *group, cy_queue *queue, cy_view y, cy_view x);

#endif
