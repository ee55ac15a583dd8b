// Loss scaling as a state machine.

#include "optim/loss_scaler.h"
#include "support/support.h"

static void doubles_after_2000_clean_steps(void **state)
{
    (void)state;
    const cy_loss_scaler_spec spec = cy_loss_scaler_defaults();
    cy_loss_scaler scaler = cy_loss_scaler_start(&spec);
    assert_true(scaler.scale == 65536);
    for (int i = 0; i < 1999; i++)
        assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_true(scaler.scale == 65536);
    assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_true(scaler.scale == 131072);
    for (int i = 0; i < 2000; i++)
        assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_true(scaler.scale == 262144);
    assert_int_equal(scaler.skipped_steps, 0);
}

static void an_overflow_skips_the_step_and_halves(void **state)
{
    (void)state;
    const cy_loss_scaler_spec spec = cy_loss_scaler_defaults();
    cy_loss_scaler scaler = cy_loss_scaler_start(&spec);
    for (int i = 0; i < 1500; i++)
        assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_false(cy_loss_scaler_step(&scaler, &spec, true));
    assert_true(scaler.scale == 32768);
    assert_int_equal(scaler.skipped_steps, 1);
    // The clean steps count anew.
    for (int i = 0; i < 1999; i++)
        assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_true(scaler.scale == 32768);
    assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_true(scaler.scale == 65536);
}

static void stays_within_its_bounds(void **state)
{
    (void)state;
    cy_loss_scaler_spec spec = cy_loss_scaler_defaults();
    spec.growth_interval = 1;
    cy_loss_scaler scaler = cy_loss_scaler_start(&spec);
    for (int i = 0; i < 100; i++)
        assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_true(scaler.scale == 16777216);
    for (int i = 0; i < 24; i++)
        assert_false(cy_loss_scaler_step(&scaler, &spec, true));
    assert_true(scaler.scale == 1);
    assert_int_equal(scaler.stuck_steps, 0); // it came down by halving, and had not been stuck
    for (int i = 0; i < 3; i++)
        assert_false(cy_loss_scaler_step(&scaler, &spec, true));
    assert_true(scaler.scale == 1);
    assert_int_equal(scaler.stuck_steps, 3);
    assert_true(cy_loss_scaler_step(&scaler, &spec, false));
    assert_int_equal(scaler.stuck_steps, 0);
    assert_int_equal(scaler.skipped_steps, 27);
}

static void a_copied_state_goes_on_the_same_way(void **state)
{
    (void)state;
    cy_loss_scaler_spec spec = cy_loss_scaler_defaults();
    spec.growth_interval = 7;
    cy_loss_scaler straight = cy_loss_scaler_start(&spec);
    cy_loss_scaler resumed = straight;
    for (int step = 0; step < 500; step++) {
        const bool overflow = step % 31 == 5 || step % 97 == 11;
        if (step == 250) resumed = straight; // what a checkpoint restores
        (void)cy_loss_scaler_step(&straight, &spec, overflow);
        if (step >= 250) (void)cy_loss_scaler_step(&resumed, &spec, overflow);
    }
    assert_true(straight.scale == resumed.scale);
    assert_int_equal(straight.clean_steps, resumed.clean_steps);
    assert_int_equal(straight.skipped_steps, resumed.skipped_steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_after_2000_clean_steps),
        cmocka_unit_test(an_overflow_skips_the_step_and_halves),
        cmocka_unit_test(stays_within_its_bounds),
        cmocka_unit_test(a_copied_state_goes_on_the_same_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
