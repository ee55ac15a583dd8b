// kernel/cpu/neon/lanes.h: a vector of eight floats and the operations that attention's rows need,
// under the same names as in avx512/lanes.h.

#ifndef CY_KERNEL_CPU_NEON_LANES_H
#define CY_KERNEL_CPU_NEON_LANES_H

#include "kernel/cpu/neon/vector.h"

#define LANES INT64_C(8)
typedef float8 lanes;
typedef mask8 lane_mask;

NEON_INLINE lanes lanes_set(float x)
{
    return set8(x);
}

NEON_INLINE lanes lanes_load(const float *at)
{
    return load8(at);
}

NEON_INLINE void lanes_store(float *at, lanes x)
{
    store8(at, x);
}

NEON_INLINE lanes lanes_load_as(const void *at, const cy_dtype dtype, int64_t count)
{
    return load8_as(at, dtype, count);
}

NEON_INLINE void lanes_store_as(void *at, const cy_dtype dtype, int64_t count, lanes x)
{
    store8_as(at, dtype, count, x);
}

NEON_INLINE void lanes_store_bf16(uint16_t *at, lanes x)
{
    vst1q_u16(at, narrow8_bf16(x));
}

NEON_INLINE lanes lanes_add(lanes a, lanes b)
{
    return add8(a, b);
}

NEON_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return sub8(a, b);
}

NEON_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return mul8(a, b);
}

NEON_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return fma8(a, b, c);
}

NEON_INLINE lanes lanes_max(lanes a, lanes b)
{
    return max8(a, b);
}

NEON_INLINE lanes lanes_fraction(lanes x, lanes *whole)
{
    const lanes clamped = max8(set8(-160.0f), x); // a NaN passes
    EACH_HALF whole->val[half_] = vrndmq_f32(HALF(clamped));
    return sub8(clamped, *whole);
}

NEON_INLINE lanes lanes_scale(lanes x, lanes n)
{
    return scale8(x, n);
}

NEON_INLINE lane_mask lanes_between(int64_t first, int64_t last)
{
    return between8(first, last);
}

NEON_INLINE lanes lanes_select(lane_mask mask, lanes yes, lanes no)
{
    return select8(mask, yes, no);
}

NEON_INLINE float lanes_sum(lanes x)
{
    return sum8(x);
}

// sums[i] = the sum of x[i], of four vectors at once.
NEON_INLINE void lanes_sum4(float sums[4], const lanes x[4])
{
    float32x4_t half[4];
    for (int i = 0; i < 4; i++)
        half[i] = vaddq_f32(x[i].val[0], x[i].val[1]);
    vst1q_f32(sums, vpaddq_f32(vpaddq_f32(half[0], half[1]), vpaddq_f32(half[2], half[3])));
}

NEON_INLINE float lanes_largest(lanes x)
{
    return largest8(x);
}

#endif
