// Parity over 50 steps in fp64: every number of ranks, stage and accumulation.

#include "dist/data_parallel_suite.h"

static void every_case(void **state)
{
    (void)state;
    const parity_bound bound = {CY_F64, 50, "ref", 1e-10, 1e-9};
    const int sizes[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < 5; i++) {
        for (int zero = 0; zero <= 3; zero++) {
            for (int accumulation = 1; accumulation <= 4; accumulation += 3) {
                check_parity(&(grid_case){sizes[i], zero, accumulation, false, 0.02}, &bound);
                check_parity(&(grid_case){sizes[i], zero, accumulation, true, 25}, &bound);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
