#include "kernel/cpu/tiles.h"

#define ROWS_MIN 64
#define COLS_MIN 128

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// The smallest even split of `count` into chunks of at most `limit`, in multiples of `step`.
static int64_t split(int64_t count, int64_t limit, int64_t step)
{
    if (count <= limit) return count;
    const int64_t even = divide_up(count, divide_up(count, limit));
    return divide_up(even, step) * step;
}

cy_tiles cy_tiles_cut(
    int64_t rows, int64_t cols, int64_t rows_max, int64_t cols_max, int64_t wanted, bool keep_rows)
{
    cy_tiles tiles;
    for (;;) {
        tiles.rows = split(rows, rows_max, 32);
        tiles.cols = split(cols, cols_max, 64);
        tiles.row_count = divide_up(rows, tiles.rows);
        tiles.col_count = divide_up(cols, tiles.cols);
        if (tiles.row_count * tiles.col_count >= wanted) return tiles;
        // The longer side is halved first, the other where that one is short already.
        const bool low = tiles.rows / 2 < ROWS_MIN, narrow = tiles.cols / 2 < COLS_MIN;
        const bool wide = keep_rows || tiles.cols >= 2 * tiles.rows;
        if (low && narrow) return tiles;
        if (!narrow && (wide || low)) {
            cols_max = tiles.cols / 2;
        } else {
            rows_max = tiles.rows / 2;
        }
    }
}

int64_t cy_tiles_count(const cy_tiles *tiles)
{
    return tiles->row_count * tiles->col_count;
}

cy_tile cy_tiles_at(const cy_tiles *tiles, int64_t index, int64_t rows, int64_t cols)
{
    cy_tile tile = {
        .row = index % tiles->row_count * tiles->rows,
        .col = index / tiles->row_count * tiles->cols,
    };
    tile.rows = rows - tile.row < tiles->rows ? rows - tile.row : tiles->rows;
    tile.cols = cols - tile.col < tiles->cols ? cols - tile.col : tiles->cols;
    return tile;
}
