// Compiles the operators of strict mode in portable C, and has the microkernel that they use there.

#include "kernel/strict/operators.h"

// ---- the microkernel

static float element(cy_view view, int64_t row, int64_t col)
{
    return (float)cy_ref_load(view, row, col); // fp32, bf16 and fp16 are fp32 numbers
}

static void convert(cy_view to, cy_view from)
{
    for (int64_t i = 0; i < to.rows; i++) {
        for (int64_t j = 0; j < to.cols; j++) {
            const float x = element(from, i, j);
            if (to.dtype == CY_F32) *(float *)cy_view_at(to, i, j) = x;
            if (to.dtype == CY_BF16) *(cy_bf16 *)cy_view_at(to, i, j) = cy_bf16_from_f32(x);
            if (to.dtype == CY_F16) *(cy_f16 *)cy_view_at(to, i, j) = cy_f16_from_f32(x);
        }
    }
}

static void transpose(float *to, int64_t stride, cy_view from)
{
    for (int64_t i = 0; i < from.rows; i++) {
        for (int64_t j = 0; j < from.cols; j++)
            to[j * stride + i] = element(from, i, j);
    }
}

static void pack_left(void *left, cy_view source, bool transposed)
{
    if (transposed) {
        transpose(left, source.rows, source);
    } else {
        convert(cy_view_of(left, CY_F32, source.rows, source.cols), source);
    }
}

static void pack_right(void *right, cy_view source, bool transposed)
{
    const int64_t cols = transposed ? source.rows : source.cols;
    const int64_t depth = transposed ? source.cols : source.rows;
    float *to = right;
    for (int64_t col = 0; col < cols; col += CY_MICROKERNEL_COLS) {
        for (int64_t k = 0; k < depth; k++) {
            for (int64_t j = col; j < col + CY_MICROKERNEL_COLS; j++) {
                *to++ = j >= cols ? 0.0f
                    : transposed  ? element(source, j, k)
                                  : element(source, k, j);
            }
        }
    }
}

static void multiply(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    for (int64_t col = 0; col < cols; col += CY_MICROKERNEL_COLS) {
        const int64_t width = cols - col < CY_MICROKERNEL_COLS ? cols - col : CY_MICROKERNEL_COLS;
        const float *panel = (const float *)right + col * depth;
        for (int64_t i = 0; i < rows; i++) {
            const float *a = (const float *)left + i * left_stride;
            float sum[CY_MICROKERNEL_COLS] = {0};
            if (accumulate) memcpy(sum, c + i * c_stride + col, (size_t)width * sizeof(float));
            for (int64_t k = 0; k < depth; k++) {
                for (int j = 0; j < CY_MICROKERNEL_COLS; j++)
                    sum[j] = cy_fused(a[k], panel[k * CY_MICROKERNEL_COLS + j], sum[j]);
            }
            memcpy(c + i * c_stride + col, sum, (size_t)width * sizeof(float));
        }
    }
}

static void dot(float *c, const float *a, int64_t rows, cy_view b, const void *next)
{
    (void)next; // portable code does not prefetch
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < b.rows; j++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < b.cols; k++)
                sum = cy_fused(a[i * b.cols + k], element(b, j, k), sum);
            c[i * b.rows + j] = sum;
        }
    }
}

const cy_microkernel *cy_microkernel_portable(void)
{
    static const cy_microkernel ops = {
        .isa = "portable",
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
        .transpose = transpose,
        .dot = dot,
    };
    return &ops;
}

// ---- the table

void cy_strict_portable_override(cy_kernels *table)
{
    override_with_strict(table);
}
