// What tests compare with: a difference that is no number is never a small one.

#include "support/support.h"

#include <math.h>

static double worst_of(const double *differences, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++)
        cy_test_worse(&worst, differences[i]);
    return worst;
}

static void the_largest_difference_is_kept(void **state)
{
    (void)state;
    const double nan = (double)NAN, inf = (double)INFINITY;
    assert_true(worst_of((double[]){0, 0}, 2) == 0);
    assert_true(worst_of((double[]){1, 3, 2}, 3) == 3);
    assert_true(worst_of((double[]){1, inf, 2}, 3) == inf);
    assert_true(isnan(worst_of((double[]){nan, 1, 2}, 3)));
    assert_true(isnan(worst_of((double[]){1, nan, 2}, 3)));
    assert_true(isnan(worst_of((double[]){1, 2, nan}, 3)));
    assert_true(isnan(worst_of((double[]){nan, inf}, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_difference_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
