// Collectives made of messages: the suite of the backends on every algorithm and number of ranks.

#include "dist/group_suite.h"

#include "comm/algorithm.h"

static cy_status run_suite(cy_world *world, void *context)
{
    (void)context;
    return suite_world(world, 3011);
}

static void every_algorithm_equals_serial(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 4, 5, 8};
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++) {
        for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
            cy_world_options options = cy_world_defaults();
            options.ranks = ranks[i];
            options.algorithm = cy_algorithm_name((cy_algorithm)a);
            CY_CHECK_OK(cy_world_run_threads(&options, run_suite, NULL));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_algorithm_equals_serial)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
