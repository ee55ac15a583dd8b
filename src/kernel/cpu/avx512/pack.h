// kernel/cpu/avx512/pack.h: packing and conversion of operands for the microkernels of AVX-512
// and AMX.

#ifndef CY_KERNEL_CPU_AVX512_PACK_H
#define CY_KERNEL_CPU_AVX512_PACK_H

#include "device/view.h"

// As in cy_microkernel, for fp32 panels, and for bf16 panels whose depth is padded to `step`.
void cy_pack_left_f32_avx512(void *left, cy_view source, bool transposed);
void cy_pack_right_f32_avx512(void *right, cy_view source, bool transposed);
void cy_pack_left_bf16_avx512(void *left, cy_view source, bool transposed, int64_t step);
void cy_pack_right_bf16_avx512(void *right, cy_view source, bool transposed, int64_t step);
// Likewise of fp32 that is split into bf16 (pack.c): every CY_SPLIT_DEPTH deep the parts lie one
// after the other.
#define CY_SPLIT_PARTS INT64_C(3)
#define CY_SPLIT_DEPTH INT64_C(32)
void cy_pack_left_split_avx512(void *left, cy_view source, bool transposed);
void cy_pack_right_split_avx512(void *right, cy_view source, bool transposed);
void cy_convert_avx512(cy_view to, cy_view from);
// The same with the processor's own narrowing to bf16, which makes subnormal numbers zero.
void cy_convert_avx512_bf16(cy_view to, cy_view from);
void cy_transpose_avx512(float *to, int64_t stride, cy_view from);
void cy_dot_avx512(float *c, const float *a, int64_t rows, cy_view b, const void *next);

#endif
