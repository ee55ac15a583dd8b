// kernel/strict/math.h: mathematics with the same bits on every processor: the fused multiply-add
// of fp32, and exp, log, sine, cosine and whole powers in double, which are made of additions,
// products and fused multiply-adds alone.
//
// Errors stay below 2 units in the last place of a double in the ranges named, unless a comment
// says otherwise.

#ifndef CY_KERNEL_STRICT_MATH_H
#define CY_KERNEL_STRICT_MATH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// e^x: 0 below -708, infinity above 709. Taylor's series to r^13 on |r| <= ln 2 / 2.
double cy_strict_exp(double x);

// Natural logarithm of a positive normal number; -infinity for 0, NaN below. With x = m 2^e and s =
// (m - 1) / (m + 1), log m = 2 (s + s^3 / 3 + ...).
double cy_strict_log(double x);

// For |x| < 2^24: the angle is brought to |r| <= pi / 4 with pi / 2 in two parts of 53 bits. What
// is left of pi / 2 behind them, below 2^-109, counts as an error of up to |x| times that in the
// angle: where a sine or cosine is nearly 0, more than 2 units of its own last place.
void cy_strict_sine_cosine(double *sine, double *cosine, double x);

// x^n for n >= 0, by squaring.
double cy_strict_power(double x, int64_t n);

// ---- a * b + c of fp32 numbers, rounded once, also on processors without such an instruction
//
// Without the instruction fmaf() is a call that changes the rounding mode. In fp64 the product is
// exact. The sum is rounded to odd: where it is not exact, of the two fp64 numbers around it the
// one whose last bit is 1 is taken, so that rounding it to fp32 sees on which side of a tie the
// exact sum lies (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"). That
// takes at least two bits more than the result has: fp64 has 29.

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
