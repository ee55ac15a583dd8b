// Parity under mpirun: every number of ranks, stage, accumulation and dtype.

#include "dist/data_parallel_mpi_suite.h"

static void every_case(void **state)
{
    (void)state;
    const parity_bound bounds[] = {in_fp64, in_fp32, in_bf16};
    const int sizes[] = {1, 2, 3, 4, 8};
    for (int i = 0; i < 5; i++) {
        for (int b = 0; b < 3; b++)
            expect_cases(&(mpi_cases){sizes[i], 0, 3, 4, bounds[b]});
    }
}

int main(int argc, char **argv)
{
    if (argc > 6) return run_as_mpi_rank(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
