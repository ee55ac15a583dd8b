// What a call of an operator costs on a device that works later, beside a call on the CPU: the same
// fill of one element, many times.
//
// Usage: launch
//
// Told in nanoseconds of the thread that calls, as the system counts its time, the median of
// ROUNDS: a call on the CPU, which does the work; and a call on the test device, which packs a
// launch record and gives it to the queue's thread.

#define _GNU_SOURCE
#include "base/thread_pool.h"
#include "device/device.h"
#include "kernel/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    ROUNDS = 21,
    CALLS = 1000, // fewer than the queue holds, so that no call waits
    BYTES = 1 << 20,
};

static void need(cy_status status)
{
    if (status == CY_OK) return;
    fprintf(stderr, "launch: %s\n", cy_error_text());
    exit(1);
}

static double thread_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double call_ns(const char *name)
{
    cy_device *device = NULL;
    cy_kernels table;
    cy_arena scratch;
    cy_queue queue = {.scratch = &scratch};
    void *memory = NULL;
    need(cy_device_open(&device, name, 1));
    need(cy_device_alloc(device, &memory, BYTES));
    need(cy_thread_pool_open(&queue.pool, 1, -1, false));
    cy_arena_init_remote(&scratch, "scratch", (char *)memory + BYTES / 2, BYTES / 2);
    need(cy_queue_open(&queue, device));
    need(cy_kernels_open(&queue, &table, "auto"));
    cy_kernels_defer(&queue);
    const cy_view cell = cy_view_of(memory, CY_F32, 1, 1);
    double rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const double start = thread_ns();
        for (int k = 0; k < CALLS; k++)
            cy_fill(&queue, cell, 1.0);
        rounds[i] = (thread_ns() - start) / CALLS;
        need(cy_queue_synchronize(&queue));
    }
    cy_queue_close(&queue);
    cy_kernels_close(&queue);
    cy_thread_pool_close(queue.pool);
    cy_device_free(device, memory, BYTES);
    cy_device_close(device);
    qsort(rounds, ROUNDS, sizeof(*rounds), ascending);
    return rounds[ROUNDS / 2];
}

int main(void)
{
    printf("a call on the CPU          %6.0f ns\n", call_ns("cpu"));
    printf("a call on the test device  %6.0f ns\n", call_ns("test"));
    return 0;
}
