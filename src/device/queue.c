// Runs a kernel's tasks on the thread pool of a queue, and advances the heartbeat of the rank.

#include "device/queue.h"

void cy_queue_run(cy_queue *queue, cy_task task, void *context, int64_t count)
{
    if (queue->dry) return;
    if (queue->heartbeat != NULL)
        atomic_fetch_add_explicit(queue->heartbeat, 1, memory_order_relaxed);
    cy_thread_pool_run(queue->pool, task, context, count);
}

int cy_queue_workers(const cy_queue *queue)
{
    return cy_thread_pool_size(queue->pool);
}
