// kernel/cpu/grid.h: cutting a matrix into chunks for the pool.
//
// The cut depends on the matrix alone, never on the number of threads, and neither do the results.

#ifndef CY_KERNEL_CPU_GRID_H
#define CY_KERNEL_CPU_GRID_H

#include "device/view.h"

// Elements of a chunk: enough to be worth handing out, small enough to stay in the second cache.
#define CHUNK 16384

typedef struct grid {
    int64_t row_step, col_step;
    int64_t across; // chunks side by side
    int64_t count;
} grid;

typedef struct chunk {
    int64_t row, row_end;
    int64_t col, col_end;
} chunk;

static inline int64_t chunks_of(int64_t size, int64_t step)
{
    return (size + step - 1) / step;
}

// Whole rows where a row is not longer than a chunk.
static inline grid grid_of(int64_t rows, int64_t cols)
{
    grid made = {.row_step = cols >= CHUNK ? 1 : CHUNK / cols, .col_step = CHUNK};
    made.across = chunks_of(cols, made.col_step);
    made.count = made.across * chunks_of(rows, made.row_step);
    return made;
}

// Whole rows always: for what needs a row at a time.
static inline grid grid_of_rows(int64_t rows, int64_t cols)
{
    grid made = {.row_step = cols >= CHUNK ? 1 : CHUNK / cols, .col_step = cols, .across = 1};
    made.count = chunks_of(rows, made.row_step);
    return made;
}

static inline chunk chunk_at(grid of, int64_t rows, int64_t cols, int64_t number)
{
    chunk at = {
        .row = number / of.across * of.row_step,
        .col = number % of.across * of.col_step,
    };
    at.row_end = at.row + of.row_step < rows ? at.row + of.row_step : rows;
    at.col_end = at.col + of.col_step < cols ? at.col + of.col_step : cols;
    return at;
}

#endif
