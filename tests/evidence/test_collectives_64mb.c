// Collectives of 64 megabytes, on 2, 3 and 8 ranks: every dtype and every reduction equal a serial
// reference.

#include "dist/large_collectives.h"

static void every_reduction_of_64_megabytes(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 8};
    for (int i = 0; i < 3; i++)
        large_collectives(ranks[i], (large_job){.bytes = (int64_t)64 << 20});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_reduction_of_64_megabytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
