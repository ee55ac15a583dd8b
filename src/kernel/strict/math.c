// Computes exp, log, sine, cosine and whole powers with the same bits on every processor.

#include "kernel/strict/math.h"

double cy_strict_exp(double x)
{
    if (isnan(x)) return x;
    if (x < -708.0) return 0.0;
    if (x > 709.0) return (double)INFINITY;
    const double n = rint(x * 0x1.71547652b82fep+0);
    double r = fma(-n, 0x1.62e42fefa39efp-1, x);
    r = fma(-n, 0x1.abc9e3b39803fp-56, r);
    double p = 1.0 / 6227020800.0;
    static const double inverse[] = {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
        1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0,
        1.0 / 6.0, 0.5, 1.0, 1.0};
    for (int i = 0; i < 13; i++)
        p = fma(p, r, inverse[i]);
    return ldexp(p, (int)n);
}

double cy_strict_log(double x)
{
    if (x == 0.0) return -(double)INFINITY;
    if (!(x > 0.0)) return (double)NAN;
    if (isinf(x)) return x;
    int e;
    double m = frexp(x, &e); // in [1/2, 1)
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2.0;
        e--;
    }
    const double s = (m - 1.0) / (m + 1.0), square = s * s;
    double p = 1.0 / 23.0;
    for (int i = 21; i >= 3; i -= 2)
        p = fma(p, square, 1.0 / (double)i);
    // e ln 2 in two parts, the small one with the series' small terms.
    const double small = fma((double)e, 0x1.abc9e3b39803fp-56, 2.0 * s * square * p);
    return fma((double)e, 0x1.62e42fefa39efp-1, 2.0 * s + small);
}

void cy_strict_sine_cosine(double *sine, double *cosine, double x)
{
    const double n = rint(x * 0x1.45f306dc9c883p-1);
    double r = fma(-n, 0x1.921fb54442d18p+0, x);
    r = fma(-n, 0x1.1a62633145c07p-54, r);
    const double square = r * r;
    static const double of_sine[] = {-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0};
    static const double of_cosine[] = {-1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
        1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0};
    double s = 1.0 / 355687428096000.0, c = 1.0 / 20922789888000.0;
    for (int i = 0; i < 7; i++)
        s = fma(s, square, of_sine[i]);
    s = fma(s * square, r, r);
    for (int i = 0; i < 8; i++)
        c = fma(c, square, of_cosine[i]);
    const int64_t quarter = (int64_t)n & 3;
    const bool swap = (quarter & 1) != 0;
    const double first = swap ? c : s, second = swap ? s : c;
    *sine = quarter >= 2 ? -first : first;
    *cosine = quarter == 1 || quarter == 2 ? -second : second;
}

double cy_strict_power(double x, int64_t n)
{
    double power = 1.0;
    for (; n > 0; n >>= 1) {
        if ((n & 1) != 0) power *= x;
        x *= x;
    }
    return power;
}
