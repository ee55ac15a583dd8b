// What was learned of a step's order says what comes next, and nothing where a step goes another
// way.

#include "support/support.h"

#include "parallel/data/reducer_parts.h"

#define UNITS 5

// 3 1 4 1 5
static const int units[UNITS] = {3, 1, 4, 1, 5};

static void learn(cy_exec_order *order)
{
    for (int i = 0; i < UNITS; i++) {
        CY_CHECK_OK(cy_exec_order_append(order, units[i]));
        assert_int_equal(order->count, i + 1);
        assert_int_equal(cy_exec_order_next(order, 0), -1); // all that is known is behind
    }
}

// Each unit in turn, with what is known beyond it.
static void follow(cy_exec_order *order)
{
    for (int i = 0; i < UNITS; i++) {
        for (int ahead = 0; i + ahead < UNITS; ahead++)
            assert_int_equal(cy_exec_order_next(order, ahead), units[i + ahead]);
        assert_int_equal(cy_exec_order_next(order, UNITS - i), -1);
        cy_exec_order_use(order, units[i]);
    }
    assert_int_equal(cy_exec_order_next(order, 0), -1);
}

static void a_step_is_known_from_its_beginning(void **state)
{
    (void)state;
    cy_exec_order order = {0};
    assert_int_equal(cy_exec_order_next(&order, 0), -1);
    learn(&order);
    for (int step = 0; step < 3; step++) {
        cy_exec_order_rewind(&order);
        follow(&order);
    }
    cy_exec_order_use(
        &order, 3); // beyond the end nothing is known: a step does not repeat by itself
    assert_int_equal(cy_exec_order_next(&order, 0), -1);
    cy_exec_order_free(&order);
    assert_null(order.units);
}

static void another_way_ends_what_is_known(void **state)
{
    (void)state;
    cy_exec_order order = {0};
    learn(&order);
    cy_exec_order_rewind(&order);
    cy_exec_order_use(&order, 3);
    cy_exec_order_use(&order, 4); // not 1
    for (int ahead = 0; ahead < UNITS; ahead++)
        assert_int_equal(cy_exec_order_next(&order, ahead), -1);
    cy_exec_order_rewind(&order);
    follow(&order);
    cy_exec_order_free(&order);
}

static void what_repeats_begins_again_at_its_end(void **state)
{
    (void)state;
    cy_exec_order order = {.repeats = true};
    learn(&order);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < UNITS; i++) {
            cy_exec_order_use(&order, units[i]);
            assert_int_equal(cy_exec_order_next(&order, 0), i + 1 < UNITS ? units[i + 1] : -1);
        }
    }
    cy_exec_order_free(&order);
}

static void what_is_forgotten_is_learned_anew(void **state)
{
    (void)state;
    cy_exec_order order = {0};
    learn(&order);
    cy_exec_order_rewind(&order);
    cy_exec_order_use(&order, 3);
    cy_exec_order_clear(&order);
    assert_int_equal(cy_exec_order_next(&order, 0), -1);
    learn(&order);
    cy_exec_order_rewind(&order);
    follow(&order);
    cy_exec_order_free(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_known_from_its_beginning),
        cmocka_unit_test(another_way_ends_what_is_known),
        cmocka_unit_test(what_repeats_begins_again_at_its_end),
        cmocka_unit_test(what_is_forgotten_is_learned_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
