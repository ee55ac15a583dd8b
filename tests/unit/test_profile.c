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

// The whole table: kinds in their order, in each the longest first, then by name; - where there is
// nothing to tell.
static void the_table_as_a_whole(void **state)
{
    (void)state;
    static const cy_span spans[] = {
        {"wait", 0, 2 * MS, {0, 0}, CY_SPAN_WAIT, 0},
        {"second", 0, 3 * MS, {0, 0}, CY_SPAN_COMPUTE, 0},
        {"first", 3 * MS, 6 * MS, {6e8, 1e6}, CY_SPAN_COMPUTE, 0},
        {"longest", 6 * MS, 10 * MS, {0, 8e6}, CY_SPAN_COMPUTE, 0},
        {"none", 10 * MS, 10 * MS, {1e9, 1e9}, CY_SPAN_COMPUTE, 0},
        {"send", 0, 4 * MS, {0, 4e6}, CY_SPAN_COMM, 0},
    };
    cy_trace trace;
    cy_profile profile;
    cy_text out = {0};
    CY_CHECK_OK(cy_trace_open(&trace, 8));
    for (size_t i = 0; i < sizeof(spans) / sizeof(*spans); i++)
        trace.spans[trace.count++] = spans[i];
    CY_CHECK_OK(cy_profile_open(&profile, &trace));
    assert_string_equal(profile.rows[3].name, "none");
    assert_true(isnan(cy_profile_share(&profile.rows[3], peaks, NULL))); // in no time
    assert_true(isnan(cy_profile_share(&profile.rows[2], peaks, NULL))); // of nothing
    CY_CHECK_OK(cy_profile_add_table(&out, &profile, peaks));
    assert_string_equal(out.bytes,
        "wall time 10.000 ms\n"
        "\n"
        "operators                 calls         ms    of wall    GFLOP/s       GB/s    of peak\n"
        "longest                       1      4.000      40.0%          -        2.0      10.0% "
        "memory\n"
        "first                         1      3.000      30.0%      200.0        0.3      50.0% "
        "compute\n"
        "second                        1      3.000      30.0%          -          -          -\n"
        "none                          1      0.000       0.0%          -          -          -\n"
        "\n"
        "transfers                 calls         ms    of wall    GFLOP/s       GB/s    of peak\n"
        "send                          1      4.000      40.0%          -        1.0          -\n"
        "\n"
        "waits                     calls         ms    of wall    GFLOP/s       GB/s    of peak\n"
        "wait                          1      2.000      20.0%          -          -          -\n");
    cy_text_free(&out);
    CY_CHECK_OK(cy_profile_add_json(&out, &profile, peaks));
    assert_string_equal(out.bytes,
        "{\"dropped\":0,\"wall_s\":0.01,\"rows\":[{\"kind\":\"operators\",\"name\":\"longest\","
        "\"calls\":1,\"s\":0.0040000000000000001,\"share\":0.40000000000000002,\"gflop_s\":null,"
        "\"gb_s\":2,\"share_of_peak\":0.10000000000000001},"
        "{\"kind\":\"operators\",\"name\":\"first\",\"calls\":1,\"s\":0.0030000000000000001,"
        "\"share\":0.29999999999999999,\"gflop_s\":200,\"gb_s\":0.33333333333333331,\"share_of_"
        "peak\":0.5},"
        "{\"kind\":\"operators\",\"name\":\"second\",\"calls\":1,\"s\":0.0030000000000000001,"
        "\"share\":0.29999999999999999,\"gflop_s\":null,\"gb_s\":null,\"share_of_peak\":null},"
        "{\"kind\":\"operators\",\"name\":\"none\",\"calls\":1,\"s\":0,\"share\":0,\"gflop_s\":"
        "null,\"gb_s\":null,\"share_of_peak\":null},"
        "{\"kind\":\"transfers\",\"name\":\"send\",\"calls\":1,\"s\":0.0040000000000000001,"
        "\"share\":0.40000000000000002,\"gflop_s\":null,\"gb_s\":1,\"share_of_peak\":null},"
        "{\"kind\":\"waits\",\"name\":\"wait\",\"calls\":1,\"s\":0.002,\"share\":0."
        "20000000000000001,\"gflop_s\":null,\"gb_s\":null,\"share_of_peak\":null}]}");
    cy_text_free(&out);
    cy_profile_close(&profile);

    // A span of no length has no wall time to be a part of.
    trace.count = 0;
    trace.spans[trace.count++] = spans[4];
    CY_CHECK_OK(cy_profile_open(&profile, &trace));
    assert_int_equal(profile.wall_ns, 0);
    CY_CHECK_OK(cy_profile_add_table(&out, &profile, peaks));
    assert_string_equal(out.bytes,
        "wall time 0.000 ms\n"
        "\n"
        "operators                 calls         ms    of wall    GFLOP/s       GB/s    of peak\n"
        "none                          1      0.000          -          -          -          -\n");
    cy_text_free(&out);
    cy_profile_close(&profile);
    cy_trace_close(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_add_up_and_are_sorted),
        cmocka_unit_test(a_table_shows_what_was_measured_only),
        cmocka_unit_test(a_full_ring_says_what_it_lost),
        cmocka_unit_test(an_empty_trace_is_an_empty_profile),
        cmocka_unit_test(a_timeline_is_in_chromes_format),
        cmocka_unit_test(the_table_as_a_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
