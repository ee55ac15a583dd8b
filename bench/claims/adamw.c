// Measures the bytes that AdamW moves a second against the rate at which the same memory is copied:
// the update is one pass over memory and bound by it.
//
// Times are of the processor, not of the wall, so that other work on the machine matters little;
// the best of several runs of each, taken in turn. The argument caps the operators, as
// distributed.isa does.

#define _GNU_SOURCE
#include "figures.h"

#include "kernel/harness.h"

#include "kernel/dispatch.h"

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

int main(int argc, char **argv)
{
    static bench at;
    cy_kernels table;
    bench_open(&at, NULL, 1);
    figure_need(cy_kernels_open(&at.queue, &table, argc > 1 ? argv[1] : "auto"));
    if (strcmp(table.name, "ref") == 0) { // nothing tuned for this processor
        printf("adamw.over_copying - nothing is tuned for this processor\n");
        return 0;
    }
    cy_view in[5];
    for (int i = 0; i < 5; i++) {
        in[i] = bench_make(&at, i == 0 ? CY_BF16 : CY_F32, 1, COUNT, 0);
        cy_fill(&at.queue, in[i], 0.01);
    }
    const cy_view scale = bench_make(&at, CY_F64, 1, 1, 0);
    *(double *)scale.data = 1.0;
    const cy_adamw_spec spec = {1e-3, 0.9, 0.95, 1e-8, 0.1, 3, {0}};
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
    printf("adamw.over_copying %.4f of-copying\n", rate / copy);
    printf("adamw.rate %.4f GB/s\n", rate * 1e-9);
    cy_kernels_close(&at.queue);
    bench_close(&at);
    return 0;
}
