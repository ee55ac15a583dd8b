// kernel/cpu/neon/operators.h: the vector of kernel/cpu/vector/vector.h in NEON: eight lanes.
// Included by kernel/cpu/vector/vector.h only. It gives the operations of neon/vector.h the names
// that operators use.

#ifndef CY_KERNEL_CPU_NEON_OPERATORS_H
#define CY_KERNEL_CPU_NEON_OPERATORS_H

#include "kernel/cpu/neon/vector.h"

#define LANES 8
typedef float8 vec;

FORCE_INLINE vec vec_all(float x)
{
    return set8(x);
}
FORCE_INLINE vec vec_add(vec a, vec b)
{
    return add8(a, b);
}
FORCE_INLINE vec vec_sub(vec a, vec b)
{
    return sub8(a, b);
}
FORCE_INLINE vec vec_mul(vec a, vec b)
{
    return mul8(a, b);
}
FORCE_INLINE vec vec_div(vec a, vec b)
{
    return div8(a, b);
}
FORCE_INLINE vec vec_sqrt(vec a)
{
    return sqrt8(a);
}
FORCE_INLINE vec vec_max(vec a, vec b)
{
    return max8(a, b);
}
FORCE_INLINE vec vec_min(vec a, vec b)
{
    return min8(a, b);
}
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    return fma8(a, b, c);
}
FORCE_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return fnma8(a, b, c);
}
FORCE_INLINE vec vec_round(vec a)
{
    EACH_HALF HALF(a) = vrndnq_f32(HALF(a));
    return a;
}
FORCE_INLINE vec vec_scale(vec a, vec n)
{
    return scale8(a, n);
}
FORCE_INLINE vec load_f32(const float *x, int64_t lanes)
{
    return load8_as(x, CY_F32, lanes);
}
FORCE_INLINE void store_f32(float *y, vec a, int64_t lanes)
{
    store8_as(y, CY_F32, lanes, a);
}
FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    return load8_as(x, CY_BF16, lanes);
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    store8_as(y, CY_BF16, lanes, a);
}
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    return select8(between8(0, lanes), a, b);
}
FORCE_INLINE float vec_sum(vec a)
{
    return sum8(a);
}
FORCE_INLINE float vec_largest(vec a)
{
    return largest8(a);
}

// Sums of squares in fp64.
typedef struct squares {
    float64x2_t low, high;
} squares;

FORCE_INLINE void squares_add(squares *sum, vec a)
{
    EACH_HALF
    {
        const float64x2_t low = vcvt_f64_f32(vget_low_f32(HALF(a)));
        const float64x2_t high = vcvt_high_f64_f32(HALF(a));
        sum->low = vfmaq_f64(sum->low, low, low);
        sum->high = vfmaq_f64(sum->high, high, high);
    }
}
FORCE_INLINE double squares_total(squares sum)
{
    return vaddvq_f64(vaddq_f64(sum.low, sum.high));
}

// ---- what kernel/cpu/vector/compress.h needs of integers

// A bit for each lane whose magnitude, as an integer, is above `limit`, which may be -1.
FORCE_INLINE unsigned lanes_above(const float *x, int64_t limit, int64_t lanes)
{
    static const uint32_t bit[LANES] = {1, 2, 4, 8, 16, 32, 64, 128};
    const vec values = load_f32(x, lanes);
    const mask8 there = between8(0, lanes);
    const int32x4_t most = vdupq_n_s32((int32_t)limit);
    uint32x4_t bits = vdupq_n_u32(0);
    EACH_HALF
    {
        const int32x4_t size =
            vandq_s32(vreinterpretq_s32_f32(HALF(values)), vdupq_n_s32(0x7fffffff));
        const uint32x4_t above = vandq_u32(vcgtq_s32(size, most), HALF(there));
        bits = vorrq_u32(bits, vandq_u32(above, vld1q_u32(bit + 4 * half_)));
    }
    return vaddvq_u32(bits);
}

typedef int32x4x2_t whole;

FORCE_INLINE whole whole_magnitude(vec x)
{
    whole size;
    EACH_HALF HALF(size) = vandq_s32(vreinterpretq_s32_f32(HALF(x)), vdupq_n_s32(0x7fffffff));
    return size;
}
FORCE_INLINE whole whole_max(whole a, whole b)
{
    EACH_HALF HALF(a) = vmaxq_s32(HALF(a), HALF(b));
    return a;
}
FORCE_INLINE int32_t whole_largest(whole a)
{
    return vmaxvq_s32(vmaxq_s32(a.val[0], a.val[1]));
}
FORCE_INLINE void store_codes(int8_t *code, vec units, int64_t lanes)
{
    const int16x4_t low = vqmovn_s32(vcvtnq_s32_f32(units.val[0]));
    const int16x8_t words = vqmovn_high_s32(low, vcvtnq_s32_f32(units.val[1]));
    int8_t bytes[LANES];
    vst1_s8(bytes, vqmovn_s16(words));
    memcpy(code, bytes, (size_t)lanes);
}
FORCE_INLINE vec load_codes(const int8_t *code, int64_t lanes)
{
    int8_t bytes[LANES] = {0};
    memcpy(bytes, code, (size_t)lanes);
    const int16x8_t words = vmovl_s8(vld1_s8(bytes));
    return (vec){
        {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))}};
}

#endif
