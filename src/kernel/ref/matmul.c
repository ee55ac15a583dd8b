#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

#include <string.h>

// Tiles of a task: small enough for the stack and the first caches. The sum over k ascends whatever
// the tiles, so they do not change the result.
#define ROWS  32
#define COLS  64
#define DEPTH 64

typedef struct product {
    cy_queue *queue;
    cy_view c, a, b; // [m, n], a and b as stored
    cy_matmul_spec spec;
    int64_t depth; // k
    int64_t col_tiles;
} product;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// tile [ROWS, DEPTH] = a[row + i, depth + p] of the product, whichever way a is stored
static void load_a(double tile[ROWS][DEPTH], const product *of, int64_t row, int64_t depth,
    int64_t rows, int64_t depths)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t p = 0; p < depths; p++) {
            tile[i][p] = of->spec.transpose_a ? cy_ref_load(of->a, depth + p, row + i)
                                              : cy_ref_load(of->a, row + i, depth + p);
        }
    }
}

static void load_b(double tile[DEPTH][COLS], const product *of, int64_t depth, int64_t col,
    int64_t depths, int64_t cols)
{
    for (int64_t p = 0; p < depths; p++) {
        for (int64_t j = 0; j < cols; j++) {
            tile[p][j] = of->spec.transpose_b ? cy_ref_load(of->b, col + j, depth + p)
                                              : cy_ref_load(of->b, depth + p, col + j);
        }
    }
}

static void multiply_tile(void *context, int64_t task, int worker)
{
    (void)worker;
    const product *of = context;
    const int64_t row = task / of->col_tiles * ROWS, col = task % of->col_tiles * COLS;
    const int64_t rows = smaller(ROWS, of->c.rows - row), cols = smaller(COLS, of->c.cols - col);
    double sum[ROWS][COLS], a[ROWS][DEPTH], b[DEPTH][COLS];
    memset(sum, 0, sizeof(sum));
    memset(b, 0, sizeof(b)); // the loop over j is always COLS long
    for (int64_t depth = 0; depth < of->depth; depth += DEPTH) {
        const int64_t depths = smaller(DEPTH, of->depth - depth);
        load_a(a, of, row, depth, rows, depths);
        load_b(b, of, depth, col, depths, cols);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t p = 0; p < depths; p++) {
                for (int j = 0; j < COLS; j++)
                    sum[i][j] += a[i][p] * b[p][j];
            }
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            if (of->spec.accumulate) {
                cy_ref_add(of->queue, of->c, row + i, col + j, sum[i][j]);
            } else {
                cy_ref_store(of->queue, of->c, row + i, col + j, sum[i][j]);
            }
        }
    }
}

void cy_ref_matmul(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    product of = {
        .queue = queue,
        .c = c,
        .a = a,
        .b = b,
        .spec = spec,
        .depth = spec.transpose_a ? a.rows : a.cols,
        .col_tiles = (c.cols + COLS - 1) / COLS,
    };
    const int64_t row_tiles = (c.rows + ROWS - 1) / ROWS;
    cy_queue_run(queue, multiply_tile, &of, row_tiles * of.col_tiles);
}
