// AdamW is bound by memory: one pass, at 70 % or more of the rate at which the same memory is
// copied.
//
// Times are of the processor, not of the wall, so that other work on the machine matters little;
// the best of several runs of each, taken in turn.

#define _GNU_SOURCE
#include "kernel/harness.h"

#include "kernel/open.h"

#include <time.h>

#define COUNT ((int64_t)4 << 20)
#define RUNS  15

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static void adamw_runs_at_the_rate_of_copying(void **state)
{
    (void)state;
    static bench at;
    cy_kernels table;
    bench_open(&at, NULL, 1);
    CY_CHECK_OK(cy_kernels_open(&at.queue, &table, "auto"));
    if (strcmp(table.name, "ref") == 0) skip(); // nothing tuned for this processor
    cy_view in[5];
    for (int i = 0; i < 5; i++) {
        in[i] = bench_make(&at, i == 0 ? CY_BF16 : CY_F32, 1, COUNT, 0);
        cy_fill(&at.queue, in[i], 0.01);
    }
    const cy_view scale = bench_make(&at, CY_F64, 1, 1, 0);
    *(double *)scale.data = 1.0;
    const cy_adamw_spec spec = {1e-3, 0.9, 0.95, 1e-8, 0.1, 3, 0, 0};
    double copying = 1e9, stepping = 1e9;
    for (int run = 0; run < RUNS; run++) {
        double start = cpu_seconds();
        cy_copy(&at.queue, in[2], in[1]);
        copying = smaller(copying, cpu_seconds() - start);
        start = cpu_seconds();
        cy_adamw(&at.queue, in[0], in[1], in[2], in[3], in[4], scale, &spec);
        stepping = smaller(stepping, cpu_seconds() - start);
    }
    // Four reads and three writes of fp32, one write of bf16; a copy is a read and a write.
    const double rate = (double)COUNT * 30.0 / stepping, copy = (double)COUNT * 8.0 / copying;
    print_message("AdamW %.1f GB/s, copying %.1f GB/s: %.0f %%\n", rate * 0x1p-30, copy * 0x1p-30,
        100.0 * rate / copy);
    assert_true(rate >= 0.7 * copy);
    cy_kernels_close(&at.queue);
    bench_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_runs_at_the_rate_of_copying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
