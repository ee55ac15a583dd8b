// The loss curve as a picture and as characters.

#include "observe/curve.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cy_curve_page page = {"loss of \"run\" <1> & more", "step", "nats"};

static int count_of(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word))
        count++;
    return count;
}

static void a_straight_line_is_drawn_straight(void **state)
{
    (void)state;
    const double x[] = {0, 5, 10}, y[] = {2, 1, 0};
    const cy_curve curve = {.name = "training", .x = x, .y = y, .count = 3};
    cy_text out = {0};
    CY_CHECK_OK(cy_curve_svg(&out, &page, &curve, 1));
    // From the top left of the plot area over its middle to the bottom right.
    assert_non_null(strstr(out.bytes, "d=\"M64.0 44.0L402.0 204.0L740.0 364.0\""));
    assert_non_null(strstr(out.bytes, "loss of &quot;run&quot; &lt;1&gt; &amp; more"));
    assert_non_null(strstr(out.bytes, "prefers-color-scheme: dark"));
    assert_null(strstr(out.bytes, "href")); // self-contained
    cy_text_free(&out);

    CY_CHECK_OK(cy_curve_plot(&out, &page, &curve, 1, 12, 3));
    assert_non_null(strstr(out.bytes, " |*           \n"));
    assert_non_null(strstr(out.bytes, " |      *     \n"));
    assert_non_null(strstr(out.bytes, " |           *\n"));
    assert_non_null(strstr(out.bytes, "step   * training"));
    cy_text_free(&out);
}

static void a_gap_is_left_where_values_are_not_finite(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4, 5}, y[] = {5, 4, (double)NAN, 2, (double)INFINITY};
    const cy_curve curve = {.name = "training", .x = x, .y = y, .count = 5};
    cy_text out = {0};
    CY_CHECK_OK(cy_curve_svg(&out, &page, &curve, 1));
    const char *path = strstr(out.bytes, " d=\"");
    assert_non_null(path);
    char points[200];
    snprintf(points, sizeof(points), "%.*s", (int)strcspn(path + 4, "\""), path + 4);
    assert_int_equal(count_of(points, "M"), 2);
    assert_int_equal(count_of(points, "L"), 1);
    assert_null(strstr(out.bytes, "nan"));
    assert_null(strstr(out.bytes, "inf"));
    cy_text_free(&out);
}

static void long_curves_stay_small(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    double *x = calloc(COUNT, sizeof(double)), *y = calloc(COUNT, sizeof(double));
    assert_non_null(x);
    assert_non_null(y);
    for (int i = 0; i < COUNT; i++) {
        x[i] = i + 1;
        y[i] = 2 + 9 * exp(-i / 300.0);
    }
    const double at[] = {50000, 100000}, val[] = {2.5, 2.25};
    const cy_curve curves[] = {{.name = "training", .x = x, .y = y, .count = COUNT},
        {.name = "validation", .x = at, .y = val, .count = 2, .marks = true}};
    cy_text out = {0};
    CY_CHECK_OK(cy_curve_svg(&out, &page, curves, 2));
    assert_true(out.length < 30000);
    assert_int_equal(count_of(out.bytes, "<circle"), 2);
    assert_int_equal(count_of(out.bytes, "<path"), 2);
    assert_non_null(strstr(out.bytes, ">100K</text>"));
    // The first hundreds of steps would squeeze all the rest: the axis ends well below 11.
    assert_null(strstr(out.bytes, ">10</text>"));
    cy_text_free(&out);
    CY_CHECK_OK(cy_curve_plot(&out, &page, curves, 2, 72, 16));
    assert_int_equal(count_of(out.bytes, "\n"), 16 + 4);
    assert_non_null(strchr(out.bytes, 'o'));
    cy_text_free(&out);
    free(x);
    free(y);
}

static void a_flat_curve_has_a_range(void **state)
{
    (void)state;
    const double x[] = {7, 7}, y[] = {3, 3};
    const cy_curve curve = {.name = "training", .x = x, .y = y, .count = 2, .marks = true};
    cy_text out = {0};
    CY_CHECK_OK(cy_curve_svg(&out, &page, &curve, 1));
    assert_null(strstr(out.bytes, "nan"));
    CY_CHECK_OK(cy_curve_plot(&out, &page, &curve, 1, 40, 8));
    cy_text_free(&out);
}

static void one_point_is_no_curve(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3}, y[] = {(double)NAN, 1, (double)NAN};
    const cy_curve curve = {.name = "training", .x = x, .y = y, .count = 3};
    cy_text out = {0};
    CY_CHECK_FAILS(cy_curve_svg(&out, &page, &curve, 1), CY_ERR_REQUEST, "there are 1 of 3");
    CY_CHECK_FAILS(
        cy_curve_plot(&out, &page, &curve, 1, 40, 8), CY_ERR_REQUEST, "there are 1 of 3");
    assert_null(out.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straight_line_is_drawn_straight),
        cmocka_unit_test(a_gap_is_left_where_values_are_not_finite),
        cmocka_unit_test(long_curves_stay_small),
        cmocka_unit_test(a_flat_curve_has_a_range),
        cmocka_unit_test(one_point_is_no_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
