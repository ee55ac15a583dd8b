// kernel/cpu/avx512/vector.h: loads of sixteen numbers that widen, stores that narrow, and the
// transposition of 16 x 16 double words. Included only under avx512/ and amx/.

#ifndef CY_KERNEL_CPU_AVX512_VECTOR_H
#define CY_KERNEL_CPU_AVX512_VECTOR_H

#include "device/view.h"

#include <immintrin.h>
#include <string.h>

// The first `count` lanes; 16 or more is all of them.
static inline __mmask16 cy_lanes16(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffu : (1u << count) - 1u);
}

static inline __mmask32 cy_lanes32(int64_t count)
{
    return count >= 32 ? 0xffffffffu : (1u << count) - 1u;
}

static inline __m512 cy_widen_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

// Round to nearest even, a NaN stays a NaN: the bits of cy_bf16_from_f32. The processor's own
// conversion flushes subnormals, and plain AVX-512 has none.
static inline __m256i cy_narrow_bf16(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}

// 16 elements as fp32; lanes outside the mask are zero and not read.
static inline __m512 cy_load16(const void *from, cy_dtype dtype, __mmask16 lanes)
{
    if (dtype == CY_F32) return _mm512_maskz_loadu_ps(lanes, from);
    const __m256i half = _mm256_maskz_loadu_epi16(lanes, from);
    return dtype == CY_BF16 ? cy_widen_bf16(half) : _mm512_cvtph_ps(half);
}

static inline void cy_store16(void *to, cy_dtype dtype, __mmask16 lanes, __m512 x)
{
    if (dtype == CY_F32) {
        _mm512_mask_storeu_ps(to, lanes, x);
    } else {
        const __m256i half = dtype == CY_BF16
            ? cy_narrow_bf16(x)
            : _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_mask_storeu_epi16(to, lanes, half);
    }
}

// r[i] lane j becomes r[j] lane i.
static inline void cy_transpose16(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // Now quarter q of r[4 g + j] holds rows 4 g .. 4 g + 3 of column 4 q + j.
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    }
    for (int j = 0; j < 4; j++) {
        r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        r[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
        r[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
        r[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
    }
}

#endif
