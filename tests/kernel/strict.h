// tests/kernel/strict.h: what the tests of strict mode share: its tables, as far as this processor
// has them, and the widest of them behind the test device, each with a bench of its own.

#ifndef CY_TESTS_KERNEL_STRICT_H
#define CY_TESTS_KERNEL_STRICT_H

#include "kernel/harness.h"
#include "kernel/mirror.h"

#include "base/platform.h"
#include "kernel/strict/math.h"
#include "kernel/strict/strict.h"

#include <stdio.h>

#define TABLES_MAX 4

typedef struct strict_tables {
    int count;
    cy_kernels kernels[TABLES_MAX];
    const char *names[TABLES_MAX];
    bench benches[TABLES_MAX]; // the first has one thread, the others more
    mirror device;             // of the last
} strict_tables;

static inline void tables_open(strict_tables *all)
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    memset(all, 0, sizeof(*all));
    all->names[all->count] = "portable";
    all->kernels[all->count] = *cy_kernels_ref();
    cy_strict_portable_override(&all->kernels[all->count++]);
#if defined(__aarch64__)
    if (cpu.neon) {
        all->names[all->count] = "neon";
        all->kernels[all->count] = *cy_kernels_ref();
        cy_strict_neon_override(&all->kernels[all->count++]);
    }
#elif defined(__x86_64__)
    if (cpu.avx2) {
        all->names[all->count] = "avx2";
        all->kernels[all->count] = *cy_kernels_ref();
        cy_strict_avx2_override(&all->kernels[all->count++]);
    }
    if (cpu.avx512) {
        all->names[all->count] = "avx512";
        all->kernels[all->count] = *cy_kernels_ref();
        cy_strict_avx512_override(&all->kernels[all->count++]);
    }
#endif
    for (int i = 0; i < all->count; i++)
        bench_open(&all->benches[i], &all->kernels[i], 1 + i);
    all->names[all->count] = "test device";
    CY_CHECK_OK(bench_open_mirror(
        &all->benches[all->count], &all->device, &all->kernels[all->count], "strict", 2));
    all->count++;
}

static inline void tables_close(strict_tables *all)
{
    bench_close_mirror(&all->benches[--all->count], &all->device);
    for (int i = 0; i < all->count; i++)
        bench_close(&all->benches[i]);
}

// Zeroed fixed point.
static inline cy_view make_fixed(bench *at, int64_t rows, int64_t cols, int64_t gap, int exponent)
{
    cy_view view = bench_make(at, CY_FX64, rows, cols, gap);
    view.exponent = exponent;
    for (int64_t i = 0; i < rows; i++)
        memset(cy_view_at(view, i, 0), 0, (size_t)cols * sizeof(int64_t));
    return view;
}

// Runs `fill_in` with each table from the same seed; its `outs` views must have the same bits.
typedef int (*strict_run)(bench *at, cy_view *outs, const void *setting);

static inline void expect_one_result(
    strict_tables *all, const char *what, strict_run fill_in, const void *setting)
{
    cy_view first[8], outs[8];
    for (int i = 0; i < all->count; i++) {
        bench *at = &all->benches[i];
        bench_clear(at);
        at->seed = 1;
        const int count = fill_in(at, i == 0 ? first : outs, setting);
        bench_check(at);
        for (int j = 0; i > 0 && j < count; j++) {
            char name[96];
            snprintf(
                name, sizeof(name), "%s, output %d, %s against portable", what, j, all->names[i]);
            expect_same_bits(name, outs[j], first[j]);
        }
    }
}

#endif
