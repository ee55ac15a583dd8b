// The multiply-add of processors that have none is the C library's, bit by bit: over random bits of
// every size, sums that nearly cancel, ties of fp32, subnormals and what is not finite.
#include "support/support.h"

#include "base/numbers.h"
#include "base/random.h"
#include "kernel/strict/math.h"

static int64_t different;

static void compare(float a, float b, float c)
{
    const float wanted = fmaf(a, b, c), got = cy_fused_without(a, b, c);
    if (cy_f32_bits(got) == cy_f32_bits(wanted) || (isnan(got) && isnan(wanted))) return;
    different++;
    print_error("%a * %a + %a is %a, not %a\n", (double)a, (double)b, (double)c, (double)wanted,
        (double)got);
}

static float random_float(uint64_t number)
{
    return cy_f32_from_bits((uint32_t)cy_random_bits(7, number));
}

static void random_bits(void **state)
{
    (void)state;
    different = 0;
    for (uint64_t i = 0; i < 1000000 && different < 10; i++)
        compare(random_float(3 * i), random_float(3 * i + 1), random_float(3 * i + 2));
    assert_int_equal(different, 0);
}

// c near -a b, near half a unit of a b's last place, and far below it: where two roundings show.
static void what_two_roundings_would_miss(void **state)
{
    (void)state;
    different = 0;
    for (uint64_t i = 0; i < 300000 && different < 10; i++) {
        const float a = 1.0f + (float)cy_random_uniform(8, 2 * i);
        const float b = 1.0f + (float)cy_random_uniform(8, 2 * i + 1);
        const float product = a * b, unit = 0x1p-24f;
        const float tiny = (i & 1) != 0 ? 0x1p-60f : -0x1p-60f;
        compare(a, b, -product);
        compare(a, b, -nextafterf(product, 0.0f));
        // A product that is an odd multiple of half a unit, and a little more or less.
        compare(a, 1.0f + 0x1p-23f, tiny);
        compare(a + unit * 2.0f, 1.5f, tiny);
        compare(0x1p-80f * a, 0x1p-60f * b, 0x1p-149f * (float)(i % 5)); // subnormal results
        compare(-0x1p-75f * a, 0x1p-74f * b, 0x1p-149f * (float)(i % 5));
        compare(a, b, 0x1p24f + (float)(i % 9));
        compare(-a, b, 0x1p25f + 4.0f * (float)(i % 9));
    }
    compare(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, 0x1p-100f);
    compare(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -0x1p-100f);
    assert_true(cy_fused_without(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, 0x1p-100f) >
        cy_fused_without(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -0x1p-100f));
    assert_int_equal(different, 0);
}

static void special_values(void **state)
{
    (void)state;
    static const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 0x1p-149f,
        -0x1p-149f, 0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, 0x1p64f};
    const size_t count = sizeof(values) / sizeof(*values);
    different = 0;
    for (size_t i = 0; i < count * count * count; i++)
        compare(values[i % count], values[i / count % count], values[i / count / count]);
    assert_int_equal(different, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bits),
        cmocka_unit_test(what_two_roundings_would_miss),
        cmocka_unit_test(special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
