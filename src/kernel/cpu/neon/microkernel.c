// Multiplies blocks with NEON, in fp32: packing widens 16-bit operands. Compiles the row-by-row
// part of attention for NEON.

#include "kernel/cpu/gemm/microkernel.h"

#include "kernel/cpu/attention/rows.h"
#include "kernel/cpu/gemm/dot.h"
#include "kernel/cpu/gemm/pack.h"

// Eight rows by eight columns are 16 accumulators: four pipelines with a latency of four cycles
// are kept busy by 16 chains. With eight vectors of left, four of its elements each, and two of
// right they are 26 of the 32 registers. Four steps of depth load 16 vectors for 64 multiply-adds
// that take an element of left from its register: no element is loaded to be spread.
#define MICRO_ROWS  8
#define MICRO_COLS  8
#define MICRO_DEPTH 256

// sum[i] += left[i][lane] times eight columns of one step of depth.
#define MICRO_STEP(lane)                                                                           \
    do {                                                                                           \
        const vec b = vec_load(right + (lane)*CY_MICROKERNEL_COLS);                                \
        for (int i = 0; i < rows; i++) {                                                           \
            sum[i].val[0] = vfmaq_laneq_f32(sum[i].val[0], b.val[0], a[i], lane);                  \
            sum[i].val[1] = vfmaq_laneq_f32(sum[i].val[1], b.val[1], a[i], lane);                  \
        }                                                                                          \
    } while (0)

// `rows` is a constant wherever this is inlined: the sums stay in registers.
FORCE_INLINE void micro(float *c, int64_t c_stride, const float *left, int64_t left_stride,
    const float *right, int64_t depth, int64_t cols, bool accumulate, const int rows)
{
    vec sum[MICRO_ROWS];
    for (int i = 0; i < rows; i++)
        sum[i] = accumulate ? load_as(c + i * c_stride, CY_F32, cols) : vec_all(0.0f);
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, right += 4 * CY_MICROKERNEL_COLS) {
        float32x4_t a[MICRO_ROWS];
        for (int i = 0; i < rows; i++)
            a[i] = vld1q_f32(left + i * left_stride + k);
        MICRO_STEP(0);
        MICRO_STEP(1);
        MICRO_STEP(2);
        MICRO_STEP(3);
    }
    for (; k < depth; k++, right += CY_MICROKERNEL_COLS) {
        float32x4_t a[MICRO_ROWS];
        for (int i = 0; i < rows; i++)
            a[i] = vdupq_n_f32(left[i * left_stride + k]);
        MICRO_STEP(0);
    }
    for (int i = 0; i < rows; i++)
        store_as(c + i * c_stride, CY_F32, sum[i], cols);
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
        MICRO_CASE(6);
        MICRO_CASE(7);
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
            const int64_t panel = col / CY_MICROKERNEL_COLS * CY_MICROKERNEL_COLS;
            const float *from =
                (const float *)right + panel * depth + k * CY_MICROKERNEL_COLS + (col - panel);
            for (int64_t row = 0; row < rows; row += MICRO_ROWS) {
                micro_rows(c + row * c_stride + col, c_stride,
                    (const float *)left + row * left_stride + k, left_stride, from, steps,
                    rows - row, cols - col, accumulate || k > 0);
            }
        }
    }
}

const cy_microkernel *cy_microkernel_neon(void)
{
    static const cy_microkernel ops = {
        .isa = "neon",
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

const cy_attention_rows *cy_attention_rows_neon(void)
{
    return &attention_rows;
}
