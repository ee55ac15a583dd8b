// kernel/cpu/vector/vector.h: a vector of fp32 numbers, as wide as the instruction set of the file
// that includes this.
//
// Only files in avx2/, avx512/ and neon/, and those of kernel/strict/, include this. A load or
// store takes the number of lanes that exist: the others read as zero and are not written, so a
// loop needs no second body for its tail. bf16 is widened when it is loaded and rounded to nearest
// even, as base/numbers.h does, when it is stored. Multiply-adds are written, never inferred.

#ifndef CY_KERNEL_CPU_VECTOR_VECTOR_H
#define CY_KERNEL_CPU_VECTOR_VECTOR_H

#include "base/numbers.h"
#include "device/view.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <string.h>

#define FORCE_INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__ // sixteen numbers in a register

#define LANES 16
typedef __m512 vec;

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
// Where either is a NaN, b.
FORCE_INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
FORCE_INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}
// a * b + c
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
// c - a * b
FORCE_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
FORCE_INLINE vec vec_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a * 2^n for whole n, also where 2^n itself is no normal number
FORCE_INLINE vec vec_scale(vec a, vec n)
{
    return _mm512_scalef_ps(a, n);
}

FORCE_INLINE __mmask16 lanes_mask(int64_t lanes)
{
    return (__mmask16)(lanes >= LANES ? 0xffffu : (1u << lanes) - 1u);
}
FORCE_INLINE vec load_f32(const float *x, int64_t lanes)
{
    return _mm512_maskz_loadu_ps(lanes_mask(lanes), x);
}
FORCE_INLINE void store_f32(float *y, vec a, int64_t lanes)
{
    _mm512_mask_storeu_ps(y, lanes_mask(lanes), a);
}
FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    const __m256i bits = _mm256_maskz_loadu_epi16(lanes_mask(lanes), x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i top = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    top = _mm512_mask_mov_epi32(top, nan, quiet);
    _mm256_mask_storeu_epi16(y, lanes_mask(lanes), _mm512_cvtepi32_epi16(top));
}
// The first `lanes` lanes of a, the others from b.
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    return _mm512_mask_mov_ps(b, lanes_mask(lanes), a);
}

#endif

#ifdef CY_SIXTEEN_LANES // of strict mode: the same computation whatever the processor

#include "kernel/strict/lanes.h"

#elif defined(__AVX512F__)

FORCE_INLINE float vec_sum(vec a)
{
    return _mm512_reduce_add_ps(a);
}
FORCE_INLINE float vec_largest(vec a)
{
    return _mm512_reduce_max_ps(a);
}

// Sums of squares in fp64.
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

#elif defined(__aarch64__)

#include "kernel/cpu/neon/operators.h"

#else // AVX2 with FMA

#define LANES 8
typedef __m256 vec;

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

FORCE_INLINE __m256i lanes_mask(int64_t lanes)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes), index);
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
FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    cy_bf16 padded[LANES] = {0}; // there is no masked load of 16 bits
    if (lanes < LANES) {
        for (int64_t i = 0; i < lanes; i++)
            padded[i] = x[i];
        x = padded;
    }
    const __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i top = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    top = _mm256_blendv_epi8(top, quiet, nan);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    if (lanes >= LANES) {
        _mm_storeu_si128((__m128i *)(void *)y, packed);
    } else {
        cy_bf16 padded[LANES];
        _mm_storeu_si128((__m128i *)(void *)padded, packed);
        for (int64_t i = 0; i < lanes; i++)
            y[i] = padded[i];
    }
}

FORCE_INLINE float vec_sum(vec a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
FORCE_INLINE float vec_largest(vec a)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(lanes_mask(lanes)));
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

#endif

// ---- the same for all

// Asks for the line of element i, ahead of its use. A stream that ends with a row or a page starts
// the processor's own prefetching over again, so loops over rows ask for the next row.
FORCE_INLINE void prefetch(const void *data, cy_dtype dtype, int64_t i)
{
    __builtin_prefetch((const char *)data + i * (dtype == CY_BF16 ? 2 : 4));
}

FORCE_INLINE int64_t lanes_left(int64_t end, int64_t i)
{
    return end - i < LANES ? end - i : LANES;
}

// Element i of fp32 or bf16 data. Where `dtype` is a constant no branch is left.
FORCE_INLINE vec load(const void *data, cy_dtype dtype, int64_t i, int64_t lanes)
{
    return dtype == CY_BF16 ? load_bf16((const cy_bf16 *)data + i, lanes)
                            : load_f32((const float *)data + i, lanes);
}
FORCE_INLINE void store(void *data, cy_dtype dtype, int64_t i, vec a, int64_t lanes)
{
    if (dtype == CY_BF16) {
        store_bf16((cy_bf16 *)data + i, a, lanes);
    } else {
        store_f32((float *)data + i, a, lanes);
    }
}

// e^x. Relative error below 1.2e-7 (1 unit in the last place) where the result is a normal number;
// infinity above 88.73, 0 below -103.98, NaN for NaN. The argument is brought to [-ln 2 / 2,
// ln 2 / 2], where 1 + r + r^2 p(r) is e^r to 1.1e-9 with p fitted for the smallest largest error.
FORCE_INLINE vec vec_exp(vec x)
{
    const vec in_range = vec_max(vec_all(-105.0f), vec_min(vec_all(89.0f), x));
    const vec n = vec_round(vec_mul(in_range, vec_all(1.44269504f)));
    vec r =
        vec_fnma(n, vec_all(0.693145752f), in_range); // ln 2 in two parts: n * the first is exact
    r = vec_fnma(n, vec_all(1.42860677e-6f), r);
    vec p = vec_all(1.9790299e-4f);
    p = vec_fma(p, r, vec_all(1.3944703e-3f));
    p = vec_fma(p, r, vec_all(8.333498e-3f));
    p = vec_fma(p, r, vec_all(4.1666295e-2f));
    p = vec_fma(p, r, vec_all(1.6666666e-1f));
    p = vec_fma(p, r, vec_all(0.5f));
    p = vec_fma(vec_mul(p, r), r, r);
    return vec_scale(vec_add(p, vec_all(1.0f)), n);
}

FORCE_INLINE vec vec_sigmoid(vec x)
{
    const vec one = vec_all(1.0f);
    return vec_div(one, vec_add(one, vec_exp(vec_sub(vec_all(0.0f), x))));
}

#endif
