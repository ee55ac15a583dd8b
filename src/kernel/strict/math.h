// kernel/strict/math.h: exp, log, sine and cosine in double, and whole powers, from additions,
// products and fused multiply-adds alone, so that the bits are the same on every processor. Errors
// stay below 2 units in the last place of a double in the ranges named, where nothing else is said.

#ifndef CY_KERNEL_STRICT_MATH_H
#define CY_KERNEL_STRICT_MATH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

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

#endif
