// kernel/cpu/neon/vector.h: the vector of kernel/cpu/vector/vector.h in NEON: eight numbers in two
// registers. Included by kernel/cpu/vector/vector.h only, which says what each function does.
//
// Two registers, so that a chain of sums has two additions on their way, and eight numbers of 16
// bits are one register. Everything here is in the base instruction set of aarch64.

#ifndef CY_KERNEL_CPU_NEON_VECTOR_H
#define CY_KERNEL_CPU_NEON_VECTOR_H

#include <arm_neon.h>

#define LANES INT64_C(8)
typedef float32x4x2_t vec;
typedef uint32x4x2_t vec_mask; // of each lane all bits or none

// One register after the other.
#define EACH_HALF for (int half_ = 0; half_ < 2; half_++)
#define HALF(x)   (x).val[half_]

FORCE_INLINE vec vec_all(float x)
{
    return (vec){{vdupq_n_f32(x), vdupq_n_f32(x)}};
}
FORCE_INLINE vec vec_add(vec a, vec b)
{
    EACH_HALF HALF(a) = vaddq_f32(HALF(a), HALF(b));
    return a;
}
FORCE_INLINE vec vec_sub(vec a, vec b)
{
    EACH_HALF HALF(a) = vsubq_f32(HALF(a), HALF(b));
    return a;
}
FORCE_INLINE vec vec_mul(vec a, vec b)
{
    EACH_HALF HALF(a) = vmulq_f32(HALF(a), HALF(b));
    return a;
}
FORCE_INLINE vec vec_div(vec a, vec b)
{
    EACH_HALF HALF(a) = vdivq_f32(HALF(a), HALF(b));
    return a;
}
FORCE_INLINE vec vec_sqrt(vec a)
{
    EACH_HALF HALF(a) = vsqrtq_f32(HALF(a));
    return a;
}
// Not vmaxq and vminq, which return a NaN where either is one.
FORCE_INLINE vec vec_max(vec a, vec b)
{
    EACH_HALF HALF(b) = vbslq_f32(vcgtq_f32(HALF(a), HALF(b)), HALF(a), HALF(b));
    return b;
}
FORCE_INLINE vec vec_min(vec a, vec b)
{
    EACH_HALF HALF(b) = vbslq_f32(vcltq_f32(HALF(a), HALF(b)), HALF(a), HALF(b));
    return b;
}
FORCE_INLINE vec vec_fma(vec a, vec b, vec c)
{
    EACH_HALF HALF(c) = vfmaq_f32(HALF(c), HALF(a), HALF(b));
    return c;
}
FORCE_INLINE vec vec_fnma(vec a, vec b, vec c)
{
    EACH_HALF HALF(c) = vfmsq_f32(HALF(c), HALF(a), HALF(b));
    return c;
}
FORCE_INLINE vec vec_round(vec a)
{
    EACH_HALF HALF(a) = vrndnq_f32(HALF(a));
    return a;
}
FORCE_INLINE vec vec_floor(vec a)
{
    EACH_HALF HALF(a) = vrndmq_f32(HALF(a));
    return a;
}
// In two steps, each of which is a normal number for |n| <= 252. A NaN in n is 0: it is in a as
// well.
FORCE_INLINE vec vec_scale(vec a, vec n)
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

// ---- lanes

FORCE_INLINE vec_mask lanes_between(int64_t first, int64_t last)
{
    static const int32_t numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int32x4_t from = vdupq_n_s32(first < 0 ? 0 : first > 8 ? 8 : (int32_t)first);
    const int32x4_t to = vdupq_n_s32(last < 0 ? 0 : last > 8 ? 8 : (int32_t)last);
    vec_mask mask;
    EACH_HALF
    {
        const int32x4_t lane = vld1q_s32(numbers + 4 * half_);
        HALF(mask) = vandq_u32(vcgeq_s32(lane, from), vcltq_s32(lane, to));
    }
    return mask;
}
FORCE_INLINE vec vec_select(vec_mask mask, vec yes, vec no)
{
    EACH_HALF HALF(no) = vbslq_f32(HALF(mask), HALF(yes), HALF(no));
    return no;
}
FORCE_INLINE vec vec_first(vec a, vec b, int64_t lanes)
{
    return vec_select(lanes_between(0, lanes), a, b);
}

FORCE_INLINE float vec_sum(vec a)
{
    return vaddvq_f32(vaddq_f32(a.val[0], a.val[1]));
}
FORCE_INLINE float vec_sum_pairs(vec a)
{
    return vec_sum(a);
}
FORCE_INLINE void vec_sum4(float sums[4], const vec x[4])
{
    float32x4_t half[4];
    for (int i = 0; i < 4; i++)
        half[i] = vaddq_f32(x[i].val[0], x[i].val[1]);
    vst1q_f32(sums, vpaddq_f32(vpaddq_f32(half[0], half[1]), vpaddq_f32(half[2], half[3])));
}
FORCE_INLINE float vec_largest(vec a)
{
    return vmaxnmvq_f32(vmaxnmq_f32(a.val[0], a.val[1]));
}

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

// ---- loads and stores: there are no masked ones, so what is left of a row goes by way of the
// stack

FORCE_INLINE vec vec_load(const float *x)
{
    return (vec){{vld1q_f32(x), vld1q_f32(x + 4)}};
}
FORCE_INLINE void vec_store(float *y, vec a)
{
    vst1q_f32(y, a.val[0]);
    vst1q_f32(y + 4, a.val[1]);
}

FORCE_INLINE vec load_f32(const float *x, int64_t lanes)
{
    if (lanes >= LANES) return vec_load(x);
    float numbers[LANES] = {0};
    memcpy(numbers, x, (size_t)lanes * sizeof(*numbers));
    return vec_load(numbers);
}
FORCE_INLINE void store_f32(float *y, vec a, int64_t lanes)
{
    if (lanes >= LANES) {
        vec_store(y, a);
        return;
    }
    float numbers[LANES];
    vec_store(numbers, a);
    memcpy(y, numbers, (size_t)lanes * sizeof(*numbers));
}

FORCE_INLINE uint16x8_t load_words(const void *x, int64_t lanes)
{
    if (lanes >= LANES) return vld1q_u16(x);
    uint16_t words[LANES] = {0};
    memcpy(words, x, (size_t)lanes * sizeof(*words));
    return vld1q_u16(words);
}
FORCE_INLINE void store_words(void *y, uint16x8_t a, int64_t lanes)
{
    if (lanes >= LANES) {
        vst1q_u16(y, a);
        return;
    }
    uint16_t words[LANES];
    vst1q_u16(words, a);
    memcpy(y, words, (size_t)lanes * sizeof(*words));
}

FORCE_INLINE vec load_bf16(const cy_bf16 *x, int64_t lanes)
{
    const uint16x8_t words = load_words(x, lanes);
    return (vec){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(words), 16)),
        vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(words), 16))}};
}
FORCE_INLINE void store_bf16(cy_bf16 *y, vec a, int64_t lanes)
{
    uint16x4_t words[2];
    EACH_HALF
    {
        const uint32x4_t bits = vreinterpretq_u32_f32(HALF(a));
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
        const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, odd), vdupq_n_u32(0x7fff));
        const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
        const uint32x4_t number = vceqq_f32(HALF(a), HALF(a));
        words[half_] = vshrn_n_u32(vbslq_u32(number, rounded, quiet), 16);
    }
    store_words(y, vcombine_u16(words[0], words[1]), lanes);
}
FORCE_INLINE void store_bf16_fast(cy_bf16 *y, vec a)
{
    store_bf16(y, a, LANES);
}

FORCE_INLINE vec load_f16(const void *x, int64_t lanes)
{
    const float16x8_t halves = vreinterpretq_f16_u16(load_words(x, lanes));
    return (vec){{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
}
FORCE_INLINE void store_f16(void *y, vec a, int64_t lanes)
{
    const float16x8_t halves = vcvt_high_f16_f32(vcvt_f16_f32(a.val[0]), a.val[1]);
    store_words(y, vreinterpretq_u16_f16(halves), lanes);
}

FORCE_INLINE vec load_as(const void *x, const cy_dtype dtype, int64_t lanes)
{
    if (lanes <= 0) return vec_all(0.0f);
    if (dtype == CY_F32) return load_f32(x, lanes);
    return dtype == CY_BF16 ? load_bf16(x, lanes) : load_f16(x, lanes);
}
FORCE_INLINE void store_as(void *y, const cy_dtype dtype, vec a, int64_t lanes)
{
    if (lanes <= 0) return;
    if (dtype == CY_F32) {
        store_f32(y, a, lanes);
    } else if (dtype == CY_BF16) {
        store_bf16(y, a, lanes);
    } else {
        store_f16(y, a, lanes);
    }
}

// r[i][j] = r[j][i] of four rows.
FORCE_INLINE void transpose4(float32x4_t r[4])
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
FORCE_INLINE void transpose8(vec to[8], const vec rows[8])
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

// ---- integers

FORCE_INLINE unsigned lanes_above(const float *x, int64_t limit, int64_t lanes)
{
    static const uint32_t bit[LANES] = {1, 2, 4, 8, 16, 32, 64, 128};
    const vec values = load_f32(x, lanes);
    const vec_mask there = lanes_between(0, lanes);
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

typedef int32x4x2_t vec_int;

FORCE_INLINE vec_int vec_int_magnitude(vec x)
{
    vec_int size;
    EACH_HALF HALF(size) = vandq_s32(vreinterpretq_s32_f32(HALF(x)), vdupq_n_s32(0x7fffffff));
    return size;
}
FORCE_INLINE vec_int vec_int_max(vec_int a, vec_int b)
{
    EACH_HALF HALF(a) = vmaxq_s32(HALF(a), HALF(b));
    return a;
}
FORCE_INLINE int32_t vec_int_largest(vec_int a)
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
