#include "device/queue.h"

void cy_queue_run(cy_queue *queue, cy_pool_task task, void *context, int64_t count)
{
    if (queue->dry) return;
    cy_pool_run(queue->pool, task, context, count);
}

int cy_queue_workers(const cy_queue *queue)
{
    return cy_pool_size(queue->pool);
}
