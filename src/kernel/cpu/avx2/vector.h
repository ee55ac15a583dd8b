// kernel/cpu/avx2/vector.h: the vector of kernel/cpu/vector/vector.h in AVX2 with FMA and F16C:
// eight numbers in a register. Included by kernel/cpu/vector/vector.h only, which says what each
// function does.

#ifndef CY_KERNEL_CPU_AVX2_VECTOR_H
#define CY_KERNEL_CPU_AVX2_VECTOR_H

#include <immintrin.h>

#define LANES INT64_C(8)
typedef __m256 vec;
typedef __m256 vec_mask; // of each lane all bits or none

FORCE_INLINE vec vec_all(float x)
{
    return _mm256_set1_ps(x);
}
FORCE_INLINE vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
FORCE_INLINE vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
FORCE_INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
FORCE_INLINE vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
FORCE_INLINE vec vec_sqrt(vec a)
{
    return _mm256_sqrt_ps(a);
}
FORCE_INLINE vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
FORCE_INLINE vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
FORCE_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
FORCE_INLINE vec vec_round(vec a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
FORCE_INLINE vec vec_floor(vec a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
// In two steps, each of which is a normal number for |n| <= 252.
FORCE_INLINE vec vec_scale(vec a, vec n)
{
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i one = _mm256_srai_epi32(whole, 1);
    const __m256i two = _mm256_sub_epi32(whole, one);
    const __m256i bias = _mm256_set1_epi32(127);
    const vec first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(one, bias), 23));
    const vec second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(two, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, first), second);
}

// ---- lanes

FORCE_INLINE __m256i lanes_mask(int64_t lanes)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes > 8 ? 8 : (int)lanes), index);
}
FORCE_INLINE vec_mask lanes_between(int64_t first, int64_t last)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int from = first < 0 ? 0 : first > 8 ? 8 : (int)first;
    const int to = last < 0 ? 0 : last > 8 ? 8 : (int)last;
    const __m256i low = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(from - 1));
    const __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(to), index);
    return _mm256_castsi256_ps(_mm256_and_si256(low, high));
}
FORCE_INLINE vec vec_select(vec_mask mask, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, mask);
}
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(lanes_mask(lanes)));
}

FORCE_INLINE float vec_sum(vec a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
FORCE_INLINE float vec_sum_pairs(vec a)
{
    float at[8];
    _mm256_storeu_ps(at, a);
    return ((at[0] + at[1]) + (at[2] + at[3])) + ((at[4] + at[5]) + (at[6] + at[7]));
}
FORCE_INLINE void vec_sum4(float sums[4], const vec x[4])
{
    const vec all = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
FORCE_INLINE float vec_largest(vec a)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

typedef struct squares {
    __m256d low, high;
} squares;

FORCE_INLINE void squares_add(squares *sum, vec a)
{
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    sum->low = _mm256_fmadd_pd(low, low, sum->low);
    sum->high = _mm256_fmadd_pd(high, high, sum->high);
}
FORCE_INLINE double squares_total(squares sum)
{
    const __m256d both = _mm256_add_pd(sum.low, sum.high);
    const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(both), _mm256_extractf128_pd(both, 1));
    return _mm_cvtsd_f64(half) + _mm_cvtsd_f64(_mm_unpackhi_pd(half, half));
}

// ---- loads and stores

FORCE_INLINE vec vec_load(const float *x)
{
    return _mm256_loadu_ps(x);
}
FORCE_INLINE void vec_store(float *y, vec a)
{
    _mm256_storeu_ps(y, a);
}

FORCE_INLINE vec load_f32(const float *x, int64_t lanes)
{
    return lanes >= LANES ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes_mask(lanes));
}
FORCE_INLINE void store_f32(float *y, vec a, int64_t lanes)
{
    if (lanes >= LANES) {
        _mm256_storeu_ps(y, a);
    } else {
        _mm256_maskstore_ps(y, lanes_mask(lanes), a);
    }
}

// Words of 16 bits: there are no masked loads and stores of them.
FORCE_INLINE __m128i load_words(const void *x, int64_t lanes)
{
    uint16_t words[LANES] = {0};
    if (lanes < LANES) {
        memcpy(words, x, (size_t)lanes * sizeof(*words));
        x = words;
    }
    return _mm_loadu_si128(x);
}
FORCE_INLINE void store_words(void *y, __m128i a, int64_t lanes)
{
    if (lanes >= LANES) {
        _mm_storeu_si128(y, a);
        return;
    }
    uint16_t words[LANES];
    _mm_storeu_si128((__m128i *)(void *)words, a);
    memcpy(y, words, (size_t)lanes * sizeof(*words));
}

FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    const __m256i bits = _mm256_cvtepu16_epi32(load_words(x, lanes));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_add_epi32(bits, half);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i top = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    store_words(
        y, _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1)), lanes);
}
FORCE_INLINE void store_bf16_fast(cy_bf16 *y, vec a)
{
    store_bf16(y, a, LANES);
}

FORCE_INLINE vec load_as(const void *x, cy_dtype dtype, int64_t lanes)
{
    if (lanes <= 0) return vec_all(0.0f);
    if (dtype == CY_F32) return load_f32(x, lanes);
    return dtype == CY_BF16 ? load_bf16(x, lanes) : _mm256_cvtph_ps(load_words(x, lanes));
}
FORCE_INLINE void store_as(void *y, cy_dtype dtype, vec a, int64_t lanes)
{
    if (lanes <= 0) return;
    if (dtype == CY_F32) {
        store_f32(y, a, lanes);
    } else if (dtype == CY_BF16) {
        store_bf16(y, a, lanes);
    } else {
        store_words(y, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT), lanes);
    }
}

FORCE_INLINE void transpose8(vec to[8], const vec rows[8])
{
    vec r[8], t[8];
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

// ---- integers

FORCE_INLINE unsigned lanes_above(const float *x, int64_t limit, int64_t lanes)
{
    const __m256i bits =
        _mm256_and_si256(_mm256_castps_si256(load_f32(x, lanes)), _mm256_set1_epi32(0x7fffffff));
    const __m256i above = _mm256_cmpgt_epi32(bits, _mm256_set1_epi32((int)limit));
    const __m256i there = _mm256_and_si256(above, lanes_mask(lanes));
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(there));
}

typedef __m256i vec_int;

FORCE_INLINE vec_int vec_int_magnitude(vec x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}
FORCE_INLINE vec_int vec_int_max(vec_int a, vec_int b)
{
    return _mm256_max_epi32(a, b);
}
FORCE_INLINE int32_t vec_int_largest(vec_int a)
{
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0xb1));
    return _mm_cvtsi128_si32(b);
}
FORCE_INLINE void store_codes(int8_t *code, vec units, int64_t lanes)
{
    const __m256i whole_units = _mm256_cvtps_epi32(units);
    const __m128i words = _mm_packs_epi32(
        _mm256_castsi256_si128(whole_units), _mm256_extracti128_si256(whole_units, 1));
    const int64_t bytes = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
    memcpy(code, &bytes, (size_t)lanes);
}
FORCE_INLINE vec load_codes(const int8_t *code, int64_t lanes)
{
    int64_t bytes = 0;
    memcpy(&bytes, code, (size_t)lanes);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes)));
}

#endif
