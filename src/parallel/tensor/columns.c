#include "parallel/tensor/columns.h"

#include "base/assert.h"
#include "kernel/kernel.h"

cy_status cy_tensor_gather_cols(cy_group *group, cy_queue *queue, cy_view y, cy_view x)
{
    const int size = cy_group_size(group);
    CY_ASSERT(x.cols * size == y.cols);
    const size_t mark = cy_arena_mark(queue->scratch);
    // Blocks arrive rank after rank and go to their columns.
    const cy_view blocks = cy_view_alloc(queue->scratch, x.dtype, size * x.rows, x.cols);
    CY_TRY(cy_group_all_gather(group, queue, blocks, x));
    for (int rank = 0; rank < size; rank++) {
        cy_copy(queue, cy_view_cols(y, rank * x.cols, x.cols),
            cy_view_rows(blocks, rank * x.rows, x.rows));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

void cy_tensor_scatter_cols(const cy_group *group, cy_queue *queue, cy_view y, cy_view x)
{
    CY_ASSERT(y.cols * cy_group_size(group) == x.cols);
    cy_copy(queue, y, cy_view_cols(x, cy_group_rank(group) * y.cols, y.cols));
}
