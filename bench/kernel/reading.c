// How fast the threads read memory, by how they read: plainly, as `cyclotron doctor` measures it,
// with lines asked for ahead, and as decoding does, whose rows are multiplied. GB (2^30) a second.
//
// Usage: reading [THREADS]
//
// The ways take turns, for what memory gives differs from one moment to the next.

#include "numbers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/peak.h"

#include <stdio.h>
#include <stdlib.h>

#define BYTES  ((int64_t)1 << 28)
#define ROUNDS 21
#define AHEAD  8192

typedef struct way {
    const char *name;
    cy_task task;  // of a thread's share; NULL: cy_read_bandwidth_measure
    int64_t depth; // of the rows that are multiplied
    cy_dtype dtype;
    double rate[ROUNDS]; // bytes a second
} way;

typedef struct share {
    char *data;
    int64_t bytes; // of each thread
    const way *how;
    const cy_microkernel *ops;
    const float *a;  // [depth]
    float *sums;     // [threads, BYTES / sizeof(float)], of which little is used
    uint64_t *words; // [threads]: what was read, so that it has to be
} share;

static void ask_ahead(void *context, int64_t task, int worker)
{
    (void)task;
    const share *self = context;
    const char *from = self->data + worker * self->bytes;
    uint64_t sums[16] = {0};
    for (int64_t i = 0; i + 128 <= self->bytes; i += 128) {
        const uint64_t *words = (const uint64_t *)(const void *)(from + i);
        for (int64_t line = 0; line < 2; line++) {
            for (int64_t j = 0; j < 8; j++)
                sums[8 * line + j] += words[8 * line + j];
            __builtin_prefetch(from + i + 64 * line + AHEAD, 0, 2);
            __asm__ volatile("" ::: "memory"); // or both lines are asked for at once, first
        }
    }
    for (int j = 1; j < 16; j++)
        sums[0] += sums[j];
    self->words[worker] = sums[0];
}

static void multiply_rows(void *context, int64_t task, int worker)
{
    (void)task;
    const share *self = context;
    const way *how = self->how;
    const int64_t rows = self->bytes / (how->depth * (int64_t)cy_dtype_size(how->dtype));
    const cy_view b = cy_view_of(self->data + worker * self->bytes, how->dtype, rows, how->depth);
    self->ops->dot(self->sums + worker * (self->bytes / 4), self->a, 1, b, NULL);
}

static cy_status measure(double *rate, const cy_queue *queue, share *of)
{
    const int threads = cy_thread_pool_size(queue->pool);
    if (of->how->task == NULL) {
        return cy_read_bandwidth_measure(rate, queue, of->data, (size_t)(of->bytes * threads), 1);
    }
    const int64_t start = cy_clock_ns();
    cy_thread_pool_run_team(queue->pool, of->how->task, of);
    *rate = (double)(of->bytes * threads) / (double)(cy_clock_ns() - start) * 1e9;
    return CY_OK;
}

static const cy_microkernel *best_ops(void)
{
#if defined(__x86_64__)
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    if (cpu.avx512) return cy_microkernel_avx512();
    if (cpu.avx2) return cy_microkernel_avx2();
#endif
    return NULL;
}

static cy_status run(int threads, const cy_microkernel *ops, way *ways, int count)
{
    const int64_t bytes = BYTES / threads / 4096 * 4096;
    void *data, *sums, *words, *a;
    cy_queue queue = {0};
    CY_TRY(cy_thread_pool_open(&queue.pool, threads, 0, true));
    CY_TRY(cy_memory_map(&data, (size_t)BYTES));
    CY_TRY(cy_memory_map(&sums, (size_t)BYTES));
    CY_TRY(cy_memory_alloc(&words, (size_t)threads, sizeof(uint64_t)));
    CY_TRY(cy_memory_alloc(&a, 4096, sizeof(float)));
    fill_numbers(data, (size_t)BYTES, false);
    fill_numbers(a, 4096 * sizeof(float), false);
    share of = {.data = data, .bytes = bytes, .ops = ops, .a = a, .sums = sums, .words = words};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            of.how = &ways[i];
            CY_TRY(measure(&ways[i].rate[round], &queue, &of));
        }
    }
    cy_memory_free(a);
    cy_memory_free(words);
    cy_memory_unmap(sums, (size_t)BYTES);
    cy_memory_unmap(data, (size_t)BYTES);
    cy_thread_pool_close(queue.pool);
    return CY_OK;
}

int main(int argument_count, char **arguments)
{
    const int threads = argument_count > 1 ? atoi(arguments[1]) : 2;
    const cy_microkernel *ops = best_ops();
    way ways[] = {
        {.name = "read plainly"},
        {.name = "read, lines asked for ahead", .task = ask_ahead},
        {.name = "rows of 576 bf16 multiplied",
            .task = multiply_rows,
            .depth = 576,
            .dtype = CY_BF16},
        {.name = "rows of 1536 bf16 multiplied",
            .task = multiply_rows,
            .depth = 1536,
            .dtype = CY_BF16},
        {.name = "rows of 576 fp32 multiplied",
            .task = multiply_rows,
            .depth = 576,
            .dtype = CY_F32},
    };
    const int count = ops == NULL ? 2 : (int)(sizeof(ways) / sizeof(ways[0]));
    if (threads < 1 || run(threads, ops, ways, count) != CY_OK) {
        fprintf(stderr, "reading: %s\n", threads < 1 ? "no threads" : cy_error_text());
        return 1;
    }
    const double gb = 1024.0 * 1024 * 1024;
    printf("%-30s %8s %8s\n", "GB (2^30) a second", "median", "best");
    for (int i = 0; i < count; i++) {
        const double median = cy_median(ways[i].rate, ROUNDS); // sorts them
        printf("%-30s %8.2f %8.2f\n", ways[i].name, median / gb, ways[i].rate[ROUNDS - 1] / gb);
    }
    return 0;
}
