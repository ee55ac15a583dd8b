// kernel/cpu/avx512/vector.h: the vector of kernel/cpu/vector/vector.h in AVX-512: sixteen numbers
// in a register. Included by kernel/cpu/vector/vector.h only, which says what each function does.

#ifndef CY_KERNEL_CPU_AVX512_VECTOR_H
#define CY_KERNEL_CPU_AVX512_VECTOR_H

#include <immintrin.h>

#define LANES INT64_C(16)
typedef __m512 vec;
typedef __mmask16 vec_mask;

FORCE_INLINE vec vec_all(float x)
{
    return _mm512_set1_ps(x);
}
FORCE_INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
FORCE_INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
FORCE_INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
FORCE_INLINE vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
FORCE_INLINE vec vec_sqrt(vec a)
{
    return _mm512_sqrt_ps(a);
}
FORCE_INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
FORCE_INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
FORCE_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
FORCE_INLINE vec vec_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
FORCE_INLINE vec vec_floor(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
FORCE_INLINE vec vec_scale(vec a, vec n)
{
    return _mm512_scalef_ps(a, n);
}

// ---- lanes

FORCE_INLINE vec_mask lanes_mask(int64_t lanes)
{
    return (vec_mask)(lanes >= LANES ? 0xffffu : (1u << lanes) - 1u);
}
FORCE_INLINE vec_mask lanes_between(int64_t first, int64_t last)
{
    const uint32_t below = last <= 0 ? 0 : last >= 16 ? 0xffffu : (1u << last) - 1u;
    const uint32_t skipped = first <= 0 ? 0 : first >= 16 ? 0xffffu : (1u << first) - 1u;
    return (vec_mask)(below & ~skipped);
}
FORCE_INLINE vec vec_select(vec_mask mask, vec yes, vec no)
{
    return _mm512_mask_blend_ps(mask, no, yes);
}
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    return _mm512_mask_mov_ps(b, lanes_mask(lanes), a);
}

// These two also serve strict mode, whose sums have this order on every processor.
FORCE_INLINE float vec_sum(vec a)
{
    const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
FORCE_INLINE float vec_largest(vec a)
{
    const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}
FORCE_INLINE float vec_sum_pairs(vec a)
{
    return vec_sum(a);
}
FORCE_INLINE void vec_sum4(float sums[4], const vec x[4])
{
    const vec a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    const vec b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    const __m512d low = _mm512_castps_pd(a), high = _mm512_castps_pd(b);
    const vec all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all),
        _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1)));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

#ifndef CY_SIXTEEN_LANES // strict mode has its own
typedef struct squares {
    __m512d low, high;
} squares;

FORCE_INLINE void squares_add(squares *sum, vec a)
{
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
    sum->low = _mm512_fmadd_pd(low, low, sum->low);
    sum->high = _mm512_fmadd_pd(high, high, sum->high);
}
FORCE_INLINE double squares_total(squares sum)
{
    return _mm512_reduce_add_pd(_mm512_add_pd(sum.low, sum.high));
}
#endif

// ---- loads and stores

FORCE_INLINE vec vec_load(const float *x)
{
    return _mm512_loadu_ps(x);
}
FORCE_INLINE void vec_store(float *y, vec a)
{
    _mm512_storeu_ps(y, a);
}

FORCE_INLINE vec widen_bf16(__m256i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}
// The processor's own conversion makes subnormal numbers zero, and plain AVX-512 has none.
FORCE_INLINE __m256i narrow_bf16(vec a)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}

// The lanes of the mask, in any of the three dtypes.
FORCE_INLINE vec load_masked(const void *x, cy_dtype dtype, vec_mask mask)
{
    if (dtype == CY_F32) return _mm512_maskz_loadu_ps(mask, x);
    const __m256i words = _mm256_maskz_loadu_epi16(mask, x);
    return dtype == CY_BF16 ? widen_bf16(words) : _mm512_cvtph_ps(words);
}
FORCE_INLINE void store_masked(void *y, cy_dtype dtype, vec a, vec_mask mask)
{
    if (dtype == CY_F32) {
        _mm512_mask_storeu_ps(y, mask, a);
    } else {
        const __m256i words = dtype == CY_BF16
            ? narrow_bf16(a)
            : _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_mask_storeu_epi16(y, mask, words);
    }
}

FORCE_INLINE vec load_f32(const float *x, int64_t lanes)
{
    return load_masked(x, CY_F32, lanes_mask(lanes));
}
FORCE_INLINE void store_f32(float *y, vec a, int64_t lanes)
{
    store_masked(y, CY_F32, a, lanes_mask(lanes));
}
FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    return load_masked(x, CY_BF16, lanes_mask(lanes));
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    store_masked(y, CY_BF16, a, lanes_mask(lanes));
}
FORCE_INLINE void store_bf16_fast(cy_bf16 *y, vec a)
{
    const __m256bh half = _mm512_cvtneps_pbh(a);
    memcpy(y, &half, sizeof(half));
}
FORCE_INLINE vec load_as(const void *x, cy_dtype dtype, int64_t lanes)
{
    return load_masked(x, dtype, lanes_mask(lanes));
}
FORCE_INLINE void store_as(void *y, cy_dtype dtype, vec a, int64_t lanes)
{
    store_masked(y, dtype, a, lanes_mask(lanes));
}

// ---- integers

FORCE_INLINE unsigned lanes_above(const float *x, int64_t limit, int64_t lanes)
{
    const __m512i bits =
        _mm512_and_si512(_mm512_castps_si512(load_f32(x, lanes)), _mm512_set1_epi32(0x7fffffff));
    return _mm512_mask_cmpgt_epi32_mask(lanes_mask(lanes), bits, _mm512_set1_epi32((int)limit));
}

typedef __m512i vec_int;

FORCE_INLINE vec_int vec_int_magnitude(vec x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
FORCE_INLINE vec_int vec_int_max(vec_int a, vec_int b)
{
    return _mm512_max_epi32(a, b);
}
FORCE_INLINE int32_t vec_int_largest(vec_int a)
{
    return _mm512_reduce_max_epi32(a);
}
FORCE_INLINE void store_codes(int8_t *code, vec units, int64_t lanes)
{
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(units));
    _mm_mask_storeu_epi8(code, lanes_mask(lanes), bytes);
}
FORCE_INLINE vec load_codes(const int8_t *code, int64_t lanes)
{
    const __m128i bytes = _mm_maskz_loadu_epi8(lanes_mask(lanes), code);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

#endif
