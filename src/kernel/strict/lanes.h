// kernel/strict/lanes.h: the vector of kernel/cpu/vector/vector.h with sixteen lanes everywhere.
// Included by kernel/cpu/vector/vector.h only, where CY_SIXTEEN_LANES is defined.
//
// What the operators do with lanes, such as summing a row in as many partial sums as there are
// lanes, is then the same computation on every processor, and each operation here is one that IEEE
// 754 defines to the bit. With AVX-512 a vector is a register; otherwise it is an array of sixteen
// numbers that the compiler distributes over registers.

#ifndef CY_KERNEL_STRICT_LANES_H
#define CY_KERNEL_STRICT_LANES_H

#include "kernel/strict/math.h"
#include "kernel/strict/strict.h"

#include <math.h>

#ifdef __AVX512F__

FORCE_INLINE void vec_spread(float x[LANES], vec a)
{
    _mm512_storeu_ps(x, a);
}

// The sizes of terms seen so far, a lane each, as the bits of fp32 numbers: these ascend with the
// numbers, and those of an infinity or a NaN are above all others.
typedef __m512i term_sizes;

FORCE_INLINE term_sizes no_terms(void)
{
    return _mm512_setzero_si512();
}
FORCE_INLINE uint32_t largest_term(term_sizes sizes)
{
    return _mm512_reduce_max_epu32(sizes);
}
FORCE_INLINE void see_terms(term_sizes *sizes, vec a, int64_t lanes)
{
    const __m512i size = _mm512_castps_si512(_mm512_abs_ps(a));
    *sizes = _mm512_mask_max_epu32(*sizes, lanes_mask(lanes), *sizes, size);
}

// sum[i] += a[i] to the nearest integer, of all lanes.
FORCE_INLINE void fixed_add_all(int64_t *sum, vec a, term_sizes *sizes)
{
    const __m512i first = _mm512_cvtps_epi64(_mm512_castps512_ps256(a));
    const __m512i second = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(a, 1));
    *sizes = _mm512_max_epu32(*sizes, _mm512_castps_si512(_mm512_abs_ps(a)));
    _mm512_storeu_si512(sum, _mm512_add_epi64(first, _mm512_loadu_si512(sum)));
    _mm512_storeu_si512(sum + 8, _mm512_add_epi64(second, _mm512_loadu_si512(sum + 8)));
}

// The same of the first lanes.
FORCE_INLINE void fixed_add(int64_t *sum, vec a, int64_t lanes, term_sizes *sizes)
{
    const __mmask16 on = lanes_mask(lanes);
    const __mmask8 low = (__mmask8)on, high = (__mmask8)(on >> 8);
    const __m512i first = _mm512_cvtps_epi64(_mm512_castps512_ps256(a));
    const __m512i second = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(a, 1));
    see_terms(sizes, a, lanes);
    _mm512_mask_storeu_epi64(sum, low, _mm512_add_epi64(first, _mm512_maskz_loadu_epi64(low, sum)));
    _mm512_mask_storeu_epi64(
        sum + 8, high, _mm512_add_epi64(second, _mm512_maskz_loadu_epi64(high, sum + 8)));
}

// x[i] * unit, rounded to fp32. *fits turns false where an integer has left the head room.
FORCE_INLINE vec fixed_load(const int64_t *x, double unit, int64_t lanes, bool *fits)
{
    const __mmask16 on = lanes_mask(lanes);
    const __m512i first = _mm512_maskz_loadu_epi64((__mmask8)on, x);
    const __m512i second = _mm512_maskz_loadu_epi64((__mmask8)(on >> 8), x + 8);
    const __m512i limit = _mm512_set1_epi64((int64_t)1 << 62);
    const __mmask8 out = _mm512_cmpge_epu64_mask(_mm512_abs_epi64(first), limit) |
        _mm512_cmpge_epu64_mask(_mm512_abs_epi64(second), limit);
    if (out != 0) *fits = false;
    const __m512d by = _mm512_set1_pd(unit);
    const __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(first), by));
    const __m256 high = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(second), by));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

#else // sixteen numbers

#define LANES INT64_C(16)

typedef struct vec {
    float x[LANES];
} vec;

#define EACH_LANE for (int i = 0; i < LANES; i++)

FORCE_INLINE vec vec_all(float x)
{
    vec r;
    EACH_LANE r.x[i] = x;
    return r;
}
FORCE_INLINE vec vec_add(vec a, vec b)
{
    EACH_LANE a.x[i] += b.x[i];
    return a;
}
FORCE_INLINE vec vec_sub(vec a, vec b)
{
    EACH_LANE a.x[i] -= b.x[i];
    return a;
}
FORCE_INLINE vec vec_mul(vec a, vec b)
{
    EACH_LANE a.x[i] *= b.x[i];
    return a;
}
FORCE_INLINE vec vec_div(vec a, vec b)
{
    EACH_LANE a.x[i] /= b.x[i];
    return a;
}
FORCE_INLINE vec vec_sqrt(vec a)
{
    EACH_LANE a.x[i] = sqrtf(a.x[i]);
    return a;
}
FORCE_INLINE vec vec_max(vec a, vec b)
{
    EACH_LANE a.x[i] = a.x[i] > b.x[i] ? a.x[i] : b.x[i];
    return a;
}
FORCE_INLINE vec vec_min(vec a, vec b)
{
    EACH_LANE a.x[i] = a.x[i] < b.x[i] ? a.x[i] : b.x[i];
    return a;
}
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    EACH_LANE c.x[i] = cy_fused(a.x[i], b.x[i], c.x[i]);
    return c;
}
FORCE_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    EACH_LANE c.x[i] = cy_fused(-a.x[i], b.x[i], c.x[i]);
    return c;
}
FORCE_INLINE vec vec_round(vec a)
{
    EACH_LANE a.x[i] = rintf(a.x[i]);
    return a;
}
// In two steps, each of which is a normal number for |n| <= 252.
FORCE_INLINE vec vec_scale(vec a, vec n)
{
    EACH_LANE
    {
        const int whole = n.x[i] >= -252.0f && n.x[i] <= 252.0f ? (int)n.x[i] : 0; // not a NaN
        const int one = whole >> 1, two = whole - one;
        a.x[i] *= cy_f32_from_bits((uint32_t)(one + 127) << 23);
        a.x[i] *= cy_f32_from_bits((uint32_t)(two + 127) << 23);
    }
    return a;
}
FORCE_INLINE vec load_f32(const float *x, int64_t lanes)
{
    vec r;
    if (lanes >= LANES) {
        EACH_LANE r.x[i] = x[i];
    } else {
        EACH_LANE r.x[i] = i < lanes ? x[i] : 0.0f;
    }
    return r;
}
FORCE_INLINE void store_f32(float *y, vec a, int64_t lanes)
{
    if (lanes >= LANES) {
        EACH_LANE y[i] = a.x[i];
    } else {
        for (int64_t i = 0; i < lanes; i++)
            y[i] = a.x[i];
    }
}
FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    vec r;
    if (lanes >= LANES) {
        EACH_LANE r.x[i] = cy_bf16_to_f32(x[i]);
    } else {
        EACH_LANE r.x[i] = i < lanes ? cy_bf16_to_f32(x[i]) : 0.0f;
    }
    return r;
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    const int64_t count = lanes < LANES ? lanes : LANES;
    for (int64_t i = 0; i < count; i++)
        y[i] = cy_bf16_from_f32(a.x[i]);
}
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    EACH_LANE a.x[i] = i < lanes ? a.x[i] : b.x[i];
    return a;
}
FORCE_INLINE void vec_spread(float x[LANES], vec a)
{
    EACH_LANE x[i] = a.x[i];
}

// Halves are added, down to one.
FORCE_INLINE float vec_sum(vec a)
{
    float x[LANES];
    vec_spread(x, a);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    }
    return x[0];
}
FORCE_INLINE float vec_largest(vec a)
{
    float x[LANES];
    vec_spread(x, a);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
    }
    return x[0];
}

typedef struct term_sizes {
    uint32_t x[LANES];
} term_sizes;

FORCE_INLINE term_sizes no_terms(void)
{
    return (term_sizes){{0}};
}
FORCE_INLINE uint32_t largest_term(term_sizes sizes)
{
    uint32_t largest = 0;
    EACH_LANE largest = sizes.x[i] > largest ? sizes.x[i] : largest;
    return largest;
}
FORCE_INLINE void see_terms(term_sizes *sizes, vec a, int64_t lanes)
{
    EACH_LANE
    {
        const uint32_t size = i < lanes ? cy_f32_bits(a.x[i]) & 0x7fffffffu : 0;
        sizes->x[i] = size > sizes->x[i] ? size : sizes->x[i];
    }
}

// Adding 1.5 * 2^52 leaves the nearest integer, ties to even, in the low bits of the sum.
FORCE_INLINE void fixed_add(int64_t *sum, vec a, int64_t lanes, term_sizes *sizes)
{
    const int64_t count = lanes < LANES ? lanes : LANES;
    see_terms(sizes, a, lanes);
    for (int64_t i = 0; i < count; i++) {
        const double shifted = (double)a.x[i] + 0x1.8p52, base = 0x1.8p52;
        int64_t bits, base_bits;
        memcpy(&bits, &shifted, sizeof(bits));
        memcpy(&base_bits, &base, sizeof(base_bits));
        sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)(bits - base_bits));
    }
}
FORCE_INLINE vec fixed_load(const int64_t *x, double unit, int64_t lanes, bool *fits)
{
    vec r = vec_all(0.0f);
    const int64_t count = lanes < LANES ? lanes : LANES;
    const int64_t limit = (int64_t)1 << 62;
    int out = 0;
    for (int64_t i = 0; i < count; i++) {
        r.x[i] = (float)((double)x[i] * unit);
        out |= x[i] >= limit || x[i] <= -limit;
    }
    if (out != 0) *fits = false;
    return r;
}

#endif

// ---- the same for both

// Sums of squares in fp64, a lane each. A square of an fp32 number is exact there.
typedef struct squares {
    double low[LANES / 2], high[LANES / 2];
} squares;

FORCE_INLINE void squares_add(squares *sum, vec a)
{
    float x[LANES];
    vec_spread(x, a);
    for (int i = 0; i < LANES / 2; i++) {
        sum->low[i] += (double)x[i] * (double)x[i];
        sum->high[i] += (double)x[i + LANES / 2] * (double)x[i + LANES / 2];
    }
}
FORCE_INLINE double squares_total(squares sum)
{
    double total = 0.0;
    for (int i = 0; i < LANES / 2; i++)
        total += sum.low[i] + sum.high[i];
    return total;
}

#endif
