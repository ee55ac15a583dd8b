// A few thousand operations, mixed over all groups of a mesh; test_interleave_slow.c
// has the full number.

#include "dist/interleave.h"

static void groups_do_not_disturb_each_other(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 16;
    interleave_job job = {.operations = 3000};
    CY_CHECK_OK(cy_world_run_threads(&options, interleave_rank, &job));
}

static void nor_do_they_over_messages(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 16;
    options.algorithm = "doubling";
    interleave_job job = {.operations = 300};
    CY_CHECK_OK(cy_world_run_threads(&options, interleave_rank, &job));
}

// Collectives in flight do not wait for each other, in whatever order their ranks come to them.
static void nor_do_rings_of_fragments(void **state)
{
    (void)state;
    static const int worlds[] = {2, 3, 4, 8, 16};
    for (int i = 0; i < 5; i++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = worlds[i];
        interleave_job job = {.operations = 1600 / worlds[i], .fragment_bytes = 4096};
        CY_CHECK_OK(cy_world_run_threads(&options, interleave_rank, &job));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_do_not_disturb_each_other),
        cmocka_unit_test(nor_do_they_over_messages),
        cmocka_unit_test(nor_do_rings_of_fragments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
