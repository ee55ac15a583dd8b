#include "kernel/cpu/block.h"

#include "base/assert.h"
#include "kernel/cpu/avx512/pack.h"

#include <immintrin.h>
#include <string.h>

// Tiles 0 to 3 are sums of 16 x 16 fp32, 4 and 5 sixteen rows of left, 6 and 7 sixteen columns of
// right, each 32 deep. Two by two halves the loads of a product: four tiles loaded, four products.
#define TILE_ROWS 16
#define DEPTH     32

// Depth of one pass: up to 40 KiB of right in the first-level cache while left streams by. Deeper
// ones are cut evenly, because sums go out to memory and back between two passes.
#define MICRO_DEPTH 640

// The compilers' tile intrinsics do not say that they read memory: what was written for them must
// be there first.
static inline void written(void)
{
    __asm__ volatile("" ::: "memory");
}

typedef struct tile_config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

_Static_assert(sizeof(tile_config) == 64, "the processor reads 64 bytes");

// `upper` and `lower` are the rows of the first and of the second tile of left and of c.
static void configure(int64_t upper, int64_t lower)
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

static void enter(void)
{
    configure(TILE_ROWS, TILE_ROWS);
}

static void leave(void)
{
    _tile_release();
}

// Up to 32 rows (16 where `two` is false) by 32 columns; left_bytes and c_bytes from row to row.
static inline __attribute__((always_inline)) void micro(float *c, int64_t c_bytes, const char *left,
    int64_t left_bytes, const char *right, int64_t depth, bool accumulate, const bool two)
{
    written();
    float *c_lower = (float *)(void *)((char *)c + TILE_ROWS * c_bytes);
    if (accumulate) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        if (two) {
            _tile_loadd(2, c_lower, c_bytes);
            _tile_loadd(3, c_lower + 16, c_bytes);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if (two) {
            _tile_zero(2);
            _tile_zero(3);
        }
    }
    const char *lower = left + TILE_ROWS * left_bytes;
    for (int64_t k = 0; k < depth; k += DEPTH) {
        _tile_loadd(4, left + 2 * k, left_bytes);
        _tile_loadd(6, right + k * 64, 128);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, right + k * 64 + 64, 128);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(5, lower + 2 * k, left_bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    if (two) {
        _tile_stored(2, c_lower, c_bytes);
        _tile_stored(3, c_lower + 16, c_bytes);
    }
}

// A block at the right edge, through a buffer of full width.
static void micro_edge(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    float buffer[32 * 32] __attribute__((aligned(64)));
    if (accumulate) {
        for (int64_t i = 0; i < rows; i++) {
            memcpy(buffer + 32 * i, c + i * c_stride, (size_t)cols * sizeof(float));
        }
    }
    if (rows > TILE_ROWS) {
        micro(buffer, 128, left, left_bytes, right, depth, accumulate, true);
    } else {
        micro(buffer, 128, left, left_bytes, right, depth, accumulate, false);
    }
    for (int64_t i = 0; i < rows; i++) {
        memcpy(c + i * c_stride, buffer + 32 * i, (size_t)cols * sizeof(float));
    }
}

// Rows [row, row + 32) or fewer of one panel.
static void panel_rows(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    if (cols < CY_BLOCK_COLS) {
        micro_edge(c, c_stride, left, left_bytes, right, rows, cols, depth, accumulate);
    } else if (rows > TILE_ROWS) {
        micro(c, c_stride * 4, left, left_bytes, right, depth, accumulate, true);
    } else {
        micro(c, c_stride * 4, left, left_bytes, right, depth, accumulate, false);
    }
}

// Rows that the tiles' shapes suit: whole times 32, or fewer than 32.
static void multiply_rows(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    const int64_t passes = (depth + MICRO_DEPTH - 1) / MICRO_DEPTH;
    const int64_t depth_step = cy_round_up((depth + passes - 1) / passes, DEPTH);
    for (int64_t k = 0; k < depth; k += depth_step) {
        const int64_t steps = depth - k < depth_step ? depth - k : depth_step;
        for (int64_t col = 0; col < cols; col += CY_BLOCK_COLS) {
            const int64_t width = cols - col < CY_BLOCK_COLS ? cols - col : CY_BLOCK_COLS;
            const char *panel = right + (col * depth + k * CY_BLOCK_COLS) * 2;
            for (int64_t row = 0; row < rows; row += 32) {
                panel_rows(c + row * c_stride + col, c_stride, left + row * left_bytes + k * 2,
                    left_bytes, panel, rows - row < 32 ? rows - row : 32, width, steps,
                    accumulate || k > 0);
            }
        }
    }
}

static void multiply(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    CY_DEBUG_ASSERT(depth > 0 && depth % DEPTH == 0);
    const int64_t full = rows / 32 * 32, tail = rows - full, left_bytes = left_stride * 2;
    if (full > 0) {
        multiply_rows(c, c_stride, left, left_bytes, right, full, cols, depth, accumulate);
    }
    if (tail == 0) return;
    // The last rows have tiles of their own shape: all of them at once, after the full ones.
    configure(tail < TILE_ROWS ? tail : TILE_ROWS, tail > TILE_ROWS ? tail - TILE_ROWS : 1);
    multiply_rows(c + full * c_stride, c_stride, (const char *)left + full * left_bytes, left_bytes,
        right, tail, cols, depth, accumulate);
    configure(TILE_ROWS, TILE_ROWS);
}

static void pack_left(void *left, cy_view source, bool transposed)
{
    cy_pack_left_bf16_avx512(left, source, transposed, DEPTH);
}

static void pack_right(void *right, cy_view source, bool transposed)
{
    cy_pack_right_bf16_avx512(right, source, transposed, DEPTH);
}

const cy_block_ops *cy_block_amx(void)
{
    static const cy_block_ops ops = {
        .isa = "amx",
        .dtype = CY_BF16,
        .depth_step = DEPTH,
        .slice_depth = 1024,
        .enter = enter,
        .leave = leave,
        .pack_left = pack_left,
        .pack_right = pack_right,
        .multiply = multiply,
        .convert = cy_convert_avx512_bf16,
        .transpose = cy_transpose_avx512,
        .dot = cy_dot_avx512,
    };
    return &ops;
}
