#include "kernel/cpu/block.h"

#include "kernel/cpu/avx2/lanes.h"

#include "kernel/cpu/dot_lanes.h"

// Six rows by 16 columns are 12 accumulators, two vectors of right and one broadcast: 15 of the 16
// registers.
#define MICRO_ROWS  6
#define MICRO_COLS  16
#define MICRO_DEPTH 256

static void convert(cy_view to, cy_view from)
{
    for (int64_t i = 0; i < to.rows; i++) {
        for (int64_t j = 0; j < to.cols; j += 8) {
            cy_store8(cy_view_at(to, i, j), to.dtype, to.cols - j,
                cy_load8(cy_view_at(from, i, j), from.dtype, to.cols - j));
        }
    }
}

static inline void transpose8(__m256 r[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof(t));
}

// to [from.cols, from.rows] = from transposed; columns of `to` up to width_max (a multiple of 8)
// are set, those beyond from.rows to zero.
static void transpose(float *to, int64_t stride, cy_view from, int64_t width_max)
{
    for (int64_t col = 0; col < from.cols; col += 8) {
        for (int64_t row = 0; row < width_max; row += 8) {
            __m256 r[8];
            for (int i = 0; i < 8; i++) {
                r[i] = row + i < from.rows
                    ? cy_load8(cy_view_at(from, row + i, col), from.dtype, from.cols - col)
                    : _mm256_setzero_ps();
            }
            transpose8(r);
            for (int64_t j = 0; j < 8 && col + j < from.cols; j++) {
                _mm256_maskstore_ps(
                    to + (col + j) * stride + row, cy_lanes8(width_max - row), r[j]);
            }
        }
    }
}

static void transpose_rows(float *to, int64_t stride, cy_view from)
{
    transpose(to, stride, from, from.rows);
}

static void pack_left(void *left, cy_view source, bool transposed)
{
    if (transposed) {
        transpose(left, source.rows, source, source.rows);
    } else {
        convert(cy_view_of(left, CY_F32, source.rows, source.cols), source);
    }
}

static void pack_right(void *right, cy_view source, bool transposed)
{
    const int64_t cols = transposed ? source.rows : source.cols;
    const int64_t depth = transposed ? source.cols : source.rows;
    float *to = right;
    for (int64_t col = 0; col < cols; col += CY_BLOCK_COLS, to += depth * CY_BLOCK_COLS) {
        const int64_t width = cols - col < CY_BLOCK_COLS ? cols - col : CY_BLOCK_COLS;
        if (transposed) {
            transpose(to, CY_BLOCK_COLS, cy_view_rows(source, col, width), CY_BLOCK_COLS);
            continue;
        }
        for (int64_t k = 0; k < depth; k++) {
            for (int64_t j = 0; j < CY_BLOCK_COLS; j += 8) {
                const void *at = j < width ? cy_view_at(source, k, col + j) : source.data;
                _mm256_storeu_ps(to + k * CY_BLOCK_COLS + j, cy_load8(at, source.dtype, width - j));
            }
        }
    }
}

static inline __attribute__((always_inline)) void micro(float *c, int64_t c_stride,
    const float *left, int64_t left_stride, const float *right, int64_t depth, int64_t cols,
    bool accumulate, const int rows)
{
    __m256 sum[MICRO_ROWS][2];
    const __m256i low = cy_lanes8(cols), high = cy_lanes8(cols - 8);
    for (int i = 0; i < rows; i++) {
        float *at = c + i * c_stride;
        sum[i][0] = accumulate ? _mm256_maskload_ps(at, low) : _mm256_setzero_ps();
        sum[i][1] = accumulate ? _mm256_maskload_ps(at + 8, high) : _mm256_setzero_ps();
    }
    const float *upper = left + 3 * left_stride;
    for (int64_t k = 0; k < depth; k++) {
        const __m256 b0 = _mm256_loadu_ps(right), b1 = _mm256_loadu_ps(right + 8);
        for (int i = 0; i < rows; i++) {
            const __m256 a =
                _mm256_broadcast_ss(i < 3 ? left + i * left_stride : upper + (i - 3) * left_stride);
            sum[i][0] = _mm256_fmadd_ps(a, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(a, b1, sum[i][1]);
        }
        left++;
        upper++;
        right += CY_BLOCK_COLS;
    }
    for (int i = 0; i < rows; i++) {
        float *at = c + i * c_stride;
        _mm256_maskstore_ps(at, low, sum[i][0]);
        _mm256_maskstore_ps(at + 8, high, sum[i][1]);
    }
}

#define MICRO_CASE(count)                                                                          \
    case count:                                                                                    \
        micro(c, c_stride, left, left_stride, right, depth, cols, accumulate, count);              \
        break

static void micro_rows(float *c, int64_t c_stride, const float *left, int64_t left_stride,
    const float *right, int64_t depth, int64_t rows, int64_t cols, bool accumulate)
{
    switch (rows) {
        MICRO_CASE(1);
        MICRO_CASE(2);
        MICRO_CASE(3);
        MICRO_CASE(4);
        MICRO_CASE(5);
    default:
        micro(c, c_stride, left, left_stride, right, depth, cols, accumulate, MICRO_ROWS);
    }
}

static void multiply(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    for (int64_t k = 0; k < depth; k += MICRO_DEPTH) {
        const int64_t steps = depth - k < MICRO_DEPTH ? depth - k : MICRO_DEPTH;
        for (int64_t col = 0; col < cols; col += MICRO_COLS) {
            const int64_t panel = col / CY_BLOCK_COLS * CY_BLOCK_COLS;
            const float *from =
                (const float *)right + panel * depth + k * CY_BLOCK_COLS + (col - panel);
            for (int64_t row = 0; row < rows; row += MICRO_ROWS) {
                micro_rows(c + row * c_stride + col, c_stride,
                    (const float *)left + row * left_stride + k, left_stride, from, steps,
                    rows - row, cols - col, accumulate || k > 0);
            }
        }
    }
}

static void nothing(void)
{
}

const cy_block_ops *cy_block_avx2(void)
{
    static const cy_block_ops ops = {
        .isa = "avx2",
        .dtype = CY_F32,
        .packed_bytes = 4,
        .depth_step = 1,
        .row_block = 128,
        .enter = nothing,
        .leave = nothing,
        .pack_left = pack_left,
        .pack_right = pack_right,
        .multiply = multiply,
        .convert = convert,
        .transpose = transpose_rows,
        .dot = dot_rows,
    };
    return &ops;
}
