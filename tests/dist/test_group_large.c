// Collectives of a megabyte and three elements, on 1 to 8 ranks: every dtype and every reduction
// equal a serial reference. tests/evidence/test_collectives_64mb.c has 64 megabytes.

#include "dist/large_collectives.h"

static void every_reduction_of_a_megabyte(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 5, 8};
    for (int i = 0; i < 6; i++)
        large_collectives(ranks[i], (large_job){.bytes = (int64_t)1 << 20, .more = 3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_reduction_of_a_megabyte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
