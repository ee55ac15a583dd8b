// kernel/strict/lanes.h: the vector of kernel/cpu/vector/vector.h with sixteen lanes everywhere.
// Included by kernel/cpu/vector/vector.h only, where CY_SIXTEEN_LANES is defined.
//
// What the operators do with lanes, such as summing a row in as many partial sums as there are
// lanes, is then the same computation on every processor, and each operation here is one that IEEE
// 754 defines to the bit. With AVX-512 a vector is one register, otherwise it is several.

#ifndef CY_KERNEL_STRICT_LANES_H
#define CY_KERNEL_STRICT_LANES_H

#include "kernel/strict/math.h"
#include "kernel/strict/strict.h"

#include <math.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

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

// x[i] * unit, rounded to fp32. *fits becomes false where an integer has reached 2^62.
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

#else // sixteen numbers in several registers

#define LANES INT64_C(16)

// A group fills a register. Groups are vectors of the compiler, because it takes three times as
// long to compile loops over lanes.
#ifdef __AVX2__
#define GROUP 8
#else
#define GROUP 4
#endif
typedef float lane_group __attribute__((vector_size(4 * GROUP)));
typedef int32_t lane_bits __attribute__((vector_size(4 * GROUP)));   // what comparisons give
typedef uint32_t lane_words __attribute__((vector_size(4 * GROUP))); // whose sums may wrap

// A group in memory, at any address.
typedef float lane_memory __attribute__((vector_size(4 * GROUP), aligned(4), may_alias));

typedef struct vec {
    lane_group x[16 / GROUP];
} vec;

#define EACH_GROUP for (int i = 0; i < 16 / GROUP; i++)
#define EACH_LANE  for (int i = 0; i < LANES; i++)

// Group by group: compilers copy a whole vector in parts of other sizes, which processors cannot
// forward from a store to a load.
FORCE_INLINE void vec_spread(float x[LANES], vec a)
{
    EACH_GROUP *(lane_memory *)(void *)(x + i * GROUP) = a.x[i];
}
FORCE_INLINE vec vec_of(const float x[LANES])
{
    vec a;
    EACH_GROUP a.x[i] = *(const lane_memory *)(const void *)(x + i * GROUP);
    return a;
}

FORCE_INLINE vec vec_all(float x)
{
    vec r;
    EACH_GROUP r.x[i] = x - (lane_group){0}; // -0 stays -0
    return r;
}
FORCE_INLINE vec vec_add(vec a, vec b)
{
    EACH_GROUP a.x[i] += b.x[i];
    return a;
}
FORCE_INLINE vec vec_sub(vec a, vec b)
{
    EACH_GROUP a.x[i] -= b.x[i];
    return a;
}
FORCE_INLINE vec vec_mul(vec a, vec b)
{
    EACH_GROUP a.x[i] *= b.x[i];
    return a;
}
FORCE_INLINE vec vec_div(vec a, vec b)
{
    EACH_GROUP a.x[i] /= b.x[i];
    return a;
}
FORCE_INLINE lane_group lane_select(lane_bits mask, lane_group yes, lane_group no)
{
    return (lane_group)(((lane_bits)yes & mask) | ((lane_bits)no & ~mask));
}
FORCE_INLINE vec vec_max(vec a, vec b)
{
    EACH_GROUP a.x[i] = lane_select(a.x[i] > b.x[i], a.x[i], b.x[i]);
    return a;
}
FORCE_INLINE vec vec_min(vec a, vec b)
{
    EACH_GROUP a.x[i] = lane_select(a.x[i] < b.x[i], a.x[i], b.x[i]);
    return a;
}

#if defined(__AVX2__)
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    EACH_GROUP c.x[i] = _mm256_fmadd_ps(a.x[i], b.x[i], c.x[i]);
    return c;
}
FORCE_INLINE vec vec_round(vec a)
{
    EACH_GROUP a.x[i] = _mm256_round_ps(a.x[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return a;
}
FORCE_INLINE vec vec_sqrt(vec a)
{
    EACH_GROUP a.x[i] = _mm256_sqrt_ps(a.x[i]);
    return a;
}
#elif defined(__aarch64__)
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    EACH_GROUP c.x[i] =
        (lane_group)vfmaq_f32((float32x4_t)c.x[i], (float32x4_t)a.x[i], (float32x4_t)b.x[i]);
    return c;
}
FORCE_INLINE vec vec_round(vec a)
{
    EACH_GROUP a.x[i] = (lane_group)vrndnq_f32((float32x4_t)a.x[i]);
    return a;
}
FORCE_INLINE vec vec_sqrt(vec a)
{
    EACH_GROUP a.x[i] = (lane_group)vsqrtq_f32((float32x4_t)a.x[i]);
    return a;
}
#else
// Functions of their own: without the instructions each is long.
static __attribute__((noinline)) vec vec_fma(vec a, vec b, vec c)
{
    float x[LANES], y[LANES], z[LANES];
    vec_spread(x, a);
    vec_spread(y, b);
    vec_spread(z, c);
    EACH_LANE z[i] = cy_fused(x[i], y[i], z[i]);
    return vec_of(z);
}
static __attribute__((noinline)) vec vec_round(vec a)
{
    float x[LANES];
    vec_spread(x, a);
    EACH_LANE x[i] = rintf(x[i]);
    return vec_of(x);
}
static __attribute__((noinline)) vec vec_sqrt(vec a)
{
    float x[LANES];
    vec_spread(x, a);
    EACH_LANE x[i] = sqrtf(x[i]);
    return vec_of(x);
}
#endif
FORCE_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    EACH_GROUP a.x[i] = -a.x[i];
    return vec_fma(a, b, c);
}

// In two steps, each of which is a normal number for |n| <= 252. Other n, also a NaN, count as 0.
FORCE_INLINE vec vec_scale(vec a, vec n)
{
    EACH_GROUP
    {
        const lane_bits in_range = (n.x[i] >= -252.0f) & (n.x[i] <= 252.0f);
        const lane_group in = lane_select(in_range, n.x[i], n.x[i] - n.x[i]);
        const lane_bits whole = __builtin_convertvector(in, lane_bits) & in_range;
        const lane_bits one = whole >> 1, two = whole - one;
        a.x[i] *= (lane_group)((one + 127) << 23);
        a.x[i] *= (lane_group)((two + 127) << 23);
    }
    return a;
}

// The tails of rows, as functions of their own: they are many, and run once a row.
static __attribute__((noinline)) vec load_some_f32(const float *x, int64_t lanes)
{
    float r[LANES] = {0};
    memcpy(r, x, (size_t)lanes * sizeof(*x));
    return vec_of(r);
}
static __attribute__((noinline)) void store_some_f32(float *y, vec a, int64_t lanes)
{
    memcpy(y, &a, (size_t)lanes * sizeof(*y));
}
FORCE_INLINE vec load_f32(const float *x, int64_t lanes)
{
    return lanes >= LANES ? vec_of(x) : load_some_f32(x, lanes);
}
FORCE_INLINE void store_f32(float *y, vec a, int64_t lanes)
{
    if (lanes >= LANES) {
        vec_spread(y, a);
    } else {
        store_some_f32(y, a, lanes);
    }
}

FORCE_INLINE vec load_whole_bf16(const cy_bf16 *x)
{
    float r[LANES];
    EACH_LANE r[i] = cy_bf16_to_f32(x[i]);
    return vec_of(r);
}
// As cy_bf16_from_f32.
FORCE_INLINE void store_whole_bf16(cy_bf16 *y, vec a)
{
    uint32_t top[LANES];
    EACH_GROUP
    {
        const lane_words bits = (lane_words)a.x[i], nan = (lane_words)(a.x[i] != a.x[i]);
        const lane_words half = 0x7fff + ((bits >> 16) & 1);
        const lane_words kept = ((bits + half) & ~nan) | ((bits | 0x400000) & nan);
        memcpy(top + i * GROUP, &kept, sizeof(kept));
    }
    EACH_LANE y[i] = (cy_bf16)(top[i] >> 16);
}
static __attribute__((noinline)) vec load_some_bf16(const cy_bf16 *x, int64_t lanes)
{
    cy_bf16 r[LANES] = {0};
    memcpy(r, x, (size_t)lanes * sizeof(*x));
    return load_whole_bf16(r);
}
static __attribute__((noinline)) void store_some_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    cy_bf16 r[LANES];
    store_whole_bf16(r, a);
    memcpy(y, r, (size_t)lanes * sizeof(*y));
}
FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    return lanes >= LANES ? load_whole_bf16(x) : load_some_bf16(x, lanes);
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    if (lanes >= LANES) {
        store_whole_bf16(y, a);
    } else {
        store_some_bf16(y, a, lanes);
    }
}

// All bits of the lanes of a group that are below `lanes`, none of the others.
FORCE_INLINE lane_bits lane_first(int number, int64_t lanes)
{
    int32_t index[GROUP];
    for (int i = 0; i < GROUP; i++)
        index[i] = number * GROUP + i;
    lane_bits at;
    memcpy(&at, index, sizeof(at));
    return at < (int32_t)(lanes < LANES ? lanes : LANES);
}
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    EACH_GROUP a.x[i] = lane_select(lane_first(i, lanes), a.x[i], b.x[i]);
    return a;
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
    lane_bits x[16 / GROUP];
} term_sizes;

FORCE_INLINE term_sizes no_terms(void)
{
    return (term_sizes){0};
}
FORCE_INLINE uint32_t largest_term(term_sizes sizes)
{
    uint32_t x[LANES], largest = 0;
    memcpy(x, &sizes, sizeof(sizes));
    EACH_LANE largest = x[i] > largest ? x[i] : largest;
    return largest;
}
FORCE_INLINE void see_terms(term_sizes *sizes, vec a, int64_t lanes)
{
    EACH_GROUP
    {
        const lane_bits size = (lane_bits)a.x[i] & 0x7fffffff & lane_first(i, lanes);
        const lane_bits larger = size > sizes->x[i];
        sizes->x[i] = (size & larger) | (sizes->x[i] & ~larger);
    }
}

// Adding 1.5 * 2^52 leaves the nearest integer, ties to even, in the low bits of the sum.
FORCE_INLINE void fixed_add(int64_t *sum, vec a, int64_t lanes, term_sizes *sizes)
{
    const int64_t count = lanes < LANES ? lanes : LANES;
    float x[LANES];
    vec_spread(x, a);
    see_terms(sizes, a, lanes);
    for (int64_t i = 0; i < count; i++) {
        const double shifted = (double)x[i] + 0x1.8p52, base = 0x1.8p52;
        int64_t bits, base_bits;
        memcpy(&bits, &shifted, sizeof(bits));
        memcpy(&base_bits, &base, sizeof(base_bits));
        sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)(bits - base_bits));
    }
}
// (double)x, which processors without AVX-512 have no vector instruction for. The upper half is
// taken into a number near 2^84 and the lower half into one near 2^52, both exactly; their sum
// without these is rounded once.
FORCE_INLINE double double_of(int64_t x)
{
    const uint64_t upper = ((uint64_t)x >> 32) ^ 0x4530000080000000u;
    const uint64_t lower = ((uint64_t)x & 0xffffffffu) | 0x4330000000000000u;
    double high, low;
    memcpy(&high, &upper, sizeof(high));
    memcpy(&low, &lower, sizeof(low));
    return (high - (0x1p84 + 0x1p63 + 0x1p52)) + low;
}
FORCE_INLINE vec fixed_load(const int64_t *x, double unit, int64_t lanes, bool *fits)
{
    const int64_t limit = (int64_t)1 << 62;
    int64_t whole[LANES] = {0}, out = 0;
    float r[LANES];
    if (lanes >= LANES) {
        memcpy(whole, x, sizeof(whole));
    } else {
        memcpy(whole, x, (size_t)lanes * sizeof(*x));
    }
    EACH_LANE
    {
        r[i] = (float)(double_of(whole[i]) * unit);
        out |= (int64_t)(whole[i] >= limit) | (int64_t)(whole[i] <= -limit);
    }
    if (out != 0) *fits = false;
    return vec_of(r);
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
