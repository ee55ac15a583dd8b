// Parity under mpirun: two ranks in every stage and dtype, eight ranks in fp64.

#include "dist/data_parallel_mpi_suite.h"

static void two_ranks(void **state)
{
    (void)state;
    const parity_bound bounds[] = {in_fp64, in_fp32, in_bf16};
    for (int i = 0; i < 3; i++)
        expect_cases(&(mpi_cases){2, 0, 3, 4, bounds[i]});
}

static void eight_ranks(void **state)
{
    (void)state;
    expect_cases(&(mpi_cases){8, 0, 3, 1, in_fp64});
}

int main(int argc, char **argv)
{
    if (argc > 6) return run_as_mpi_rank(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(eight_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
