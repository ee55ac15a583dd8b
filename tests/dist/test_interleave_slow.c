// A hundred thousand operations, mixed over all groups of a mesh of 16 ranks.

#include "dist/interleave.h"

static void groups_do_not_disturb_each_other(void **state)
{
    (void)state;
    for (int check = 0; check < 2; check++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = 16;
        options.check = check == 1;
        interleave_job job = {.operations = 100000};
        CY_CHECK_OK(cy_world_run_threads(&options, interleave_rank, &job));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
