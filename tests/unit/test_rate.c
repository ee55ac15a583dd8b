// The learning rate of each step, against values worked out by hand.

#include "optim/lr_schedule.h"
#include "support/support.h"

#include <math.h>

static void near(double value, double wanted)
{
    if (fabs(value - wanted) <= 1e-15 * (1 + fabs(wanted))) return;
    print_error("%.17g, wanted %.17g\n", value, wanted);
    fail();
}

static void constant_stays(void **state)
{
    (void)state;
    const cy_lr_schedule spec = {.kind = CY_LR_CONSTANT, .learning_rate = 3e-4};
    for (int64_t step = 1; step < 2000; step += 37) {
        assert_true(cy_lr_at(&spec, step) == 3e-4);
    }
}

static void warmup_is_a_straight_line_to_full_rate(void **state)
{
    (void)state;
    for (int kind = CY_LR_CONSTANT; kind < CY_LR_SCHEDULES; kind++) {
        const cy_lr_schedule spec = {
            .kind = (cy_lr_schedule_kind)kind,
            .learning_rate = 0.8,
            .min_learning_rate = 0.1, // warm-up starts from 0, not from the least rate
            .warmup_steps = 4,
            .total_steps = 100,
        };
        near(cy_lr_at(&spec, 1), 0.2);
        near(cy_lr_at(&spec, 2), 0.4);
        near(cy_lr_at(&spec, 3), 0.6);
        assert_true(cy_lr_at(&spec, 4) == 0.8);
    }
}

static void linear_falls_evenly(void **state)
{
    (void)state;
    const cy_lr_schedule spec = {.kind = CY_LR_LINEAR,
        .learning_rate = 1,
        .min_learning_rate = 0.2,
        .warmup_steps = 10,
        .total_steps = 50};
    near(cy_lr_at(&spec, 10), 1);
    near(cy_lr_at(&spec, 11), 0.98);
    near(cy_lr_at(&spec, 30), 0.6);
    near(cy_lr_at(&spec, 50), 0.2);
    near(cy_lr_at(&spec, 51), 0.2);
    near(cy_lr_at(&spec, 1000000), 0.2);
}

static void cosine_is_a_half_wave(void **state)
{
    (void)state;
    const cy_lr_schedule spec = {.kind = CY_LR_COSINE,
        .learning_rate = 6e-4,
        .min_learning_rate = 6e-5,
        .warmup_steps = 20,
        .decay_steps = 220,
        .total_steps = 500};
    const double pi = acos(-1.0);
    for (int64_t step = 20; step <= 220; step++) {
        const double t = (double)(step - 20) / 200;
        near(cy_lr_at(&spec, step), 6e-5 + (6e-4 - 6e-5) * 0.5 * (1 + cos(pi * t)));
    }
    near(cy_lr_at(&spec, 120), 3.3e-4);
    near(cy_lr_at(&spec, 220), 6e-5);
    near(cy_lr_at(&spec, 400), 6e-5);
}

static void wsd_decays_at_the_end_only(void **state)
{
    (void)state;
    cy_lr_schedule spec = {.kind = CY_LR_WSD,
        .learning_rate = 1,
        .warmup_steps = 10,
        .decay_steps = 20,
        .total_steps = 100};
    assert_true(cy_lr_at(&spec, 11) == 1);
    assert_true(cy_lr_at(&spec, 80) == 1);
    near(cy_lr_at(&spec, 81), 0.95);
    near(cy_lr_at(&spec, 90), 0.5);
    near(cy_lr_at(&spec, 100), 0);
    spec.decay_steps = 0; // a tenth of the run
    assert_true(cy_lr_at(&spec, 90) == 1);
    near(cy_lr_at(&spec, 95), 0.5);
    spec.total_steps = 15; // a tenth, rounded up, is 2
    assert_true(cy_lr_at(&spec, 13) == 1);
    near(cy_lr_at(&spec, 14), 0.5);
}

static void warmup_longer_than_the_run_is_fine(void **state)
{
    (void)state;
    const cy_lr_schedule spec = {
        .kind = CY_LR_COSINE, .learning_rate = 1, .warmup_steps = 100, .total_steps = 10};
    near(cy_lr_at(&spec, 10), 0.1);
    near(cy_lr_at(&spec, 99), 0.99);
}

// A decay of one step, of none, and one that was over before the warm-up.
static void short_decays(void **state)
{
    (void)state;
    for (int kind = CY_LR_LINEAR; kind <= CY_LR_COSINE; kind++) {
        cy_lr_schedule spec = {.kind = (cy_lr_schedule_kind)kind,
            .learning_rate = 1,
            .min_learning_rate = 0.25,
            .warmup_steps = 10,
            .total_steps = 50};
        for (int64_t end = 8; end <= 11; end++) {
            spec.decay_steps = end;
            assert_true(cy_lr_at(&spec, 10) == 1);
            assert_true(cy_lr_at(&spec, 11) == 0.25);
            assert_true(cy_lr_at(&spec, 12) == 0.25);
        }
        spec.decay_steps = 12;
        near(cy_lr_at(&spec, 11), 0.625);
        near(cy_lr_at(&spec, 12), 0.25);
        spec.decay_steps = 0; // to the last step
        assert_true(cy_lr_at(&spec, 49) > 0.25);
        near(cy_lr_at(&spec, 50), 0.25);
    }
    const cy_lr_schedule none = {.kind = CY_LR_WSD, .learning_rate = 1, .total_steps = 0};
    assert_true(cy_lr_at(&none, 1) == 0);
    const cy_lr_schedule one = {.kind = CY_LR_WSD, .learning_rate = 1, .total_steps = 1};
    assert_true(cy_lr_at(&one, 1) == 0); // its decay is a step long
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(warmup_is_a_straight_line_to_full_rate),
        cmocka_unit_test(linear_falls_evenly),
        cmocka_unit_test(cosine_is_a_half_wave),
        cmocka_unit_test(wsd_decays_at_the_end_only),
        cmocka_unit_test(warmup_longer_than_the_run_is_fine),
        cmocka_unit_test(short_decays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
