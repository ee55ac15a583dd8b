// bench/claims/figures.h: what the programs of this folder share.
//
// Each measures claims about time and prints one line a figure, `name value unit`, which
// scripts/bench.sh collects and scripts/bench_check.sh holds against bench/bounds.txt.

#ifndef CY_BENCH_CLAIMS_FIGURES_H
#define CY_BENCH_CLAIMS_FIGURES_H

#include "base/numbers.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

// Other work on the machine can disturb one measurement: figures are medians of so many.
#define FIGURE_ROUNDS 5

// Sorts `values`.
static inline void figure_median(const char *name, double *values, int count, const char *unit)
{
    printf("%s %.6g %s\n", name, cy_median(values, count), unit);
    fflush(stdout);
}

// Ends the program with the reason where something failed: no figure is better than a wrong one.
static inline void figure_need(cy_status status)
{
    if (status == CY_OK) return;
    fprintf(stderr, "error: %s\n", cy_error_text());
    exit(1);
}

#endif
