// device/queue.h: the order in which a rank's work is done.
//
// Every kernel and every collective takes a queue, which runs its work in the order of the calls.
// On the CPU the rank's pool has done the work when the call returns; other devices (device.h) do
// it later. A queue belongs to one rank, and one thread uses it.
//
// A dry queue only counts: kernels allocate scratch memory and add their cost, groups count bytes,
// and no data is touched. A training step on a dry queue over measuring arenas gives the peak of
// every arena before a job starts.

#ifndef CY_DEVICE_QUEUE_H
#define CY_DEVICE_QUEUE_H

#include "base/memory.h"
#include "base/thread_pool.h"
#include "base/trace.h"

#include <stdatomic.h>
#include <stdint.h>

struct cy_device;  // device/device.h
struct cy_kernels; // kernel/kernel.h
struct cy_staging; // comm/staged.h

typedef struct cy_queue {
    struct cy_device *device;         // borrowed; NULL: the CPU
    void *stream;                     // owned by the device; NULL for the CPU
    const struct cy_kernels *kernels; // borrowed: the operator table of this device
    // borrowed: the CPU's table, which a device that defers launches from and which a dry queue
    // runs; NULL where it is `kernels` itself
    const struct cy_kernels *direct;
    struct cy_staging *staging; // borrowed; NULL where the host reaches the device's memory
    void *kernel_state;         // owned by the caller of cy_kernels_open; per rank
    cy_thread_pool *pool;       // borrowed: the rank's threads
    cy_arena *scratch;          // borrowed: memory inside an operator or a layer
    cy_trace *trace;            // borrowed; NULL without a trace
    bool dry;                   // counts and does not compute
    cy_cost planned;            // the cost that a dry queue has counted
    // borrowed, device memory: becomes 1 when a fixed-point sum leaves its head room (strict mode);
    // NULL where nobody asks
    _Atomic uint32_t *fixed_overflow;
    _Atomic uint64_t
        *heartbeat; // borrowed; NULL or the heartbeat counter of the rank, see comm/world.h
} cy_queue;

// Notes that a fixed-point sum left its head room. For code that runs as the work of a CPU's queue.
static inline void cy_queue_note_overflow(const cy_queue *queue)
{
    if (queue->fixed_overflow == NULL) return;
    atomic_store_explicit(queue->fixed_overflow, 1u, memory_order_relaxed);
}

// Runs task(context, i, worker) for 0 <= i < count on the pool. A dry queue runs nothing.
void cy_queue_run(cy_queue *queue, cy_task task, void *context, int64_t count);

// The number of threads that cy_queue_run may use: a kernel takes as many per-worker scratch
// buffers.
int cy_queue_workers(const cy_queue *queue);

#endif
