// Multiplies blocks in the tile registers of AMX: of bf16, and of fp32 in three parts of bf16.

#include "kernel/cpu/gemm/microkernel.h"

#include "base/status.h"
#include "kernel/cpu/avx512/pack.h"
#include "kernel/cpu/vector/vector.h"

// ---- the tile registers
//
// Tiles 0 to 3 are sums of 16 x 16 fp32, 4 and 5 sixteen rows of left, 6 and 7 sixteen columns of
// right, each 32 deep. Two by two halves the loads of a product: four tiles loaded, four products.

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
FORCE_INLINE void configure(int64_t upper, int64_t lower)
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
FORCE_INLINE void take_sums(const float *c, int64_t c_bytes, bool accumulate, const bool two)
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

FORCE_INLINE void put_sums(float *c, int64_t c_bytes, const bool two)
{
    char *lower = (char *)c + TILE_ROWS * c_bytes;
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    if (two) {
        _tile_stored(2, lower, c_bytes);
        _tile_stored(3, lower + 64, c_bytes);
    }
}

// ---- products

// Parts of an element: one where operands are bf16, three where they are fp32 that was split into
// bf16 (avx512/pack.c). Every 32 deep the parts lie one after the other, the largest first.
#define WHOLE INT64_C(1)
#define SPLIT CY_SPLIT_PARTS

_Static_assert(CY_SPLIT_DEPTH == DEPTH, "parts are packed as deep as a tile is");

// Depth of one pass: up to 40 KiB of right in the first-level cache while left streams by. Deeper
// ones are cut evenly, because sums go out to memory and back between two passes. Split operands
// come from the second-level cache, which six products for each pair of tiles leave time to.
#define MICRO_DEPTH 640

// With no more rows than this, prefetching a panel takes as long as reading it: the blocks of
// attention, whose panels are in the core's own caches.
#define FEW_ROWS 64

static void enter(void)
{
    configure(TILE_ROWS, TILE_ROWS);
}

static void leave(void)
{
    _tile_release();
}

// What makes up to 32 rows by 32 columns of c.
typedef struct square {
    float *c;
    const char *left, *right;
    int64_t c_bytes, left_bytes; // from row to row
    int64_t depth;
    bool accumulate;
    const char *ahead;   // prefetched meanwhile
    int64_t ahead_bytes; // every 32 deep
} square;

FORCE_INLINE void load_left(const char *left, int64_t bytes, const bool two)
{
    _tile_loadd(4, left, bytes);
    if (two) _tile_loadd(5, left + TILE_ROWS * bytes, bytes);
}

FORCE_INLINE void load_right(const char *right)
{
    _tile_loadd(6, right, 128);
    _tile_loadd(7, right + 64, 128);
}

FORCE_INLINE void multiply_tiles(const bool two)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (two) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

// 32 deep of bf16: each product follows the load that it waited for.
FORCE_INLINE void step_whole(
    const char *left, int64_t left_bytes, const char *right, const bool two)
{
    _tile_loadd(4, left, left_bytes);
    _tile_loadd(6, right, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + 64, 128);
    _tile_dpbf16ps(1, 4, 7);
    if (two) {
        _tile_loadd(5, left + TILE_ROWS * left_bytes, left_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

// 32 deep of split operands. Of the nine products of their parts the three smallest are left out:
// together they are below a unit of fp32's last place. Each load changes one operand of those
// before it, and the largest product comes last.
FORCE_INLINE void step_split(
    const char *left, int64_t left_bytes, const char *right, const bool two)
{
    const int64_t left_part = DEPTH * 2, right_part = DEPTH * CY_MICROKERNEL_COLS * 2;
    load_left(left, left_bytes, two);
    load_right(right + 2 * right_part);
    multiply_tiles(two);
    load_right(right + right_part);
    multiply_tiles(two);
    load_left(left + left_part, left_bytes, two);
    multiply_tiles(two);
    load_right(right);
    multiply_tiles(two);
    load_left(left + 2 * left_part, left_bytes, two);
    multiply_tiles(two);
    load_left(left, left_bytes, two);
    multiply_tiles(two);
}

// `two`: more than 16 rows.
FORCE_INLINE void multiply_square(const square *s, const bool two, const int64_t parts)
{
    const int64_t left_step = DEPTH * 2 * parts;
    const int64_t right_step = left_step * CY_MICROKERNEL_COLS;
    const char *left = s->left, *right = s->right, *ahead = s->ahead;
    take_sums(s->c, s->c_bytes, s->accumulate, two);
    for (int64_t k = 0; k < s->depth; k += DEPTH, left += left_step, right += right_step) {
        if (parts == WHOLE) {
            step_whole(left, s->left_bytes, right, two);
            continue;
        }
        for (int64_t i = 0; i < s->ahead_bytes; i += 64)
            _mm_prefetch(ahead + i, _MM_HINT_T1);
        ahead += s->ahead_bytes;
        step_split(left, s->left_bytes, right, two);
    }
    put_sums(s->c, s->c_bytes, two);
}

// A square at the right edge, through a buffer of full width.
FORCE_INLINE void multiply_edge(const square *s, int64_t rows, int64_t cols, const int64_t parts)
{
    float buffer[32 * 32] __attribute__((aligned(64)));
    if (s->accumulate) {
        for (int64_t i = 0; i < rows; i++) {
            memcpy(
                buffer + 32 * i, (const char *)s->c + i * s->c_bytes, (size_t)cols * sizeof(float));
        }
    }
    square inner = *s;
    inner.c = buffer;
    inner.c_bytes = sizeof(float) * 32;
    multiply_square(&inner, rows > TILE_ROWS, parts);
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)s->c + i * s->c_bytes, buffer + 32 * i, (size_t)cols * sizeof(float));
}

// One panel of right by all rows, one pass deep.
FORCE_INLINE void multiply_panel(square at, int64_t rows, int64_t cols, const int64_t parts)
{
    for (int64_t row = 0; row < rows; row += 32) {
        const int64_t count = rows - row < 32 ? rows - row : 32;
        if (cols < CY_MICROKERNEL_COLS) {
            multiply_edge(&at, count, cols, parts);
        } else if (count > TILE_ROWS) {
            multiply_square(&at, true, parts);
        } else {
            multiply_square(&at, false, parts);
        }
        at.left += 32 * at.left_bytes;
        at.c += 32 * at.c_bytes / (int64_t)sizeof(float);
        at.ahead += at.ahead_bytes * (at.depth / DEPTH);
    }
}

// Rows that the tiles' shapes suit: whole times 32, or fewer than 32. While rows go by a panel, the
// next panel, which may lie in the caches that cores share, is brought into this one's own.
FORCE_INLINE void multiply_rows(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate,
    const int64_t parts)
{
    const int64_t passes = (depth + MICRO_DEPTH - 1) / MICRO_DEPTH;
    const int64_t pass_depth = cy_round_up((depth + passes - 1) / passes, DEPTH);
    const int64_t deep = 2 * parts, step_bytes = DEPTH * deep * CY_MICROKERNEL_COLS;
    const int64_t share = cy_round_up(step_bytes / ((rows + 31) / 32), 64);
    for (int64_t k = 0; k < depth; k += pass_depth) {
        for (int64_t col = 0; col < cols; col += CY_MICROKERNEL_COLS) {
            const int64_t width =
                cols - col < CY_MICROKERNEL_COLS ? cols - col : CY_MICROKERNEL_COLS;
            const char *panel = right + (col * depth + k * CY_MICROKERNEL_COLS) * deep;
            const square first = {
                .c = c + col,
                .left = left + k * deep,
                .right = panel,
                .c_bytes = c_stride * (int64_t)sizeof(float),
                .left_bytes = left_bytes,
                .depth = depth - k < pass_depth ? depth - k : pass_depth,
                .accumulate = accumulate || k > 0,
                .ahead = panel + CY_MICROKERNEL_COLS * depth * deep,
                .ahead_bytes = col + CY_MICROKERNEL_COLS < cols && rows > FEW_ROWS ? share : 0,
            };
            multiply_panel(first, rows, width, parts);
        }
    }
}

FORCE_INLINE void multiply(float *c, int64_t c_stride, const char *left, int64_t left_stride,
    const char *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate,
    const int64_t parts)
{
    CY_DEBUG_ASSERT(depth > 0 && depth % DEPTH == 0);
    const int64_t full = rows / 32 * 32, tail = rows - full, left_bytes = left_stride * 2 * parts;
    if (full > 0) {
        multiply_rows(c, c_stride, left, left_bytes, right, full, cols, depth, accumulate, parts);
    }
    if (tail == 0) return;
    // The last rows have tiles of their own shape: all of them at once, after the full ones.
    configure(tail < TILE_ROWS ? tail : TILE_ROWS, tail > TILE_ROWS ? tail - TILE_ROWS : 1);
    multiply_rows(c + full * c_stride, c_stride, left + full * left_bytes, left_bytes, right, tail,
        cols, depth, accumulate, parts);
    configure(TILE_ROWS, TILE_ROWS);
}

static void multiply_whole(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    multiply(c, c_stride, left, left_stride, right, rows, cols, depth, accumulate, WHOLE);
}

static void multiply_split(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    multiply(c, c_stride, left, left_stride, right, rows, cols, depth, accumulate, SPLIT);
}

static void pack_left(void *left, cy_view source, bool transposed)
{
    cy_pack_left_bf16_avx512(left, source, transposed, DEPTH);
}

static void pack_right(void *right, cy_view source, bool transposed)
{
    cy_pack_right_bf16_avx512(right, source, transposed, DEPTH);
}

const cy_microkernel *cy_microkernel_amx(void)
{
    static const cy_microkernel ops = {
        .isa = "amx",
        .dtype = CY_BF16,
        .packed_bytes = 2,
        .depth_step = DEPTH,
        .row_block = 128,
        .slice_depth = 1024,
        .enter = enter,
        .leave = leave,
        .pack_left = pack_left,
        .pack_right = pack_right,
        .multiply = multiply_whole,
        .convert = cy_convert_avx512_bf16,
        .transpose = cy_transpose_avx512,
        .dot = cy_dot_avx512,
    };
    return &ops;
}

const cy_microkernel *cy_microkernel_amx_split(void)
{
    static const cy_microkernel ops = {
        .isa = "amx_split",
        .dtype = CY_F32,
        .packed_bytes = SPLIT * 2,
        .depth_step = DEPTH,
        .row_block = 256,
        .slice_depth = 1024,
        .enter = enter,
        .leave = leave,
        .pack_left = cy_pack_left_split_avx512,
        .pack_right = cy_pack_right_split_avx512,
        .multiply = multiply_split,
        .convert = cy_convert_avx512_bf16,
        .transpose = cy_transpose_avx512,
        .dot = cy_dot_avx512,
    };
    return &ops;
}
