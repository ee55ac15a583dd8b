// Numbers of one width as numbers of another, each rounded once.

#include "support/support.h"

#include "base/numbers.h"
#include "checkpoint/convert.h"

#include <math.h>
#include <string.h>

static void only_floats_become_others(void **state)
{
    (void)state;
    for (cy_dtype to = CY_F32; to <= CY_FX64; to++) {
        for (cy_dtype from = CY_F32; from <= CY_FX64; from++) {
            const bool floats = to <= CY_F16 && from <= CY_F16;
            assert_int_equal(cy_convert_is_known(to, from), to == from || floats);
        }
    }
}

// From fp64 by way of fp32 these would be rounded twice.
static void doubles_are_rounded_once(void **state)
{
    (void)state;
    static const struct {
        double x;
        uint16_t bf16, f16;
    } cases[] = {
        {0.0, 0x0000, 0x0000},
        {-0.0, 0x8000, 0x8000},
        {1.0, 0x3f80, 0x3c00},
        {-2.5, 0xc020, 0xc100},
        {1 + 0x1p-8, 0x3f80, 0x3c04},
        {1 + 0x1p-8 + 0x1p-40, 0x3f81, 0x3c04},
        {1 + 0x1p-8 - 0x1p-40, 0x3f80, 0x3c04},
        {1 + 3 * 0x1p-8, 0x3f82, 0x3c0c},
        {1 + 3 * 0x1p-8 - 0x1p-40, 0x3f81, 0x3c0c},
        {-1 - 3 * 0x1p-8 + 0x1p-40, 0xbf81, 0xbc0c},
        {-1 - 0x1p-8 - 0x1p-40, 0xbf81, 0xbc04},
        {1 + 0x1p-11, 0x3f80, 0x3c00},
        {1 + 0x1p-11 + 0x1p-40, 0x3f80, 0x3c01},
        {1 + 3 * 0x1p-11, 0x3f80, 0x3c02},
        {1 + 3 * 0x1p-11 - 0x1p-40, 0x3f80, 0x3c01},
        {-1 - 3 * 0x1p-11 + 0x1p-40, 0xbf80, 0xbc01},
        {65520, 0x4780, 0x7c00},
        {65520 - 0x1p-30, 0x4780, 0x7bff},
        {-65520 + 0x1p-30, 0xc780, 0xfbff},
        {1e300, 0x7f80, 0x7c00},
        {-1e300, 0xff80, 0xfc00},
        {1e-300, 0x0000, 0x0000},
        {-1e-300, 0x8000, 0x8000},
        {0x1p-25 + 0x1p-60, 0x3300, 0x0001},
        {0x1p-25, 0x3300, 0x0000},
        {(double)INFINITY, 0x7f80, 0x7c00},
        {(double)-INFINITY, 0xff80, 0xfc00},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint16_t half = 7;
        cy_convert(&half, CY_BF16, &cases[i].x, CY_F64, 1);
        assert_int_equal(half, cases[i].bf16);
        cy_convert(&half, CY_F16, &cases[i].x, CY_F64, 1);
        assert_int_equal(half, cases[i].f16);
        float single = 7;
        cy_convert(&single, CY_F32, &cases[i].x, CY_F64, 1);
        assert_int_equal(cy_f32_bits(single), cy_f32_bits((float)cases[i].x));
    }
    const double nan = (double)NAN;
    uint16_t half = 0;
    cy_convert(&half, CY_BF16, &nan, CY_F64, 1);
    assert_true(isnan(cy_bf16_to_f32(half)));
    cy_convert(&half, CY_F16, &nan, CY_F64, 1);
    assert_true(isnan(cy_f16_to_f32(half)));
}

// Every float into every other, in counts about that of a block; what stands behind stays.
static void every_pair_and_count(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 255, 256, 257, 512, 700};
    static const size_t sizes[] = {4, 8, 2, 2};
    for (cy_dtype to = CY_F32; to <= CY_F16; to++) {
        for (cy_dtype from = CY_F32; from <= CY_F16; from++) {
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                unsigned char in[700 * 8], out[701 * 8], single[8], back[8];
                for (int64_t i = 0; i < counts[c]; i++) {
                    const double x = (double)(i % 97) - 48; // all of them hold it
                    cy_convert(in + (size_t)i * sizes[from], from, &x, CY_F64, 1);
                }
                memset(out, 0xa5, sizeof(out));
                cy_convert(out, to, in, from, counts[c]);
                for (int64_t i = 0; i < counts[c]; i++) {
                    const double x = (double)(i % 97) - 48;
                    double wide = 0;
                    memcpy(single, out + (size_t)i * sizes[to], sizes[to]);
                    cy_convert(back, CY_F64, single, to, 1);
                    memcpy(&wide, back, 8);
                    assert_true(wide == x);
                }
                assert_int_equal(out[(size_t)counts[c] * sizes[to]], 0xa5);
            }
        }
    }
    const int64_t whole[2] = {INT64_MAX, -1};
    int64_t copy[2] = {0};
    cy_convert(copy, CY_I64, whole, CY_I64, 2);
    assert_memory_equal(copy, whole, sizeof(whole));
}

// Exactly the numbers that cy_convert makes infinite, and those that were never finite.
static void numbers_that_do_not_fit_are_counted(void **state)
{
    (void)state;
    static const cy_dtype dtypes[] = {CY_F64, CY_F32, CY_BF16, CY_F16};
    static const double values[] = {0, -1, 65504, -65519.99, 65519.996, 65520, -65520, 65536, 1e30,
        0x1.fep127, 0x1.fefffep127, 0x1.ffp127, -0x1.fffffep127, 0x1.fffffeffp127, 0x1.ffffffp127,
        -1e39, 1e300, (double)INFINITY, -(double)INFINITY, (double)NAN};
    for (size_t f = 0; f < 4; f++) {
        for (size_t t = 0; t < 4; t++) {
            int64_t all = 0;
            enum { COUNT = 600 };
            static double in[COUNT];
            for (int i = 0; i < COUNT; i++) {
                double one[1], back;
                uint64_t out;
                const double value = values[(size_t)i % (sizeof(values) / sizeof(values[0]))];
                cy_convert(one, dtypes[f], &value, CY_F64, 1);
                cy_convert(&out, dtypes[t], one, dtypes[f], 1);
                cy_convert(&back, CY_F64, &out, dtypes[t], 1);
                assert_int_equal(
                    cy_convert_not_finite(dtypes[t], one, dtypes[f], 1), !isfinite(back));
                memcpy((char *)in + (size_t)i * cy_dtype_size(dtypes[f]), one,
                    cy_dtype_size(dtypes[f]));
                all += !isfinite(back);
            }
            assert_true(all >= 3 * COUNT / 20 && all < COUNT);
            assert_int_equal(cy_convert_not_finite(dtypes[t], in, dtypes[f], COUNT), all);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_that_do_not_fit_are_counted),
        cmocka_unit_test(only_floats_become_others),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(every_pair_and_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
