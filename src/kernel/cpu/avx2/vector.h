// kernel/cpu/avx2/vector.h: loads of eight numbers that widen, stores that narrow, and the
// transposition of eight by eight. Included only under avx2/.

#ifndef CY_KERNEL_CPU_AVX2_VECTOR_H
#define CY_KERNEL_CPU_AVX2_VECTOR_H

#include "device/view.h"

#include <immintrin.h>
#include <string.h>

typedef __m256 float8;

static inline float8 set8(float x)
{
    return _mm256_set1_ps(x);
}

static inline __m256i cy_lanes8(int64_t count)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count > 8 ? 8 : (int)count), index);
}

static inline __m256 cy_widen8_bf16(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

// The bits of cy_bf16_from_f32.
static inline __m128i cy_narrow8_bf16(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i words = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m256i packed = _mm256_packus_epi32(words, words);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

// Up to eight elements as fp32; lanes from `count` on are zero and not read. No branch is left
// where `dtype` and a count of 8 are constants.
static inline float8 load8_as(const void *from, cy_dtype dtype, int64_t count)
{
    if (count <= 0) return set8(0.0f);
    if (dtype == CY_F32) {
        return count >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, cy_lanes8(count));
    }
    uint16_t half[8] = {0};
    if (count < 8) {
        memcpy(half, from, (size_t)count * 2);
        from = half;
    }
    const __m128i bits = _mm_loadu_si128(from);
    return dtype == CY_BF16 ? cy_widen8_bf16(bits) : _mm256_cvtph_ps(bits);
}

// Rounds to nearest even; lanes from `count` on are not written.
static inline void store8_as(void *to, cy_dtype dtype, int64_t count, float8 x)
{
    if (count <= 0) return;
    if (dtype == CY_F32) {
        if (count >= 8) {
            _mm256_storeu_ps(to, x);
        } else {
            _mm256_maskstore_ps(to, cy_lanes8(count), x);
        }
        return;
    }
    const __m128i bits =
        dtype == CY_BF16 ? cy_narrow8_bf16(x) : _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    if (count >= 8) {
        _mm_storeu_si128(to, bits);
        return;
    }
    uint16_t half[8];
    _mm_storeu_si128((__m128i *)(void *)half, bits);
    memcpy(to, half, (size_t)count * 2);
}

// to [rows, cols] = from, rounded once; any of fp32, bf16, fp16 on either side (microkernel.c).
void cy_convert_avx2(cy_view to, cy_view from);

// ---- transposition

// to[i][j] = rows[j][i]; `to` may be `rows`.
static inline void transpose8(float8 to[8], const float8 rows[8])
{
    float8 r[8], t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        to[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        to[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
}

#endif
