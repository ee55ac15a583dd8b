// kernel/cpu/neon/vector.h: eight fp32 numbers in two registers of NEON, with loads that widen and
// stores that narrow.
//
// Two registers, so that a chain of sums has two additions on their way, and eight numbers of 16
// bits are one register. Everything here is in the base instruction set of aarch64. Included under
// neon/, and by kernel/cpu/vector/vector.h, which gives the operators its names for these.

#ifndef CY_KERNEL_CPU_NEON_VECTOR_H
#define CY_KERNEL_CPU_NEON_VECTOR_H

#include "base/numbers.h"
#include "device/view.h"

#include <arm_neon.h>
#include <string.h>

#define NEON_INLINE static inline __attribute__((always_inline))

typedef float32x4x2_t float8;
typedef uint32x4x2_t mask8; // of each lane all bits or none

// One register after the other.
#define EACH_HALF for (int half_ = 0; half_ < 2; half_++)
#define HALF(x)   (x).val[half_]

NEON_INLINE float8 set8(float x)
{
    return (float8){{vdupq_n_f32(x), vdupq_n_f32(x)}};
}
NEON_INLINE float8 add8(float8 a, float8 b)
{
    EACH_HALF HALF(a) = vaddq_f32(HALF(a), HALF(b));
    return a;
}
NEON_INLINE float8 sub8(float8 a, float8 b)
{
    EACH_HALF HALF(a) = vsubq_f32(HALF(a), HALF(b));
    return a;
}
NEON_INLINE float8 mul8(float8 a, float8 b)
{
    EACH_HALF HALF(a) = vmulq_f32(HALF(a), HALF(b));
    return a;
}
NEON_INLINE float8 div8(float8 a, float8 b)
{
    EACH_HALF HALF(a) = vdivq_f32(HALF(a), HALF(b));
    return a;
}
NEON_INLINE float8 sqrt8(float8 a)
{
    EACH_HALF HALF(a) = vsqrtq_f32(HALF(a));
    return a;
}
NEON_INLINE float8 fma8(float8 a, float8 b, float8 c)
{
    EACH_HALF HALF(c) = vfmaq_f32(HALF(c), HALF(a), HALF(b));
    return c;
}
// c - a b
NEON_INLINE float8 fnma8(float8 a, float8 b, float8 c)
{
    EACH_HALF HALF(c) = vfmsq_f32(HALF(c), HALF(a), HALF(b));
    return c;
}
// Lanes of yes where the mask is set, of no elsewhere.
NEON_INLINE float8 select8(mask8 mask, float8 yes, float8 no)
{
    EACH_HALF HALF(no) = vbslq_f32(HALF(mask), HALF(yes), HALF(no));
    return no;
}
// a > b ? a : b, as on x86: b where one of them is a NaN, which vmaxq is not.
NEON_INLINE float8 max8(float8 a, float8 b)
{
    EACH_HALF HALF(b) = vbslq_f32(vcgtq_f32(HALF(a), HALF(b)), HALF(a), HALF(b));
    return b;
}
NEON_INLINE float8 min8(float8 a, float8 b)
{
    EACH_HALF HALF(b) = vbslq_f32(vcltq_f32(HALF(a), HALF(b)), HALF(a), HALF(b));
    return b;
}

// a 2^n for whole n, in two steps, each of which is a normal number for |n| <= 252: results below
// 2^-126 are subnormals. A NaN in n is 0: it is in a as well.
NEON_INLINE float8 scale8(float8 a, float8 n)
{
    EACH_HALF
    {
        const int32x4_t whole = vcvtnq_s32_f32(HALF(n)), one = vshrq_n_s32(whole, 1);
        const int32x4_t two = vsubq_s32(whole, one), bias = vdupq_n_s32(127);
        const float32x4_t first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(one, bias), 23));
        const float32x4_t second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(two, bias), 23));
        HALF(a) = vmulq_f32(vmulq_f32(HALF(a), first), second);
    }
    return a;
}

// Lanes [first, last).
NEON_INLINE mask8 between8(int64_t first, int64_t last)
{
    static const int32_t numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int32x4_t from = vdupq_n_s32(first < 0 ? 0 : first > 8 ? 8 : (int32_t)first);
    const int32x4_t to = vdupq_n_s32(last < 0 ? 0 : last > 8 ? 8 : (int32_t)last);
    mask8 mask;
    EACH_HALF
    {
        const int32x4_t lane = vld1q_s32(numbers + 4 * half_);
        HALF(mask) = vandq_u32(vcgeq_s32(lane, from), vcltq_s32(lane, to));
    }
    return mask;
}

NEON_INLINE float8 load8(const float *at)
{
    return (float8){{vld1q_f32(at), vld1q_f32(at + 4)}};
}
NEON_INLINE void store8(float *at, float8 x)
{
    vst1q_f32(at, x.val[0]);
    vst1q_f32(at + 4, x.val[1]);
}

NEON_INLINE float8 widen8_bf16(uint16x8_t x)
{
    return (float8){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)),
        vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(x), 16))}};
}
// The bits of cy_bf16_from_f32.
NEON_INLINE uint16x8_t narrow8_bf16(float8 x)
{
    uint16x4_t words[2];
    EACH_HALF
    {
        const uint32x4_t bits = vreinterpretq_u32_f32(HALF(x));
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
        const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, odd), vdupq_n_u32(0x7fff));
        const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
        const uint32x4_t number = vceqq_f32(HALF(x), HALF(x));
        words[half_] = vshrn_n_u32(vbslq_u32(number, rounded, quiet), 16);
    }
    return vcombine_u16(words[0], words[1]);
}
NEON_INLINE float8 widen8_f16(uint16x8_t x)
{
    const float16x8_t halves = vreinterpretq_f16_u16(x);
    return (float8){{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
}
NEON_INLINE uint16x8_t narrow8_f16(float8 x)
{
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.val[0]), x.val[1]));
}

// Up to eight elements as fp32; lanes beyond `count` are zero and not read. There are no masked
// loads: what is left of a row goes by way of the stack.
NEON_INLINE float8 load8_as(const void *from, const cy_dtype dtype, int64_t count)
{
    if (count <= 0) return set8(0.0f);
    if (dtype == CY_F32) {
        if (count >= 8) return load8(from);
        float whole[8] = {0};
        memcpy(whole, from, (size_t)count * sizeof(float));
        return load8(whole);
    }
    uint16x8_t bits;
    if (count >= 8) {
        bits = vld1q_u16(from);
    } else {
        uint16_t whole[8] = {0};
        memcpy(whole, from, (size_t)count * sizeof(uint16_t));
        bits = vld1q_u16(whole);
    }
    return dtype == CY_BF16 ? widen8_bf16(bits) : widen8_f16(bits);
}
NEON_INLINE void store8_as(void *to, const cy_dtype dtype, int64_t count, float8 x)
{
    if (count <= 0) return;
    if (dtype == CY_F32) {
        if (count >= 8) {
            store8(to, x);
            return;
        }
        float whole[8];
        store8(whole, x);
        memcpy(to, whole, (size_t)count * sizeof(float));
        return;
    }
    const uint16x8_t bits = dtype == CY_BF16 ? narrow8_bf16(x) : narrow8_f16(x);
    if (count >= 8) {
        vst1q_u16(to, bits);
        return;
    }
    uint16_t whole[8];
    vst1q_u16(whole, bits);
    memcpy(to, whole, (size_t)count * sizeof(uint16_t));
}

NEON_INLINE float sum8(float8 x)
{
    return vaddvq_f32(vaddq_f32(x.val[0], x.val[1]));
}
// A NaN loses against every number, or all lanes are.
NEON_INLINE float largest8(float8 x)
{
    return vmaxnmvq_f32(vmaxnmq_f32(x.val[0], x.val[1]));
}

// ---- transposition

// r[i][j] = r[j][i] of four rows.
NEON_INLINE void transpose4(float32x4_t r[4])
{
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

// Columns become rows: to[j] = column j of the eight rows.
NEON_INLINE void transpose8(float8 to[8], const float8 rows[8])
{
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            float32x4_t square[4];
            for (int k = 0; k < 4; k++)
                square[k] = rows[4 * i + k].val[j];
            transpose4(square);
            for (int k = 0; k < 4; k++)
                to[4 * j + k].val[i] = square[k];
        }
    }
}

#endif
