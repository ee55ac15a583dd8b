// kernel/cpu/avx2/lanes.h: a vector of eight floats and the operations that attention's rows need,
// under the same names as in avx512/lanes.h.

#ifndef CY_KERNEL_CPU_AVX2_LANES_H
#define CY_KERNEL_CPU_AVX2_LANES_H

#include "kernel/cpu/avx2/vector.h"

#define LANES INT64_C(8)
typedef __m256 lanes;
typedef __m256 lane_mask;

static inline lanes lanes_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline lanes lanes_load(const float *at)
{
    return _mm256_loadu_ps(at);
}

static inline void lanes_store(float *at, lanes x)
{
    _mm256_storeu_ps(at, x);
}

static inline lanes lanes_load_as(const void *at, cy_dtype dtype, int64_t count)
{
    return load8_as(at, dtype, count);
}

static inline void lanes_store_as(void *at, cy_dtype dtype, int64_t count, lanes x)
{
    store8_as(at, dtype, count, x);
}

static inline void lanes_store_bf16(uint16_t *at, lanes x)
{
    store8_as(at, CY_BF16, LANES, x);
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return _mm256_add_ps(a, b);
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return _mm256_sub_ps(a, b);
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return _mm256_mul_ps(a, b);
}

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline lanes lanes_max(lanes a, lanes b)
{
    return _mm256_max_ps(a, b);
}

static inline lanes lanes_fraction(lanes x, lanes *whole)
{
    const lanes clamped = _mm256_max_ps(_mm256_set1_ps(-160.0f), x); // a NaN passes
    *whole = _mm256_round_ps(clamped, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    return _mm256_sub_ps(clamped, *whole);
}

// In two halves, so that results below 2^-126 come out as subnormals, rounded as scalef does.
static inline lanes lanes_scale(lanes x, lanes n)
{
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, a), b);
}

static inline lane_mask lanes_between(int64_t first, int64_t last)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int from = first < 0 ? 0 : first > 8 ? 8 : (int)first;
    const int to = last < 0 ? 0 : last > 8 ? 8 : (int)last;
    const __m256i low = _mm256_cmpgt_epi32(index, _mm256_set1_epi32(from - 1));
    const __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(to), index);
    return _mm256_castsi256_ps(_mm256_and_si256(low, high));
}

static inline lanes lanes_select(lane_mask mask, lanes yes, lanes no)
{
    return _mm256_blendv_ps(no, yes, mask);
}

static inline float lanes_sum(lanes x)
{
    float at[8];
    _mm256_storeu_ps(at, x);
    return ((at[0] + at[1]) + (at[2] + at[3])) + ((at[4] + at[5]) + (at[6] + at[7]));
}

// sums[i] = the sum of x[i], of four vectors at once.
static inline void lanes_sum4(float sums[4], const lanes x[4])
{
    const lanes all = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

static inline float lanes_largest(lanes x)
{
    float at[8];
    _mm256_storeu_ps(at, x);
    float largest = at[0];
    for (int i = 1; i < 8; i++) {
        if (at[i] > largest) largest = at[i];
    }
    return largest;
}

#endif
