// Parity over 50 steps: every ZeRO stage in fp64, fp32 and bf16.

#include "dist/data_parallel_suite.h"

static void fifty_steps_in_fp64(void **state)
{
    (void)state;
    const parity_bound bound = {CY_F64, 50, "ref", 1e-10, 1e-9};
    for (int zero = 0; zero <= 3; zero++) {
        check_parity(&(grid_case){2, zero, 4, true, 0.01}, &bound);
        check_parity(&(grid_case){4, zero, 1, false, 25}, &bound);
    }
}

static void fifty_steps_in_fp32(void **state)
{
    (void)state;
    const parity_bound bound = {CY_F32, 50, "auto", 1e-5, 1e-4};
    for (int zero = 0; zero <= 3; zero++)
        check_parity(&(grid_case){2, zero, 2, true, 0.02}, &bound);
}

static void fifty_steps_in_bf16(void **state)
{
    (void)state;
    const parity_bound bound = {CY_BF16, 50, "auto", 1e-2, 0};
    for (int zero = 0; zero <= 3; zero++)
        check_parity(&(grid_case){3, zero, 2, true, 0.02}, &bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_steps_in_fp64),
        cmocka_unit_test(fifty_steps_in_fp32),
        cmocka_unit_test(fifty_steps_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
