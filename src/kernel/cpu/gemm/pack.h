// kernel/cpu/gemm/pack.h: packs fp32 operands of the microkernel with vectors of eight lanes.
// Included by avx2/microkernel.c and neon/microkernel.c, which compile it for their sets.
//
// Every function here is made once for each dtype, and whole vectors take a path of their own:
// packing costs attention's blocks a tenth of their time when each load decides anew.

#ifndef CY_KERNEL_CPU_GEMM_PACK_H
#define CY_KERNEL_CPU_GEMM_PACK_H

#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/cpu/vector/vector.h"

// of(arguments, dtype), with a constant for each dtype that operands have.
#define FOR_DTYPE(dtype, of, ...)                                                                  \
    do {                                                                                           \
        if ((dtype) == CY_F32) {                                                                   \
            of(__VA_ARGS__, CY_F32);                                                               \
        } else if ((dtype) == CY_BF16) {                                                           \
            of(__VA_ARGS__, CY_BF16);                                                              \
        } else {                                                                                   \
            of(__VA_ARGS__, CY_F16);                                                               \
        }                                                                                          \
    } while (0)

FORCE_INLINE int64_t pack_bytes(const cy_dtype dtype)
{
    return dtype == CY_F32 ? 4 : 2;
}

FORCE_INLINE void convert_of(
    cy_view to, cy_view from, const cy_dtype to_dtype, const cy_dtype from_dtype)
{
    const int64_t to_bytes = pack_bytes(to_dtype), from_bytes = pack_bytes(from_dtype);
    for (int64_t i = 0; i < to.rows; i++) {
        char *at = (char *)to.data + i * to.stride * to_bytes;
        const char *x = (const char *)from.data + i * from.stride * from_bytes;
        int64_t j = 0;
        for (; j + 8 <= to.cols; j += 8)
            store_as(at + j * to_bytes, to_dtype, load_as(x + j * from_bytes, from_dtype, 8), 8);
        if (j == to.cols) continue;
        store_as(at + j * to_bytes, to_dtype, load_as(x + j * from_bytes, from_dtype, to.cols - j),
            to.cols - j);
    }
}

FORCE_INLINE void convert_to(cy_view to, cy_view from, const cy_dtype to_dtype)
{
    FOR_DTYPE(from.dtype, convert_of, to, from, to_dtype);
}

static void convert(cy_view to, cy_view from)
{
    FOR_DTYPE(to.dtype, convert_to, to, from);
}

FORCE_INLINE void transpose_of(
    float *to, int64_t stride, cy_view from, int64_t width, const cy_dtype dtype)
{
    const int64_t bytes = pack_bytes(dtype);
    for (int64_t col = 0; col < from.cols; col += 8) {
        const int64_t cols = from.cols - col < 8 ? from.cols - col : 8;
        for (int64_t row = 0; row < width; row += 8) {
            const char *at = (const char *)from.data + (row * from.stride + col) * bytes;
            float *turned = to + col * stride + row;
            vec rows[8], columns[8];
            if (cols == 8 && row + 8 <= from.rows) {
                for (int i = 0; i < 8; i++)
                    rows[i] = load_as(at + i * from.stride * bytes, dtype, 8);
                transpose8(columns, rows);
                for (int j = 0; j < 8; j++)
                    vec_store(turned + j * stride, columns[j]);
                continue;
            }
            for (int i = 0; i < 8; i++) {
                rows[i] = row + i < from.rows ? load_as(at + i * from.stride * bytes, dtype, cols)
                                              : vec_all(0.0f);
            }
            transpose8(columns, rows);
            for (int64_t j = 0; j < cols; j++)
                store_as(turned + j * stride, CY_F32, columns[j], width - row);
        }
    }
}

// to [from.cols, width] = from transposed, `stride` elements from row to row; zeros from from.rows
// on. Width is from.rows, or that rounded up to a multiple of 8 or more.
static void transpose(float *to, int64_t stride, cy_view from, int64_t width)
{
    FOR_DTYPE(from.dtype, transpose_of, to, stride, from, width);
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

// Panels of right from rows as they lie.
FORCE_INLINE void right_rows(float *right, cy_view source, const cy_dtype dtype)
{
    const int64_t bytes = pack_bytes(dtype), panel = source.rows * CY_MICROKERNEL_COLS;
    for (int64_t k = 0; k < source.rows; k++) {
        const char *from = (const char *)source.data + k * source.stride * bytes;
        float *at = right + k * CY_MICROKERNEL_COLS;
        int64_t col = 0;
        for (; col + CY_MICROKERNEL_COLS <= source.cols; col += CY_MICROKERNEL_COLS, at += panel) {
            for (int64_t j = 0; j < CY_MICROKERNEL_COLS; j += 8)
                vec_store(at + j, load_as(from + (col + j) * bytes, dtype, 8));
        }
        for (int64_t j = 0; j < CY_MICROKERNEL_COLS && col < source.cols; j += 8) {
            const int64_t left = source.cols - col - j;
            const void *rest = left > 0 ? from + (col + j) * bytes : source.data;
            vec_store(at + j, load_as(rest, dtype, left));
        }
    }
}

static void pack_right(void *right, cy_view source, bool transposed)
{
    if (!transposed) {
        FOR_DTYPE(source.dtype, right_rows, right, source);
        return;
    }
    float *to = right;
    for (int64_t col = 0; col < source.rows; col += CY_MICROKERNEL_COLS) {
        const int64_t left = source.rows - col;
        const int64_t width = left < CY_MICROKERNEL_COLS ? left : CY_MICROKERNEL_COLS;
        transpose(to, CY_MICROKERNEL_COLS, cy_view_rows(source, col, width), CY_MICROKERNEL_COLS);
        to += source.cols * CY_MICROKERNEL_COLS;
    }
}

#endif
