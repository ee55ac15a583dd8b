// kernel/cpu/avx512/lanes.h: a vector of sixteen floats and the operations that attention's rows
// need. avx2/lanes.h and neon/lanes.h define the same names for eight floats, so that the rows are
// written once.

#ifndef CY_KERNEL_CPU_AVX512_LANES_H
#define CY_KERNEL_CPU_AVX512_LANES_H

#include "kernel/cpu/avx512/vector.h"

#define LANES INT64_C(16)
typedef __m512 lanes;
typedef __mmask16 lane_mask;

static inline lanes lanes_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline lanes lanes_load(const float *at)
{
    return _mm512_loadu_ps(at);
}

static inline void lanes_store(float *at, lanes x)
{
    _mm512_storeu_ps(at, x);
}

// fp32, bf16 or fp16; `count` elements, zeros after them.
static inline lanes lanes_load_as(const void *at, cy_dtype dtype, int64_t count)
{
    return cy_load16(at, dtype, cy_lanes16(count));
}

static inline void lanes_store_as(void *at, cy_dtype dtype, int64_t count, lanes x)
{
    cy_store16(at, dtype, cy_lanes16(count), x);
}

// To bf16 where a flushed subnormal does no harm: weights of a softmax and their gradients.
static inline void lanes_store_bf16(uint16_t *at, lanes x)
{
    const __m256bh half = _mm512_cvtneps_pbh(x);
    memcpy(at, &half, sizeof(half));
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

// a * b + c, rounded once.
static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

// The larger; b where either is a NaN.
static inline lanes lanes_max(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

// x = *whole + what is returned, in [0, 1]. What is below -160 counts as -160.
static inline lanes lanes_fraction(lanes x, lanes *whole)
{
    const lanes clamped = _mm512_max_ps(_mm512_set1_ps(-160.0f), x); // a NaN passes
    *whole = _mm512_roundscale_ps(clamped, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    return _mm512_sub_ps(clamped, *whole);
}

// x * 2^n for whole numbers n.
static inline lanes lanes_scale(lanes x, lanes n)
{
    return _mm512_scalef_ps(x, n);
}

// Lanes i with first <= i < last.
static inline lane_mask lanes_between(int64_t first, int64_t last)
{
    const uint32_t below = last <= 0 ? 0 : last >= 16 ? 0xffffu : (1u << last) - 1u;
    const uint32_t skipped = first <= 0 ? 0 : first >= 16 ? 0xffffu : (1u << first) - 1u;
    return (__mmask16)(below & ~skipped);
}

static inline lanes lanes_select(lane_mask mask, lanes yes, lanes no)
{
    return _mm512_mask_blend_ps(mask, no, yes);
}

static inline float lanes_sum(lanes x)
{
    return _mm512_reduce_add_ps(x);
}

// sums[i] = the sum of x[i], of four vectors at once.
static inline void lanes_sum4(float sums[4], const lanes x[4])
{
    const lanes a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    const lanes b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    const __m512d low = _mm512_castps_pd(a), high = _mm512_castps_pd(b);
    const lanes all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all),
        _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1)));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

static inline float lanes_largest(lanes x)
{
    return _mm512_reduce_max_ps(x);
}

#endif
