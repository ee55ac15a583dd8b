// kernel/cpu/vector/vector.h: a vector of LANES fp32 numbers, as wide as the instruction set that
// the including file is compiled for.
//
// avx2/vector.h, avx512/vector.h and neon/vector.h define it, so that each operator is written
// once. A load or store takes the number of lanes that exist: the others read as zero and are not
// written, so a loop needs no second body for its tail. bf16 is widened when it is loaded and
// rounded to nearest even, with the bits of base/numbers.h, when it is stored. Multiply-adds are
// written, never inferred. Only files in avx2/, avx512/, amx/ and neon/, and those of
// kernel/strict/, include this.
//
//   vec_all(x)                       x in all lanes
//   vec_add sub mul div sqrt         lane by lane
//   vec_max, vec_min(a, b)           the larger, the smaller; b where either is a NaN
//   vec_fma(a, b, c)                 a b + c, rounded once
//   vec_fnma(a, b, c)                c - a b, rounded once
//   vec_round, vec_floor(a)          to a whole number: the nearest, ties to even; the one below
//   vec_scale(a, n)                  a 2^n for whole n, also where 2^n itself is no normal number
//   lanes_between(first, last)       the mask of lanes first <= i < last
//   vec_select(mask, yes, no)        lanes of yes where the mask is set, of no elsewhere
//   vec_first(a, b, lanes)           the first lanes from a, the others from b
//   vec_sum, vec_sum_pairs(a)        the sum of all lanes; where their order differs, the first
//                                    adds halves of the vector, the second neighbours
//   vec_sum4(sums, x)                sums[i] = the sum of x[i], of four vectors at once
//   vec_largest(a)                   the largest lane
//   squares_add(sum, a), _total      sums of squares in fp64
//   vec_load, vec_store(at)          all lanes of fp32
//   load_f32, load_bf16(at, lanes)   the first lanes; `lanes` is above 0 and may exceed LANES
//   store_f32, store_bf16            likewise
//   store_bf16_fast(at, a)           all lanes; subnormal numbers may become zero
//   load_as, store_as(at, dtype)     the first lanes of fp32, bf16 or fp16
//   lanes_above(at, limit, lanes)    a bit for each lane whose magnitude, as an integer, is above
//                                    `limit`, which may be -1
//   vec_int_magnitude, max, largest  the bits of numbers without their sign, as integers
//   store_codes, load_codes          int8 of whole numbers from -127 to 127
//
// Vectors of eight lanes also have transpose8(to, rows): to[i][j] = rows[j][i], where `to` may be
// `rows`; and load_as gives zeros and store_as writes nothing where `lanes` is not above 0.

#ifndef CY_KERNEL_CPU_VECTOR_VECTOR_H
#define CY_KERNEL_CPU_VECTOR_VECTOR_H

#include "base/numbers.h"
#include "device/view.h"

#include <string.h>

#define FORCE_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include "kernel/cpu/avx512/vector.h"
#elif defined(CY_SIXTEEN_LANES) // kernel/strict/lanes.h defines it in portable C
#elif defined(__aarch64__)
#include "kernel/cpu/neon/vector.h"
#else
#include "kernel/cpu/avx2/vector.h"
#endif

#ifdef CY_SIXTEEN_LANES // of strict mode: the same computation whatever the processor
#include "kernel/strict/lanes.h"
#endif

// ---- the same for all instruction sets

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
