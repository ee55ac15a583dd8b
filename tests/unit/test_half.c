// All 65,536 numbers of both 16-bit formats, and every fp32 number that lies on, just below or just
// above one of them or the middle between two, against a definition by arithmetic in double.

#include "support/support.h"

#include "base/numbers.h"

#include <math.h>
#include <stdbool.h>

typedef struct format {
    int mantissa_bits;
    int exponent_min; // of the smallest normal number
    int exponent_max;
    float (*widen)(uint16_t bits);
    uint16_t (*narrow)(float x);
} format;

static float widen_bf16(uint16_t bits)
{
    return cy_bf16_to_f32(bits);
}

static float widen_f16(uint16_t bits)
{
    return cy_f16_to_f32(bits);
}

static uint16_t narrow_bf16(float x)
{
    return cy_bf16_from_f32(x);
}

static uint16_t narrow_f16(float x)
{
    return cy_f16_from_f32(x);
}

static const format bf16 = {7, -126, 127, widen_bf16, narrow_bf16};
static const format f16 = {10, -14, 15, widen_f16, narrow_f16};

// The value that the bits have by the definition of IEEE 754.
static double value_of(const format *of, uint16_t bits)
{
    const int mantissa = bits & ((1 << of->mantissa_bits) - 1);
    const int exponent = (bits & 0x7fff) >> of->mantissa_bits;
    const int top = of->exponent_max - of->exponent_min + 2;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == top) return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, of->exponent_min - of->mantissa_bits);
    return sign *
        ldexp(mantissa + (1 << of->mantissa_bits),
            of->exponent_min + exponent - 1 - of->mantissa_bits);
}

// The nearest number of the format, ties to even, as a double.
static double nearest(const format *of, double x)
{
    int exponent;
    (void)frexp(x, &exponent);
    int unit = exponent - 1 - of->mantissa_bits;
    const int smallest = of->exponent_min - of->mantissa_bits;
    if (unit < smallest) unit = smallest;
    const double rounded = ldexp(nearbyint(ldexp(x, -unit)), unit);
    const double limit = ldexp(1.0, of->exponent_max + 1);
    return fabs(rounded) >= limit ? copysign((double)INFINITY, x) : rounded;
}

static void check_narrow(const format *of, float x)
{
    const uint16_t bits = of->narrow(x);
    const double got = value_of(of, bits), want = nearest(of, (double)x);
    if (got == want && !signbit(got) == !signbit(want)) return;
    print_error("%a became %a, wanted %a\n", (double)x, got, want);
    fail();
}

static void check_format(const format *of)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t bits = (uint16_t)i;
        const double value = value_of(of, bits);
        const float wide = of->widen(bits);
        if (isnan(value)) {
            assert_true(isnan(wide));
            assert_true(isnan(of->widen(of->narrow(wide))));
            assert_int_equal(of->narrow(wide) & 0x8000, bits & 0x8000);
            continue;
        }
        assert_true((double)wide == value && !signbit(wide) == !signbit(value));
        assert_int_equal(of->narrow(wide), bits); // exact both ways
        if (isinf(value)) continue;
        const double next = value_of(of, (uint16_t)(bits + 1)); // away from zero
        const float middle = (float)(isinf(next) ? value + (value - value_of(of, bits - 1)) / 2
                                                 : (value + next) / 2);
        check_narrow(of, wide);
        check_narrow(of, nextafterf(wide, INFINITY));
        check_narrow(of, nextafterf(wide, -INFINITY));
        check_narrow(of, middle);
        check_narrow(of, nextafterf(middle, INFINITY));
        check_narrow(of, nextafterf(middle, -INFINITY));
    }
}

static void bf16_is_exact(void **state)
{
    (void)state;
    check_format(&bf16);
}

static void f16_is_exact(void **state)
{
    (void)state;
    check_format(&f16);
}

// One fp32 number of each exponent and sign, with mantissas that round every way.
static void all_exponents(void **state)
{
    (void)state;
    for (uint32_t high = 0; high < 65536; high++) {
        static const uint32_t lows[] = {
            0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (size_t j = 0; j < sizeof(lows) / sizeof(lows[0]); j++) {
            const float x = cy_f32_from_bits(high << 16 | lows[j]);
            if (isnan(x)) {
                assert_true(isnan(cy_bf16_to_f32(cy_bf16_from_f32(x))));
                assert_true(isnan(cy_f16_to_f32(cy_f16_from_f32(x))));
            } else if (!isinf(x)) {
                check_narrow(&bf16, x);
                check_narrow(&f16, x);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_is_exact),
        cmocka_unit_test(f16_is_exact),
        cmocka_unit_test(all_exponents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
