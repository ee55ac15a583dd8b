// A schedule in time: against the checker's ticks, against sums done by hand, and as it is drawn.

#include "support/support.h"

#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

#include <math.h>
#include <string.h>

static cy_schedule opened(cy_pipeline_engine engine, int stages, int microbatches, int chunks)
{
    const cy_schedule_options options = {
        .engine = engine, .stages = stages, .microbatches = microbatches, .chunks = chunks};
    cy_schedule schedule;
    CY_CHECK_OK(cy_schedule_open(&schedule, &options));
    return schedule;
}

static cy_timeline simulate(const cy_schedule *schedule, cy_durations durations)
{
    cy_timeline timeline;
    CY_CHECK_OK(cy_schedule_simulate(&timeline, schedule, &durations));
    return timeline;
}

static void is_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b) + 1e-12)) fail_msg("%.17g is not %.17g", a, b);
}

// With unit times and free messages, the simulator and the checker are two ways to one number.
static void unit_times_are_ticks(void **context)
{
    (void)context;
    for (int p = 1; p <= 5; p++) {
        for (int m = 1; m <= 9; m++) {
            for (int e = 0; e < CY_PIPELINE_CSV; e++) {
                const int v = e == CY_PIPELINE_INTERLEAVED ? 3
                    : e == CY_PIPELINE_ZERO_BUBBLE         ? 2
                                                           : 1;
                cy_schedule schedule = opened((cy_pipeline_engine)e, p, m, v);
                cy_schedule_cost cost;
                CY_CHECK_OK(cy_schedule_check(&cost, &schedule, NULL));
                cy_timeline timeline = simulate(&schedule, (cy_durations){1, 1, 1, 0, 0, NULL});
                is_near(timeline.end, (double)cost.ticks);
                is_near(timeline.span, (double)cost.span);
                is_near(timeline.bubble, cost.bubble);
                is_near(timeline.busy, 3.0 * p * m * v);
                cy_timeline_close(&timeline);
                cy_schedule_cost_close(&cost);
                cy_schedule_close(&schedule);
            }
        }
    }
}

// One microbatch through three ranks: forwards, backwards and four messages, one after another.
static void a_chain_adds_up(void **context)
{
    (void)context;
    cy_schedule schedule = opened(CY_PIPELINE_1F1B, 3, 1, 1);
    const double scale[] = {1.0, 2.0, 4.0};
    cy_timeline timeline = simulate(&schedule,
        (cy_durations){.forward = 3.0,
            .backward_input = 2.0,
            .backward_weight = 5.0,
            .latency = 0.25,
            .message = 0.5,
            .scale = scale});
    is_near(timeline.end, 7.0 * (3.0 + 2.0 + 5.0) + 4.0 * (0.25 + 0.5));
    for (size_t i = 0; i < timeline.count; i++) {
        if (cy_action_is_compute(timeline.items[i].action.kind)) {
            assert_true(timeline.items[i].critical);
        }
    }
    cy_timeline_close(&timeline);
    cy_schedule_close(&schedule);
}

// Nothing waits where nothing takes any time.
static void no_time_has_no_bubble(void **context)
{
    (void)context;
    cy_schedule schedule = opened(CY_PIPELINE_1F1B, 3, 4, 1);
    cy_timeline timeline = simulate(&schedule, (cy_durations){0});
    is_near(timeline.end, 0);
    is_near(timeline.bubble, 0);
    is_near(timeline.bubble_alone, 0);
    cy_timeline_close(&timeline);
    cy_schedule_close(&schedule);
}

// A link carries one message at a time: forwards of no length make a queue at it.
static void links_are_shared(void **context)
{
    (void)context;
    cy_schedule schedule = opened(CY_PIPELINE_AFAB, 2, 4, 1);
    cy_timeline timeline = simulate(&schedule,
        (cy_durations){
            .forward = 1e-6, .backward_input = 1e-6, .backward_weight = 0, .message = 1.0});
    // Four activations one after another, then the gradients, each 1e-6 behind the one before.
    assert_true(timeline.end > 7.9 && timeline.end < 8.1);
    cy_timeline_close(&timeline);
    cy_schedule_close(&schedule);
}

static void critical_path_is_unbroken(void **context)
{
    (void)context;
    cy_schedule schedule = opened(CY_PIPELINE_1F1B, 4, 6, 1);
    const double scale[] = {1.0, 1.0, 3.0, 1.0}; // the slow stage sets the end
    cy_timeline timeline = simulate(&schedule,
        (cy_durations){.forward = 1, .backward_input = 1, .backward_weight = 1, .scale = scale});
    double sum = 0.0, of_slow = 0.0;
    for (size_t i = 0; i < timeline.count; i++) {
        if (!timeline.items[i].critical) continue;
        sum += timeline.items[i].end - timeline.items[i].start;
        if (timeline.items[i].rank == 2) of_slow += timeline.items[i].end - timeline.items[i].start;
    }
    is_near(sum, timeline.end); // messages are free here
    assert_true(of_slow > 0.8 * timeline.end);
    cy_timeline_close(&timeline);
    cy_schedule_close(&schedule);
}

static void drawn_as_text(void **context)
{
    (void)context;
    cy_schedule schedule = opened(CY_PIPELINE_1F1B, 2, 2, 1);
    cy_timeline timeline = simulate(&schedule, (cy_durations){1, 1, 1, 0, 0, NULL});
    cy_text text = {0};
    CY_CHECK_OK(cy_timeline_draw_text(&text, &timeline, 1.0));
    assert_string_equal(text.bytes,
        "rank 0   F0 F1 .  .  B0 -  .  B1 -\n"
        "rank 1   .  F0 B0 -  F1 B1 -  .  .\n");
    cy_text_free(&text);
    cy_timeline_close(&timeline);
    cy_schedule_close(&schedule);
}

static int occurrences(const char *text, const char *words)
{
    int count = 0;
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
        count++;
    return count;
}

static void drawn_as_picture(void **context)
{
    (void)context;
    cy_schedule schedule = opened(CY_PIPELINE_ZERO_BUBBLE, 3, 4, 1);
    cy_timeline timeline = simulate(&schedule, (cy_durations){1, 1, 1, 0, 0, NULL});
    cy_text text = {0};
    CY_CHECK_OK(cy_timeline_draw_svg(
        &text, &timeline, &(cy_drawing){.title = "a <b> & c", .unit = "ticks", .scale = 1.0}));
    assert_int_equal(occurrences(text.bytes, "class=\"f\"><title>"), 12);
    assert_int_equal(occurrences(text.bytes, "class=\"i\"><title>"), 12);
    assert_int_equal(occurrences(text.bytes, "class=\"w\"><title>"), 12);
    assert_int_equal(occurrences(text.bytes, "class=\"b\"><title>"), 0);
    assert_int_equal(occurrences(text.bytes, "class=\"row\""), 3);
    assert_non_null(strstr(text.bytes, "a &lt;b> &amp; c"));
    assert_non_null(strstr(text.bytes, "</svg>"));
    assert_null(strstr(text.bytes, "nan"));
    cy_text_free(&text);
    cy_timeline_close(&timeline);
    cy_schedule_close(&schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unit_times_are_ticks),
        cmocka_unit_test(a_chain_adds_up),
        cmocka_unit_test(no_time_has_no_bubble),
        cmocka_unit_test(links_are_shared),
        cmocka_unit_test(critical_path_is_unbroken),
        cmocka_unit_test(drawn_as_text),
        cmocka_unit_test(drawn_as_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
