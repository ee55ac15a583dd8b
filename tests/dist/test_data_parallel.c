// Data parallelism and ZeRO: whatever is kept as shards, the training is that of one rank. Some
// steps of some cases; test_data_parallel_slow.c has more of both, test_data_parallel_long.c all.

#include "dist/data_parallel_suite.h"

static void every_stage_trains_as_one_rank(void **state)
{
    (void)state;
    const parity_bound bound = {CY_F64, 3, "ref", 1e-11, 1e-11};
    for (int zero = 0; zero <= 3; zero++) {
        check_parity(&(grid_case){2, zero, 2, false, 0.01}, &bound);
        check_parity(&(grid_case){3, zero, 1, true, 25}, &bound);
    }
}

static void recomputation_finds_its_weights(void **state)
{
    (void)state;
    cy_test_training full, none;
    cy_config config = grid_config(&(grid_case){2, 3, 2, true, 25}, CY_F64);
    cy_test_train(&none, &config, 2, "ref");
    config.training.recompute = CY_CONFIG_RECOMPUTE_FULL;
    cy_test_train(&full, &config, 2, "ref");
    assert_true(cy_test_loss_difference(&full, &none) == 0.0);
    assert_true(full.hash == none.hash);
    cy_test_training_close(&full);
    cy_test_training_close(&none);
}

// Shards of tensor-parallel parts: 2 x 2 ranks against one.
static void every_stage_goes_with_tensor_parallelism(void **state)
{
    (void)state;
    cy_config dense = grid_config(&(grid_case){1, 0, 4, true, 25}, CY_F64);
    cy_test_training one, four;
    cy_test_train(&one, &dense, 3, "ref");
    for (int zero = 0; zero <= 3; zero++) {
        cy_config config = grid_config(&(grid_case){2, zero, 2, true, 0.01}, CY_F64);
        config.distributed.tp_size = 2;
        cy_test_train(&four, &config, 3, "ref");
        if (!(cy_test_loss_difference(&four, &one) <= 1e-11 &&
                cy_test_weight_difference(&four, &one, &dense) <= 1e-9 &&
                fabs(four.norm[0] / one.norm[0] - 1.0) <= 1e-12)) {
            fail_msg("zero %d: loss %g, weights %g", zero, cy_test_loss_difference(&four, &one),
                cy_test_weight_difference(&four, &one, &dense));
        }
        cy_test_training_close(&four);
    }
    cy_test_training_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_trains_as_one_rank),
        cmocka_unit_test(every_stage_goes_with_tensor_parallelism),
        cmocka_unit_test(recomputation_finds_its_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
