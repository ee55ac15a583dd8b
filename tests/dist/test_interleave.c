// A few thousand operations, mixed over all groups of a mesh of 16 ranks; test_interleave_slow.c
// has the full number.

#include "dist/interleave.h"

static void groups_do_not_disturb_each_other(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 16;
    int operations = 3000;
    CY_CHECK_OK(cy_world_run_threads(&options, interleave_rank, &operations));
}

static void nor_do_they_over_messages(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 16;
    options.algorithm = "doubling";
    int operations = 300;
    CY_CHECK_OK(cy_world_run_threads(&options, interleave_rank, &operations));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_do_not_disturb_each_other),
        cmocka_unit_test(nor_do_they_over_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
