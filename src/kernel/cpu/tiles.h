// kernel/cpu/tiles.h: how a product is cut into tasks.
//
// A pure function of the shape: never of the number of workers, so results are the same whatever
// their number is. Tasks are numbered down the rows of c within one column of tiles, so that
// workers that run at the same time share the tile of b that is in the shared cache.

#ifndef CY_KERNEL_CPU_TILES_H
#define CY_KERNEL_CPU_TILES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cy_tiles {
    int64_t rows, cols;           // of one tile; the last ones may be smaller
    int64_t row_count, col_count; // of tiles
} cy_tiles;

typedef struct cy_tile {
    int64_t row, rows; // rows [row, row + rows) of c
    int64_t col, cols;
} cy_tile;

// Tiles of at most rows_max x cols_max, multiples of 32 x 64 where there is more than one. Halves
// them until there are at least `wanted`, so that the last ones to finish leave little idle time,
// but not below 64 x 128: below that the product's own overhead weighs more. `keep_rows` halves
// columns as long as it can: for who packs b anew in every row of tiles.
cy_tiles cy_tiles_cut(
    int64_t rows, int64_t cols, int64_t rows_max, int64_t cols_max, int64_t wanted, bool keep_rows);

int64_t cy_tiles_count(const cy_tiles *tiles);

// Tile number `index` of a product of `rows` x `cols`.
cy_tile cy_tiles_at(const cy_tiles *tiles, int64_t index, int64_t rows, int64_t cols);

#endif
