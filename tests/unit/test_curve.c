// The loss curve as a picture and as characters.

#include "observe/curve.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cy_curve_labels page = {"loss of \"run\" <1> & more", "step", "nats"};

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

// The same line elsewhere: the axes begin where the values do, not at zero.
static void axes_begin_where_the_values_do(void **state)
{
    (void)state;
    const double x[] = {100, 105, 110}, y[] = {8, 7, 6};
    const cy_curve curve = {.name = "training", .x = x, .y = y, .count = 3};
    cy_text out = {0};
    CY_CHECK_OK(cy_curve_svg(&out, &page, &curve, 1));
    assert_non_null(strstr(out.bytes, "d=\"M64.0 44.0L402.0 204.0L740.0 364.0\""));
    cy_text_free(&out);
    CY_CHECK_OK(cy_curve_plot(&out, &page, &curve, 1, 12, 3));
    assert_non_null(strstr(out.bytes, " |*           \n"));
    assert_non_null(strstr(out.bytes, " |      *     \n"));
    assert_non_null(strstr(out.bytes, " |           *\n"));
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

// The labels of the y axis, from below, with a space behind each.
static void y_labels(char labels[200], const double *y, int64_t count)
{
    static double x[64];
    for (int i = 0; i < 64; i++)
        x[i] = i;
    const cy_curve curve = {.name = "training", .x = x, .y = y, .count = count};
    cy_text out = {0};
    CY_CHECK_OK(cy_curve_svg(&out, &page, &curve, 1));
    labels[0] = '\0';
    const char *name = strstr(out.bytes, ">training<");
    for (const char *at = strstr(out.bytes, "\"end\">"); at != NULL && at + 5 < name;
         at = strstr(at + 1, "\"end\">")) {
        snprintf(labels + strlen(labels), 200 - strlen(labels), "%.*s ", (int)strcspn(at + 6, "<"),
            at + 6);
    }
    cy_text_free(&out);
}

static void ticks_are_round(void **state)
{
    (void)state;
    static const struct {
        double low, high;
        const char *labels;
    } cases[] = {
        {0, 7, "0 1 2 3 4 5 6 7 "},
        {0, 7.25, "0 2 4 6 8 "},
        {0, 14, "0 2 4 6 8 10 12 14 "},
        {0, 14.5, "0 5 10 15 "},
        {0, 35, "0 5 10 15 20 25 30 35 "},
        {0, 36, "0 10 20 30 40 "},
        {-3, 4, "-3 -2 -1 0 1 2 3 4 "},
        {2.25, 2.5, "2.25 2.30 2.35 2.40 2.45 2.50 "},
        {3, 3, "2.4 2.6 2.8 3.0 3.2 3.4 3.6 "},
        {0, 7000, "0 1000 2000 3000 4000 5000 6000 7000 "},
        {0, 9000, "0.00 2.00K 4.00K 6.00K 8.00K 10.0K "},
        {0, 70000, "0.00 10.0K 20.0K 30.0K 40.0K 50.0K 60.0K 70.0K "},
        {1e-5, 8e-5, "0.00001 0.00002 0.00003 0.00004 0.00005 0.00006 0.00007 0.00008 "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const double y[] = {cases[i].low, cases[i].high};
        char labels[200];
        y_labels(labels, y, 2);
        assert_string_equal(labels, cases[i].labels);
    }
}

// One of 51 points may leave the picture, where it would take more than half of it.
static void few_points_far_above_leave_the_picture(void **state)
{
    (void)state;
    static const struct {
        int count;
        double least, most, far;
        const char *labels;
    } cases[] = {
        {51, 0, 7, 70, "0 1 2 3 4 5 6 7 "}, {50, 0, 7, 70, "0 10 20 30 40 50 60 70 "},
        {51, 0, 35, 70, "0 10 20 30 40 50 60 70 "}, // just half
        {51, 0, 34, 70, "0 5 10 15 20 25 30 35 "},
        {51, -28, 7, 35, "-30 -20 -10 0 10 20 30 40 "}, // 35 of 63
        {51, -14, 7, 40, "-15 -10 -5 0 5 10 "},         // 21 of 54
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        double y[64] = {0};
        char labels[200];
        y[2] = cases[i].least;
        y[3] = cases[i].far;
        y[4] = y[5] = cases[i].most;
        y_labels(labels, y, cases[i].count);
        assert_string_equal(labels, cases[i].labels);
    }
}

// The picture of characters as a whole: the means of what falls into a column, and the labels.
static void a_plot_is_these_characters(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3, 4, 5, 10, 20}, y[] = {7, 5, 4, 2, 2, 1, 1, 0};
    const double at[] = {10, 20}, val[] = {4, 3.5};
    const cy_curve curves[] = {{.name = "training", .x = x, .y = y, .count = 8},
        {.name = "validation", .x = at, .y = val, .count = 2}};
    const cy_curve_labels plain = {"loss", "step", "nats"};
    cy_text out = {0};
    CY_CHECK_OK(cy_curve_plot(&out, &plain, curves, 2, 10, 6));
    assert_string_equal(out.bytes,
        "           loss, nats\n"
        "     6.42 |*         \n"
        "          |          \n"
        "          |     o   o\n"
        "          | *        \n"
        "     1.75 |  *       \n"
        "     0.58 |     *   *\n"
        "          +----------\n"
        "           0       20\n"
        "           step   * training   o validation\n");
    cy_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straight_line_is_drawn_straight),
        cmocka_unit_test(axes_begin_where_the_values_do),
        cmocka_unit_test(a_gap_is_left_where_values_are_not_finite),
        cmocka_unit_test(long_curves_stay_small),
        cmocka_unit_test(a_flat_curve_has_a_range),
        cmocka_unit_test(one_point_is_no_curve),
        cmocka_unit_test(ticks_are_round),
        cmocka_unit_test(few_points_far_above_leave_the_picture),
        cmocka_unit_test(a_plot_is_these_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
