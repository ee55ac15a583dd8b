// kernel/strict/fused.h: a * b + c of fp32 numbers, rounded once, on processors that have such an
// instruction and on those that have none.
//
// Without the instruction fmaf() is a call that changes the rounding mode. In fp64 the product is
// exact. The sum is rounded to odd: where it is not exact, of the two fp64 numbers around it the
// one whose last bit is 1 is taken, so that rounding it to fp32 sees on which side of a tie the
// exact sum lies (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"). That
// takes at least two bits more than the result has: fp64 has 29.

#ifndef CY_KERNEL_STRICT_FUSED_H
#define CY_KERNEL_STRICT_FUSED_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float cy_fused_without(float a, float b, float c)
{
    const double product = (double)a * (double)b, addend = (double)c;
    const double sum = product + addend;
    // What the sum lacks, exactly (Knuth's two-sum); a NaN where the sum is not finite.
    const double of_addend = sum - product;
    const double lack = (product - (sum - of_addend)) + (addend - of_addend);
    int64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    const int64_t inexact = (lack > 0.0) | (lack < 0.0);
    const int64_t outward = (lack > 0.0) == (sum > 0.0); // the exact sum is the larger in size
    bits += inexact & ~bits & 1 ? 2 * outward - 1 : 0;
    double odd;
    memcpy(&odd, &bits, sizeof(odd));
    return (float)odd;
}

static inline float cy_fused(float a, float b, float c)
{
#if defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return cy_fused_without(a, b, c);
#endif
}

#endif
