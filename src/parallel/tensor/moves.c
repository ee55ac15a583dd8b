#include "parallel/tensor/moves.h"

#include "base/assert.h"
#include "kernel/kernel.h"

typedef struct move_pair {
    const char *name;
    cy_tensor_move back;
} move_pair;

static const move_pair pairs[CY_TENSOR_MOVES] = {
    [CY_MOVE_COPY] = {"copy", CY_MOVE_SUM},
    [CY_MOVE_SUM] = {"sum", CY_MOVE_COPY},
    [CY_MOVE_TAKE_COLS] = {"take_cols", CY_MOVE_GATHER_COLS},
    [CY_MOVE_GATHER_COLS] = {"gather_cols", CY_MOVE_TAKE_COLS},
    [CY_MOVE_GATHER_ROWS] = {"gather_rows", CY_MOVE_SCATTER_SUM},
    [CY_MOVE_SCATTER_SUM] = {"scatter_sum", CY_MOVE_GATHER_ROWS},
};

const char *cy_tensor_move_name(cy_tensor_move move)
{
    return pairs[move].name;
}

cy_tensor_move cy_tensor_move_back(cy_tensor_move move)
{
    return pairs[move].back;
}

static void copy(cy_queue *queue, cy_view y, cy_view x)
{
    if (y.data != x.data) cy_copy(queue, y, x);
}

// Blocks arrive rank after rank and go to their columns.
static cy_status gather_cols(cy_group *group, cy_queue *queue, cy_view y, cy_view x)
{
    const int size = cy_group_size(group);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view blocks = cy_view_take(queue->scratch, x.dtype, size * x.rows, x.cols);
    CY_TRY(cy_group_all_gather(group, queue, blocks, x));
    for (int rank = 0; rank < size; rank++) {
        cy_copy(queue, cy_view_cols(y, rank * x.cols, x.cols),
            cy_view_rows(blocks, rank * x.rows, x.rows));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

cy_status cy_tensor_move_run(
    cy_tensor_move move, cy_group *group, cy_queue *queue, cy_view y, cy_view x)
{
    const int size = cy_group_size(group);
    switch (move) {
    case CY_MOVE_COPY:
        copy(queue, y, x);
        return CY_OK;
    case CY_MOVE_SUM:
        copy(queue, y, x);
        return cy_group_all_reduce(group, queue, y, CY_SUM);
    case CY_MOVE_TAKE_COLS:
        CY_ASSERT(y.cols * size == x.cols);
        cy_copy(queue, y, cy_view_cols(x, cy_group_rank(group) * y.cols, y.cols));
        return CY_OK;
    case CY_MOVE_GATHER_COLS:
        CY_ASSERT(x.cols * size == y.cols);
        return gather_cols(group, queue, y, x);
    case CY_MOVE_GATHER_ROWS:
        return cy_group_all_gather(group, queue, y, x);
    case CY_MOVE_SCATTER_SUM:
        return cy_group_reduce_scatter(group, queue, y, x, CY_SUM);
    }
    return CY_OK;
}
