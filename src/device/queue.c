// Runs a kernel's tasks on the thread pool of a queue, and advances the heartbeat of the rank.

#include "device/queue.h"

void cy_queue_run(cy_queue *queue, cy_pool_task task, void *context, int64_t count)
{
    if (queue->dry) return;
    if (queue->beat != NULL) atomic_fetch_add_explicit(queue->beat, 1, memory_order_relaxed);
    cy_pool_run(queue->pool, task, context, count);
}

int cy_queue_workers(const cy_queue *queue)
{
    return cy_pool_size(queue->pool);
}
