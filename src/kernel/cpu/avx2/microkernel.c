// Multiplies blocks with AVX2, in fp32: packing widens 16-bit operands. Compiles the row-by-row
// part of attention for AVX2.

#include "kernel/cpu/gemm/microkernel.h"

#include "kernel/cpu/attention/rows.h"
#include "kernel/cpu/gemm/dot.h"
#include "kernel/cpu/gemm/pack.h"

// Six rows by 16 columns are 12 accumulators, two vectors of right and one broadcast: 15 of the 16
// registers.
#define MICRO_ROWS  6
#define MICRO_COLS  16
#define MICRO_DEPTH 256

FORCE_INLINE void micro(float *c, int64_t c_stride, const float *left, int64_t left_stride,
    const float *right, int64_t depth, int64_t cols, bool accumulate, const int rows,
    const bool masked)
{
    __m256 sum[MICRO_ROWS][2];
    const __m256i low = lanes_mask(cols), high = lanes_mask(cols - 8);
    for (int i = 0; i < rows; i++) {
        const float *at = c + i * c_stride;
        sum[i][0] = sum[i][1] = _mm256_setzero_ps();
        if (accumulate) {
            sum[i][0] = masked ? _mm256_maskload_ps(at, low) : _mm256_loadu_ps(at);
            sum[i][1] = masked ? _mm256_maskload_ps(at + 8, high) : _mm256_loadu_ps(at + 8);
        }
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
        right += CY_MICROKERNEL_COLS;
    }
    for (int i = 0; i < rows; i++) {
        float *at = c + i * c_stride;
        if (masked) {
            _mm256_maskstore_ps(at, low, sum[i][0]);
            _mm256_maskstore_ps(at + 8, high, sum[i][1]);
        } else {
            _mm256_storeu_ps(at, sum[i][0]);
            _mm256_storeu_ps(at + 8, sum[i][1]);
        }
    }
}

#define MICRO(count, masked)                                                                       \
    micro(c, c_stride, left, left_stride, right, depth, cols, accumulate, count, masked)

#define MICRO_CASE(count)                                                                          \
    case count:                                                                                    \
        MICRO(count, true);                                                                        \
        break

static void micro_edge(float *c, int64_t c_stride, const float *left, int64_t left_stride,
    const float *right, int64_t depth, int64_t rows, int64_t cols, bool accumulate)
{
    switch (rows) {
        MICRO_CASE(1);
        MICRO_CASE(2);
        MICRO_CASE(3);
        MICRO_CASE(4);
        MICRO_CASE(5);
    default:
        MICRO(MICRO_ROWS, true);
    }
}

static void micro_rows(float *c, int64_t c_stride, const float *left, int64_t left_stride,
    const float *right, int64_t depth, int64_t rows, int64_t cols, bool accumulate)
{
    if (cols < MICRO_COLS) {
        micro_edge(c, c_stride, left, left_stride, right, depth, rows, cols, accumulate);
    } else if (rows >= MICRO_ROWS) {
        MICRO(MICRO_ROWS, false);
    } else if (rows == 5) {
        MICRO(5, false);
    } else if (rows == 4) {
        MICRO(4, false);
    } else {
        micro_edge(c, c_stride, left, left_stride, right, depth, rows, cols, accumulate);
    }
}

// How many of the rows that are left go at once. Fewer than four leave multipliers idle, for sums
// wait for each other: of 7, 8 and 9 four or five go first.
static int64_t rows_of_micro(int64_t rows)
{
    if (rows <= MICRO_ROWS) return rows;
    return rows > 9 ? MICRO_ROWS : rows > 8 ? 5 : 4;
}

static void multiply(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    for (int64_t k = 0; k < depth; k += MICRO_DEPTH) {
        const int64_t steps = depth - k < MICRO_DEPTH ? depth - k : MICRO_DEPTH;
        for (int64_t col = 0; col < cols; col += MICRO_COLS) {
            const int64_t panel = col / CY_MICROKERNEL_COLS * CY_MICROKERNEL_COLS;
            const float *from =
                (const float *)right + panel * depth + k * CY_MICROKERNEL_COLS + (col - panel);
            for (int64_t row = 0, taken; row < rows; row += taken) {
                taken = rows_of_micro(rows - row);
                micro_rows(c + row * c_stride + col, c_stride,
                    (const float *)left + row * left_stride + k, left_stride, from, steps, taken,
                    cols - col, accumulate || k > 0);
            }
        }
    }
}

void cy_convert_avx2(cy_view to, cy_view from)
{
    convert(to, from);
}

const cy_microkernel *cy_microkernel_avx2(void)
{
    static const cy_microkernel ops = {
        .isa = "avx2",
        .dtype = CY_F32,
        .packed_bytes = 4,
        .depth_step = 1,
        .row_block = 128,
        .enter = cy_microkernel_no_tiles,
        .leave = cy_microkernel_no_tiles,
        .pack_left = pack_left,
        .pack_right = pack_right,
        .multiply = multiply,
        .convert = convert,
        .transpose = transpose_rows,
        .dot = dot_rows,
    };
    return &ops;
}

const cy_attention_rows *cy_attention_rows_avx2(void)
{
    return &attention_rows;
}
