// kernel/cpu/vector512.h: sixteen fp32 numbers in a register of AVX-512.
// Included by kernel/cpu/vector/vector.h and kernel/strict/lanes.h, which have what differs between them:
// the sums over lanes.

#ifndef CY_KERNEL_CPU_VECTOR512_H
#define CY_KERNEL_CPU_VECTOR512_H

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
