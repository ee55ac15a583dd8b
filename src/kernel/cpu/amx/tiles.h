// kernel/cpu/amx/tiles.h: the eight tile registers and what block products keep in them.
//
// Tiles 0 to 3 are sums of 16 x 16 fp32, 4 and 5 sixteen rows of left, 6 and 7 sixteen columns of
// right, each 32 deep. Two by two halves the loads of a product: four tiles loaded, four products.

#ifndef CY_KERNEL_CPU_AMX_TILES_H
#define CY_KERNEL_CPU_AMX_TILES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define TILE_ROWS 16
#define DEPTH     INT64_C(32)

typedef struct tile_config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

_Static_assert(sizeof(tile_config) == 64, "the processor reads 64 bytes");

// `upper` and `lower` are the rows of the first and of the second tile of left and of c.
static inline void configure(int64_t upper, int64_t lower)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = TILE_ROWS;
    }
    config.rows[0] = config.rows[1] = config.rows[4] = (uint8_t)upper;
    config.rows[2] = config.rows[3] = config.rows[5] = (uint8_t)lower;
    __asm__ volatile("" : : "m"(config) : "memory");
    _tile_loadconfig(&config);
}

// Sums of up to 32 rows, or 16 where `two` is false, by 32 columns; c_bytes from row to row. The
// compilers' tile intrinsics do not say that they read memory: what was written for them must be
// there first.
static inline __attribute__((always_inline)) void take_sums(
    const float *c, int64_t c_bytes, bool accumulate, const bool two)
{
    __asm__ volatile("" ::: "memory");
    if (accumulate) {
        const char *lower = (const char *)c + TILE_ROWS * c_bytes;
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        if (two) {
            _tile_loadd(2, lower, c_bytes);
            _tile_loadd(3, lower + 64, c_bytes);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if (two) {
            _tile_zero(2);
            _tile_zero(3);
        }
    }
}

static inline __attribute__((always_inline)) void put_sums(
    float *c, int64_t c_bytes, const bool two)
{
    char *lower = (char *)c + TILE_ROWS * c_bytes;
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    if (two) {
        _tile_stored(2, lower, c_bytes);
        _tile_stored(3, lower + 64, c_bytes);
    }
}

#endif
