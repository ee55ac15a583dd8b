// What a profile makes of a trace whose spans are known.

#include "observe/profile.h"
#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define MS INT64_C(1000000)

// matmul 2 x 10 ms of 2 GFLOP and 1 MB each; norm 5 ms of 1 MFLOP and 50 MB; a transfer of 8 ms of
// which 3 ms are waited for; all in a stage of 30 ms.
static void fill(cy_trace *trace, int64_t origin)
{
    const cy_span spans[] = {
        {"matmul", 0, 10 * MS, {2e9, 1e6}, CY_SPAN_COMPUTE, 0},
        {"norm", 10 * MS, 15 * MS, {1e6, 50e6}, CY_SPAN_COMPUTE, 1},
        {"matmul", 15 * MS, 25 * MS, {2e9, 1e6}, CY_SPAN_COMPUTE, 2},
        {"all_reduce", 20 * MS, 28 * MS, {0, 4e6}, CY_SPAN_COMM, 3},
        {"all_reduce", 25 * MS, 28 * MS, {0, 0}, CY_SPAN_WAIT, 3},
        {"forward", 0, 30 * MS, {0, 0}, CY_SPAN_STAGE, 0},
    };
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
        cy_span *span = &trace->spans[trace->count++ & (trace->capacity - 1)];
        *span = spans[i];
        span->start_ns += origin;
        span->end_ns += origin;
    }
}

static void near(double value, double wanted)
{
    if (fabs(value - wanted) <= 1e-12 * fabs(wanted)) return;
    print_error("%.17g, wanted %.17g\n", value, wanted);
    fail();
}

static const cy_peaks peaks = {.flop_s = 400e9, .bytes_s = 20e9};

static void rows_add_up_and_are_sorted(void **state)
{
    (void)state;
    cy_trace trace;
    cy_profile profile;
    CY_CHECK_OK(cy_trace_open(&trace, 16));
    fill(&trace, 777);
    CY_CHECK_OK(cy_profile_open(&profile, &trace));
    assert_int_equal(profile.count, 5);
    assert_int_equal(profile.wall_ns, 30 * MS);
    assert_int_equal(profile.dropped, 0);
    const cy_profile_row *matmul = &profile.rows[0], *norm = &profile.rows[1];
    assert_string_equal(matmul->name, "matmul");
    assert_int_equal(matmul->calls, 2);
    assert_int_equal(matmul->time_ns, 20 * MS);
    assert_true(matmul->cost.flops == 4e9);
    assert_string_equal(norm->name, "norm");

    bool memory = true;
    near(cy_profile_share(matmul, peaks, &memory), 0.5); // 4 GFLOP take 10 ms at least
    assert_false(memory);
    near(cy_profile_share(norm, peaks, &memory), 0.5); // 50 MB take 2.5 ms at least
    assert_true(memory);
    assert_true(isnan(cy_profile_share(matmul, (cy_peaks){0}, NULL)));
    assert_true(isnan(cy_profile_share(&profile.rows[2], peaks, NULL))); // a transfer
    cy_profile_close(&profile);
    cy_trace_close(&trace);
}

static void a_table_shows_what_was_measured_only(void **state)
{
    (void)state;
    cy_trace trace;
    cy_profile profile;
    cy_text out = {0};
    CY_CHECK_OK(cy_trace_open(&trace, 16));
    fill(&trace, 0);
    CY_CHECK_OK(cy_profile_open(&profile, &trace));
    CY_CHECK_OK(cy_profile_add_table(&out, &profile, peaks));
    assert_non_null(strstr(out.bytes, "wall time 30.000 ms\n"));
    assert_non_null(strstr(out.bytes,
        "matmul                        2     20.000      66.7%      200.0        0.1      50.0% "
        "compute\n"));
    assert_non_null(strstr(out.bytes,
        "norm                          1      5.000      16.7%        0.2       10.0      50.0% "
        "memory\n"));
    assert_non_null(strstr(out.bytes,
        "all_reduce                    1      8.000      26.7%          -        0.5          "
        "-\n"));
    out.length = 0;
    CY_CHECK_OK(cy_profile_add_table(&out, &profile, (cy_peaks){0}));
    assert_null(strstr(out.bytes, "50.0%"));
    cy_text_free(&out);

    CY_CHECK_OK(cy_profile_add_json(&out, &profile, peaks));
    json_t *object = json_loads(out.bytes, 0, NULL);
    assert_non_null(object);
    const json_t *rows = json_object_get(object, "rows");
    assert_int_equal(json_array_size(rows), 5);
    const json_t *first = json_array_get(rows, 0);
    near(json_number_value(json_object_get(first, "share_of_peak")), 0.5);
    near(json_number_value(json_object_get(first, "s")), 0.02);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 4), "gflop_s")));
    json_decref(object);
    cy_text_free(&out);
    cy_profile_close(&profile);
    cy_trace_close(&trace);
}

static void a_full_ring_says_what_it_lost(void **state)
{
    (void)state;
    cy_trace trace;
    cy_profile profile;
    cy_text out = {0};
    CY_CHECK_OK(cy_trace_open(&trace, 4));
    fill(&trace, 0); // six spans: the first two are gone
    CY_CHECK_OK(cy_profile_open(&profile, &trace));
    assert_int_equal(profile.dropped, 2);
    assert_int_equal(profile.rows[0].calls, 1);
    CY_CHECK_OK(cy_profile_add_table(&out, &profile, peaks));
    assert_non_null(strstr(out.bytes, "2 earlier spans"));
    cy_text_free(&out);
    cy_profile_close(&profile);
    cy_trace_close(&trace);
}

static void an_empty_trace_is_an_empty_profile(void **state)
{
    (void)state;
    cy_trace trace;
    cy_profile profile;
    cy_text out = {0};
    CY_CHECK_OK(cy_trace_open(&trace, 4));
    CY_CHECK_OK(cy_profile_open(&profile, &trace));
    assert_int_equal(profile.count, 0);
    CY_CHECK_OK(cy_profile_add_table(&out, &profile, peaks));
    CY_CHECK_OK(cy_profile_add_json(&out, &profile, peaks));
    cy_text_free(&out);
    cy_profile_close(&profile);
    cy_trace_close(&trace);
}

static void a_timeline_is_in_chromes_format(void **state)
{
    (void)state;
    cy_trace ranks[2];
    CY_CHECK_OK(cy_trace_open(&ranks[0], 16));
    CY_CHECK_OK(cy_trace_open(&ranks[1], 16));
    fill(&ranks[0], 5000000000);
    fill(&ranks[1], 5000000000 + 2 * MS);
    const cy_trace *traces[] = {&ranks[0], &ranks[1]};
    cy_text out = {0};
    CY_CHECK_OK(cy_profile_add_timeline(&out, traces, 2));
    json_t *object = json_loads(out.bytes, 0, NULL);
    assert_non_null(object);
    const json_t *events = json_object_get(object, "traceEvents");
    assert_int_equal(json_array_size(events), 2 * (5 + 6));
    const json_t *norm = json_array_get(events, 11 + 5 + 1); // of rank 1
    assert_string_equal(json_string_value(json_object_get(norm, "name")), "norm");
    assert_string_equal(json_string_value(json_object_get(norm, "ph")), "X");
    assert_int_equal(json_integer_value(json_object_get(norm, "pid")), 1);
    near(json_number_value(json_object_get(norm, "ts")), 12000); // microseconds
    near(json_number_value(json_object_get(norm, "dur")), 5000);
    const json_t *arguments = json_object_get(norm, "args");
    assert_true(json_number_value(json_object_get(arguments, "bytes")) == 50e6);
    json_decref(object);
    cy_text_free(&out);
    cy_trace_close(&ranks[0]);
    cy_trace_close(&ranks[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_add_up_and_are_sorted),
        cmocka_unit_test(a_table_shows_what_was_measured_only),
        cmocka_unit_test(a_full_ring_says_what_it_lost),
        cmocka_unit_test(an_empty_trace_is_an_empty_profile),
        cmocka_unit_test(a_timeline_is_in_chromes_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
