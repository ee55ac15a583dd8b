// kernel/cpu/avx512/squares.h: squares of 16 x 16 fp32 in registers, which packing turns round.

#ifndef CY_KERNEL_CPU_AVX512_SQUARES_H
#define CY_KERNEL_CPU_AVX512_SQUARES_H

#include "kernel/cpu/avx512/vector.h"

// Sixteen rows of fp32, from `row` on, columns [col, col + 16): zero beyond the source.
static inline void cy_load_square(__m512i r[16], cy_view source, int64_t row, int64_t col)
{
    if (source.dtype == CY_F32 && row + 16 <= source.rows && col + 16 <= source.cols) {
        const float *at = (const float *)source.data + row * source.stride + col;
        for (int i = 0; i < 16; i++)
            r[i] = _mm512_loadu_si512(at + i * source.stride);
        return;
    }
    const __mmask16 lanes = source.cols > col ? cy_lanes16(source.cols - col) : 0;
    for (int i = 0; i < 16; i++) {
        r[i] = row + i < source.rows && lanes != 0
            ? _mm512_castps_si512(cy_load16(cy_view_at(source, row + i, col), source.dtype, lanes))
            : _mm512_setzero_si512();
    }
}

// Asks for 16 lines of as many rows, for a later call.
static inline void cy_prefetch_square(cy_view source, int64_t row, int64_t col)
{
    const float *at = (const float *)source.data + row * source.stride + col;
    for (int i = 0; i < 16; i++)
        _mm_prefetch((const char *)(at + i * source.stride), _MM_HINT_T0);
}

#endif
