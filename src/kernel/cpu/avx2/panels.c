// Packs and multiplies panels of 6 rows and 16 columns with AVX2: 12 sums, two vectors of right and
// a broadcast of left take 15 of the 16 registers.

#include "kernel/cpu/gemm/matmul.h"

#include "kernel/cpu/vector/vector.h"

#define ROWS 6
#define COLS 16

// ---- packing

// Row `row` of 8 rows x 8 columns from column `col` on; zeros beyond the end.
FORCE_INLINE __m256 load_row(
    cy_view source, const cy_dtype dtype, int64_t row, int64_t col, bool whole)
{
    if (row >= source.rows) return _mm256_setzero_ps();
    const char *at = cy_view_at(source, row, col);
    return whole ? load_as(at, dtype, 8) : load_as(at, dtype, source.cols - col);
}

// One panel of left from rows as they lie. Of the 8 lanes that are stored for each k, the last two
// are written over by the next k or the next panel.
FORCE_INLINE void left_panel(float *to, cy_view source, const cy_dtype dtype)
{
    const int64_t depth = source.cols;
    for (int64_t k = 0; k < depth; k += 8) {
        const bool whole = k + 8 <= depth;
        __m256 r[8];
        for (int i = 0; i < ROWS; i++)
            r[i] = load_row(source, dtype, i, k, whole);
        r[6] = r[7] = _mm256_setzero_ps();
        transpose8(r, r);
        for (int64_t i = 0; i < 8 && k + i < depth; i++)
            _mm256_storeu_ps(to + (k + i) * ROWS, r[i]);
    }
}

// Panels that are written together while rows of a transposed left are read.
#define SIDE_BY_SIDE 16
#define ROWS_AHEAD   8

// Columns of source are rows of left: each row of source holds a k of many panels.
FORCE_INLINE void left_turned(float *to, cy_view source, const cy_dtype dtype)
{
    const int64_t depth = source.rows, count = source.cols;
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    for (int64_t first = 0; first < count; first += SIDE_BY_SIDE * ROWS) {
        const int64_t end =
            count - first < SIDE_BY_SIDE * ROWS ? count : first + SIDE_BY_SIDE * ROWS;
        for (int64_t k = 0; k < depth; k++) {
            const char *from = cy_view_at(source, k, 0);
            const char *ahead = from + ROWS_AHEAD * source.stride * size;
            for (int64_t byte = first * size; byte < end * size; byte += 64)
                __builtin_prefetch(ahead + byte);
            float *at = to + first * depth + k * ROWS;
            for (int64_t row = first; row < end; row += ROWS, at += depth * ROWS) {
                const __m256 x = row + 8 <= count ? load_as(from + row * size, dtype, 8)
                                                  : load_as(from + row * size, dtype, count - row);
                _mm_storeu_ps(at, _mm256_castps256_ps128(x));
                _mm_storel_pi((__m64 *)(void *)(at + 4), _mm256_extractf128_ps(x, 1));
            }
        }
    }
}

FORCE_INLINE void left_of(float *left, cy_view source, bool transposed, const cy_dtype dtype)
{
    if (transposed) {
        left_turned(left, source, dtype);
        return;
    }
    for (int64_t row = 0; row < source.rows; row += ROWS) {
        const int64_t rows = source.rows - row < ROWS ? source.rows - row : ROWS;
        left_panel(left + row * source.cols, cy_view_rows(source, row, rows), dtype);
    }
}

static void pack_left(float *left, cy_view source, bool transposed)
{
    if (source.dtype == CY_F32) {
        left_of(left, source, transposed, CY_F32);
    } else if (source.dtype == CY_BF16) {
        left_of(left, source, transposed, CY_BF16);
    } else {
        left_of(left, source, transposed, CY_F16);
    }
}

// Half a panel of right, 8 columns of it, from rows of source. 16 of a row are read at once: a
// whole line of fp32, which another visit might not find in the first-level cache again where rows
// lie a multiple of 4 KiB apart.
FORCE_INLINE void right_half(float *to, cy_view source, const cy_dtype dtype)
{
    const int64_t depth = source.cols;
    for (int64_t first = 0; first < depth; first += 16) {
        for (int64_t k = first; k < first + 16 && k < depth; k += 8) {
            const bool whole = k + 8 <= depth;
            __m256 r[8];
            for (int i = 0; i < 8; i++)
                r[i] = load_row(source, dtype, i, k, whole);
            transpose8(r, r);
            for (int64_t i = 0; i < 8 && k + i < depth; i++)
                _mm256_storeu_ps(to + (k + i) * COLS, r[i]);
        }
    }
}

FORCE_INLINE void right_rows(float *right, int64_t stride, cy_view source, const cy_dtype dtype)
{
    const int64_t size = dtype == CY_F32 ? 4 : 2;
    for (int64_t k = 0; k < source.rows; k++) {
        const char *from = cy_view_at(source, k, 0);
        float *at = right + k * COLS;
        for (int64_t col = 0; col < source.cols; col += COLS, at += stride) {
            if (col + COLS <= source.cols) {
                _mm256_storeu_ps(at, load_as(from + col * size, dtype, 8));
                _mm256_storeu_ps(at + 8, load_as(from + (col + 8) * size, dtype, 8));
            } else {
                const int64_t left = source.cols - col;
                _mm256_storeu_ps(at, load_as(from + col * size, dtype, left));
                _mm256_storeu_ps(at + 8, load_as(from + (col + 8) * size, dtype, left - 8));
            }
        }
    }
}

FORCE_INLINE void right_of(
    float *right, int64_t stride, cy_view source, bool transposed, const cy_dtype dtype)
{
    if (!transposed) {
        right_rows(right, stride, source, dtype);
        return;
    }
    for (int64_t col = 0; col < source.rows; col += COLS, right += stride) {
        for (int64_t half = 0; half < COLS; half += 8) {
            const int64_t left = source.rows - col - half;
            const int64_t rows = left < 0 ? 0 : left < 8 ? left : 8;
            const cy_view from =
                rows == 0 ? cy_view_rows(source, 0, 0) : cy_view_rows(source, col + half, rows);
            right_half(right + half, from, dtype);
        }
    }
}

static void pack_right(float *right, int64_t stride, cy_view source, bool transposed)
{
    if (source.dtype == CY_F32) {
        right_of(right, stride, source, transposed, CY_F32);
    } else if (source.dtype == CY_BF16) {
        right_of(right, stride, source, transposed, CY_BF16);
    } else {
        right_of(right, stride, source, transposed, CY_F16);
    }
}

// ---- multiplying

// One k of both panels. `at` is a constant wherever this is inlined, as is `rows`.
FORCE_INLINE void step(
    __m256 sum[ROWS][2], const float *left, const float *right, int at, const int rows)
{
    const __m256 low = _mm256_loadu_ps(right + at * COLS);
    const __m256 high = _mm256_loadu_ps(right + at * COLS + 8);
    for (int i = 0; i < rows; i++) {
        const __m256 x = _mm256_broadcast_ss(left + at * ROWS + i);
        sum[i][0] = _mm256_fmadd_ps(x, low, sum[i][0]);
        sum[i][1] = _mm256_fmadd_ps(x, high, sum[i][1]);
    }
}

typedef struct corner {
    float *c;
    int64_t c_stride;
    const float *left, *right;
    const float *ahead; // of right, prefetched meanwhile: a line every fourth k
    int64_t cols, depth;
    bool accumulate;
} corner;

// c of `rows` rows; masked where there are fewer than 16 columns.
FORCE_INLINE void multiply_corner(const corner *of, const int rows, const bool masked)
{
    const __m256i low = lanes_mask(of->cols), high = lanes_mask(of->cols - 8);
    __m256 sum[ROWS][2];
    for (int i = 0; i < rows; i++) {
        const float *at = of->c + i * of->c_stride;
        sum[i][0] = sum[i][1] = _mm256_setzero_ps();
        if (of->accumulate) {
            sum[i][0] = masked ? _mm256_maskload_ps(at, low) : _mm256_loadu_ps(at);
            sum[i][1] = masked ? _mm256_maskload_ps(at + 8, high) : _mm256_loadu_ps(at + 8);
        }
    }
    const float *left = of->left, *right = of->right, *ahead = of->ahead;
    int64_t k = of->depth;
    for (; k >= 4; k -= 4) {
        step(sum, left, right, 0, rows);
        step(sum, left, right, 1, rows);
        __builtin_prefetch(ahead, 0, 2);
        step(sum, left, right, 2, rows);
        step(sum, left, right, 3, rows);
        left += 4 * ROWS;
        right += 4 * COLS;
        ahead += COLS;
    }
    for (; k > 0; k--) {
        step(sum, left, right, 0, rows);
        left += ROWS;
        right += COLS;
    }
    for (int i = 0; i < rows; i++) {
        float *at = of->c + i * of->c_stride;
        if (masked) {
            _mm256_maskstore_ps(at, low, sum[i][0]);
            _mm256_maskstore_ps(at + 8, high, sum[i][1]);
        } else {
            _mm256_storeu_ps(at, sum[i][0]);
            _mm256_storeu_ps(at + 8, sum[i][1]);
        }
    }
}

#define CORNER_CASE(count)                                                                         \
    case count:                                                                                    \
        multiply_corner(of, count, true);                                                          \
        break

static void multiply_edge(const corner *of, int64_t rows)
{
    switch (rows) {
        CORNER_CASE(1);
        CORNER_CASE(2);
        CORNER_CASE(3);
        CORNER_CASE(4);
        CORNER_CASE(5);
    default:
        multiply_corner(of, ROWS, true);
    }
}

static void multiply_whole(const corner *of)
{
    multiply_corner(of, ROWS, false);
}

// The rows of c that the next corner takes.
static inline void prefetch_rows(const float *c, int64_t c_stride)
{
    for (int i = 0; i < ROWS; i++)
        __builtin_prefetch(c + i * c_stride, 1);
}

static void multiply(float *c, int64_t c_stride, const float *left, const float *right,
    int64_t right_stride, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    const int64_t quarter = depth / 4 * COLS;
    for (int64_t col = 0; col < cols; col += COLS, right += right_stride) {
        corner of = {
            .c_stride = c_stride,
            .right = right,
            .ahead = right,
            .cols = cols - col,
            .depth = depth,
            .accumulate = accumulate,
        };
        const float *next = col + COLS < cols ? right + right_stride : right;
        for (int64_t row = 0; row < rows; row += ROWS) {
            of.c = c + row * c_stride + col;
            of.left = left + row * depth;
            of.ahead = next + row / ROWS % 4 * quarter;
            if (row + 2 * ROWS <= rows) {
                prefetch_rows(of.c + ROWS * c_stride, c_stride);
            } else if (col + COLS < cols && rows >= ROWS) {
                prefetch_rows(c + col + COLS, c_stride);
            }
            if (rows - row >= ROWS && cols - col >= COLS) {
                multiply_whole(&of);
            } else {
                multiply_edge(&of, rows - row);
            }
        }
    }
}

const cy_panel_ops *cy_panels_avx2(void)
{
    static const cy_panel_ops ops = {
        .rows = ROWS,
        .cols = COLS,
        .pack_left = pack_left,
        .pack_right = pack_right,
        .multiply = multiply,
        .convert = cy_convert_avx2,
    };
    return &ops;
}
