// How a product is cut into tasks: all of it, once, in chunks that suit who works on them.
#include "support/support.h"

#include "kernel/cpu/gemm/matmul.h"

#include <stdlib.h>

// Every element of c is in one tile.
static void check_cover(const cy_tiles *tiles, int64_t rows, int64_t cols)
{
    unsigned char *seen = calloc((size_t)(rows * cols), 1);
    assert_non_null(seen);
    assert_int_equal(cy_tiles_count(tiles), tiles->row_count * tiles->col_count);
    for (int64_t i = 0; i < cy_tiles_count(tiles); i++) {
        const cy_tile tile = cy_tiles_at(tiles, i, rows, cols);
        assert_true(tile.rows > 0 && tile.rows <= tiles->rows);
        assert_true(tile.cols > 0 && tile.cols <= tiles->cols);
        for (int64_t row = tile.row; row < tile.row + tile.rows; row++) {
            for (int64_t col = tile.col; col < tile.col + tile.cols; col++)
                seen[row * cols + col]++;
        }
    }
    for (int64_t i = 0; i < rows * cols; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void tiles_cover_a_product_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 31, 64, 129, 500, 1024};
    for (int keep = 0; keep < 2; keep++) {
        for (int i = 0; i < 36; i++) {
            const int64_t rows = sizes[i / 6], cols = sizes[i % 6];
            const cy_tiles tiles = cy_tiles_cut(rows, cols, 256, 512, 8, keep == 1);
            if (tiles.row_count > 1) assert_int_equal(tiles.rows % 32, 0);
            if (tiles.col_count > 1) assert_int_equal(tiles.cols % 64, 0);
            assert_true(tiles.rows <= 256 && tiles.cols <= 512);
            check_cover(&tiles, rows, cols);
        }
    }
}

static void check_tile(
    cy_tiles tiles, int64_t rows, int64_t cols, int64_t row_count, int64_t col_count)
{
    assert_int_equal(tiles.rows, rows);
    assert_int_equal(tiles.cols, cols);
    assert_int_equal(tiles.row_count, row_count);
    assert_int_equal(tiles.col_count, col_count);
}

static void the_longer_side_is_halved_or_the_columns(void **state)
{
    (void)state;
    // Enough as they are.
    check_tile(cy_tiles_cut(2048, 1024, 1024, 512, 4, false), 1024, 512, 2, 2);
    // Rows are halved while columns are fewer than twice as many, otherwise columns.
    check_tile(cy_tiles_cut(2048, 512, 1024, 512, 8, false), 256, 512, 8, 1);
    check_tile(cy_tiles_cut(1024, 1024, 256, 1024, 8, false), 256, 512, 4, 2);
    // Who keeps rows has columns halved, down to 128, and then rows.
    check_tile(cy_tiles_cut(2048, 512, 1024, 512, 8, true), 1024, 128, 2, 4);
    check_tile(cy_tiles_cut(2048, 512, 1024, 512, 16, true), 512, 128, 4, 4);
    // Not below 64 x 128, however many are wanted.
    check_tile(cy_tiles_cut(128, 256, 1024, 512, 1000, false), 64, 128, 2, 2);
    check_tile(cy_tiles_cut(32, 100, 1024, 512, 1000, true), 32, 100, 1, 1);
    // What just fits is not cut, nor rounded up.
    check_tile(cy_tiles_cut(100, 200, 100, 200, 1, false), 100, 200, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_cover_a_product_once),
        cmocka_unit_test(the_longer_side_is_halved_or_the_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
