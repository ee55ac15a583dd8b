// tests/kernel/tuned.h: what the tests of the tuned operators share: the reference, and the
// operators of an instruction set on one thread and on three.

#ifndef CY_TESTS_KERNEL_TUNED_H
#define CY_TESTS_KERNEL_TUNED_H

#include "kernel/harness.h"
#include "kernel/dispatch.h"

static inline cy_view vector(bench *at, cy_dtype dtype, int64_t cols)
{
    return bench_random(at, dtype, 1, cols, 0, 1.0);
}

static inline cy_view scalar(bench *at, cy_dtype dtype, double value)
{
    const cy_view view = bench_make(at, dtype, 1, 1, 0);
    if (!at->queue.dry) cy_ref_fill(&at->queue, view, value);
    return view;
}

typedef struct runner {
    bench ref, one, three; // one and three threads
    cy_kernels tables[2];
} runner;

// False where this processor has not got the instruction set.
static inline bool open_runner(runner *on, const char *isa)
{
    bench_open(&on->ref, cy_kernels_ref(), 2);
    bench_open(&on->one, NULL, 1);
    bench_open(&on->three, NULL, 3);
    isa = cy_test_isa(isa);
    if (isa == NULL) return false;
    const cy_status status = cy_kernels_open(&on->one.queue, &on->tables[0], isa);
    if (status == CY_ERR_UNSUPPORTED) return false;
    CY_CHECK_OK(status);
    CY_CHECK_OK(cy_kernels_open(&on->three.queue, &on->tables[1], isa));
    return true;
}

static inline void close_runner(runner *on)
{
    cy_kernels_close(&on->one.queue);
    cy_kernels_close(&on->three.queue);
    bench_close(&on->ref);
    bench_close(&on->one);
    bench_close(&on->three);
}

#endif
