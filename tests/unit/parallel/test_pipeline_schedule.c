// Every schedule that the engines make, proved and counted. The numbers are those of the papers:
// bubbles in ticks, live stashes, messages.

#include "support/support.h"

#include "base/file.h"
#include "base/random.h"
#include "parallel/pipeline/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STAGES       8
#define MICROBATCHES 16
#define CHUNKS       4

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static bool takes(cy_pipeline_engine engine, int chunks)
{
    if (engine == CY_PIPELINE_INTERLEAVED) return true;
    return chunks <= (engine == CY_PIPELINE_ZERO_BUBBLE ? 2 : 1);
}

static cy_schedule opened(cy_pipeline_engine engine, int stages, int microbatches, int chunks)
{
    const cy_schedule_options options = {
        .engine = engine, .stages = stages, .microbatches = microbatches, .chunks = chunks};
    cy_schedule schedule;
    CY_CHECK_OK(cy_schedule_open(&schedule, &options));
    return schedule;
}

// Idle ticks of the span, and the numbers that every schedule of a kind must have.
static void check_one(cy_pipeline_engine engine, int p, int m, int v)
{
    cy_schedule schedule = opened(engine, p, m, v);
    cy_schedule_cost cost;
    CY_CHECK_OK(cy_schedule_check(&cost, &schedule, NULL));
    const int64_t work = 3 * (int64_t)m * v;
    const int64_t idle = cost.span - work;
    assert_true(fabs(cost.bubble - (double)idle / (double)cost.span) < 1e-12);
    for (int r = 0; r < p; r++)
        assert_int_equal(cost.ranks[r].busy_ticks, work);
    const bool v_shape = engine == CY_PIPELINE_ZERO_BUBBLE && v == 2;
    const int boundaries = v_shape ? 2 * (p - 1) : p == 1 ? 0 : p * v - 1;
    assert_int_equal(cost.messages, (int64_t)2 * m * boundaries);

    switch (engine) {
    case CY_PIPELINE_AFAB:
        assert_int_equal(idle, 3 * (p - 1));
        for (int r = 0; r < p; r++)
            assert_int_equal(cost.ranks[r].peak_stash, m);
        break;
    case CY_PIPELINE_1F1B:
        assert_int_equal(idle, 3 * (p - 1));
        for (int r = 0; r < p; r++)
            assert_int_equal(cost.ranks[r].peak_stash, smaller(p - r, m));
        break;
    case CY_PIPELINE_INTERLEAVED:
        // Fewer microbatches than stages cannot fill the chunks of all ranks.
        if (m >= p) assert_int_equal(idle, 3 * (p - 1));
        assert_true(idle <= INT64_C(3) * (p - 1) * v);
        if (m % p == 0 && v > 1) {
            assert_int_equal(cost.peak_stash, smaller(m * v, p * v + p - 1));
        }
        break;
    case CY_PIPELINE_ZERO_BUBBLE:
        assert_true(cost.peak_kept <= smaller(p, m) * v);
        assert_true(cost.peak_stash <= smaller(p, m) * v);
        if (v == 1 && m >= p) assert_int_equal(idle, p - 1);
        if (v == 2 && m >= 2 * p - 1) assert_int_equal(idle, 0);
        if (v == 2 && m >= p) assert_true(10 * (cost.ticks - work) <= INT64_C(12) * (p - 1));
        break;
    case CY_PIPELINE_CSV:
    case CY_PIPELINE_ENGINES:
        fail();
    }
    cy_schedule_cost_close(&cost);
    cy_schedule_close(&schedule);
}

static void all_are_proved(void **context)
{
    (void)context;
    for (int engine = 0; engine < CY_PIPELINE_CSV; engine++) {
        for (int v = 1; v <= CHUNKS; v++) {
            if (!takes((cy_pipeline_engine)engine, v)) continue;
            for (int p = 1; p <= STAGES; p++) {
                for (int m = 1; m <= MICROBATCHES; m++)
                    check_one((cy_pipeline_engine)engine, p, m, v);
            }
        }
    }
}

static double idle_of(cy_pipeline_engine engine, int p, int m, int v, int *peak_kept)
{
    cy_schedule schedule = opened(engine, p, m, v);
    cy_schedule_cost cost;
    CY_CHECK_OK(cy_schedule_check(&cost, &schedule, NULL));
    // In units of a stage, so that chunks do not count as work.
    const double idle = (double)(cost.span - 3 * (int64_t)m * v) / v;
    *peak_kept = cost.peak_kept;
    cy_schedule_cost_close(&cost);
    cy_schedule_close(&schedule);
    return idle;
}

static void bubbles_against_1f1b(void **context)
{
    (void)context;
    for (int p = 2; p <= STAGES; p++) {
        const int m = 2 * p;
        int peak, first_stage;
        const double base = idle_of(CY_PIPELINE_1F1B, p, m, 1, &first_stage);
        assert_true(idle_of(CY_PIPELINE_ZERO_BUBBLE, p, m, 1, &peak) <= 0.4 * base);
        assert_true(peak <= first_stage);
        assert_true(idle_of(CY_PIPELINE_ZERO_BUBBLE, p, m, 2, &peak) <= 0.1 * base);
        assert_true(peak <= 2 * first_stage); // of chunks half as large
        for (int v = 2; v <= CHUNKS; v++) {
            const double idle = idle_of(CY_PIPELINE_INTERLEAVED, p, m, v, &peak);
            assert_true(fabs(idle - base / v) < 1e-9);
        }
    }
}

static void is_a_pure_function(void **context)
{
    (void)context;
    cy_schedule a = opened(CY_PIPELINE_ZERO_BUBBLE, 4, 9, 2),
                b = opened(CY_PIPELINE_ZERO_BUBBLE, 4, 9, 2);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(a.ranks[r].count, b.ranks[r].count);
        assert_memory_equal(
            a.ranks[r].actions, b.ranks[r].actions, a.ranks[r].count * sizeof(cy_action));
    }
    cy_schedule_close(&a);
    cy_schedule_close(&b);
}

static void segments_go_there_and_back(void **context)
{
    (void)context;
    cy_schedule schedule = opened(CY_PIPELINE_ZERO_BUBBLE, 3, 2, 2);
    const int ranks[] = {0, 1, 2, 2, 1, 0};
    for (int s = 0; s < 6; s++) {
        assert_int_equal(cy_schedule_segment_rank(&schedule, s), ranks[s]);
        assert_int_equal(cy_schedule_segment(&schedule, ranks[s], s / 3), s);
    }
    cy_schedule_close(&schedule);
}

static void refuse(cy_pipeline_engine engine, int p, int m, int v, const char *words)
{
    const cy_schedule_options options = {
        .engine = engine, .stages = p, .microbatches = m, .chunks = v};
    cy_schedule schedule;
    CY_CHECK_FAILS(cy_schedule_open(&schedule, &options), CY_ERR_REQUEST, words);
}

static void bad_options(void **context)
{
    (void)context;
    refuse(CY_PIPELINE_1F1B, 0, 4, 1, "0 stages");
    refuse(CY_PIPELINE_1F1B, 4, 0, 1, "0 microbatches");
    refuse(CY_PIPELINE_1F1B, 4, 4, 2, "1f1b takes 1 chunk a stage, not 2");
    refuse(CY_PIPELINE_AFAB, 4, 4, 3, "afab takes 1 chunk");
    refuse(CY_PIPELINE_INTERLEAVED, 4, 4, 0, "0 chunks");
    refuse(CY_PIPELINE_ZERO_BUBBLE, 4, 4, 3, "not 3");
    refuse(CY_PIPELINE_INTERLEAVED, 1000, 60000, 60, "more than");
    refuse(CY_PIPELINE_CSV, 2, 2, 1, "path");
    cy_pipeline_engine engine;
    assert_true(cy_pipeline_engine_from_name(&engine, "zero_bubble"));
    assert_int_equal(engine, CY_PIPELINE_ZERO_BUBBLE);
    assert_false(cy_pipeline_engine_from_name(&engine, "zerobubble"));
}

// Writes a file and opens it as a schedule; returns the status.
static cy_status read_csv(cy_schedule *schedule, const char *text, int p, int m, int v)
{
    static char folder[512];
    if (folder[0] == '\0') cy_test_folder(folder, sizeof(folder));
    char path[600];
    snprintf(path, sizeof(path), "%s/schedule.csv", folder);
    CY_CHECK_OK(cy_file_write(path, text, strlen(text)));
    const cy_schedule_options options = {
        .engine = CY_PIPELINE_CSV, .stages = p, .microbatches = m, .chunks = v, .csv = path};
    return cy_schedule_open(schedule, &options);
}

static void csv_is_read(void **context)
{
    (void)context;
    cy_schedule schedule, made = opened(CY_PIPELINE_1F1B, 2, 2, 1);
    CY_CHECK_OK(read_csv(&schedule, "# by hand\nF0,F1,,B0,,B1\r\n\n, F0,B0 ,F1,B1\n", 2, 2, 1));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(schedule.ranks[r].count, made.ranks[r].count);
        for (size_t i = 0; i < made.ranks[r].count; i++) {
            assert_memory_equal(
                &schedule.ranks[r].actions[i], &made.ranks[r].actions[i], sizeof(cy_action));
        }
    }
    cy_schedule_close(&schedule);
    cy_schedule_close(&made);
    CY_CHECK_OK(read_csv(&schedule, "placement,v\nF0.0,F0.1,I0.1,W0.1,B0.0\n", 1, 1, 2));
    assert_int_equal(schedule.placement, CY_PLACEMENT_V);
    cy_schedule_close(&schedule);
    CY_CHECK_OK(read_csv(&schedule, " \t\r\n\t # none\n F0,F1 ,B0,B1\t\n \n", 1, 2, 1));
    cy_schedule_close(&schedule);
    CY_CHECK_OK(read_csv(&schedule, " placement ,\t loop , \r\n\tF0,F0.1,B0.1,B0", 1, 1, 2));
    assert_int_equal(schedule.placement, CY_PLACEMENT_LOOP);
    cy_schedule_close(&schedule);
    // With transfers of its own.
    CY_CHECK_OK(read_csv(&schedule, "F0,SF0,RB0,B0\nRF0,F0,B0,SB0\n", 2, 1, 1));
    cy_schedule_close(&schedule);
}

static void refuse_csv(const char *text, int p, int m, int v, const char *words)
{
    cy_schedule schedule;
    CY_CHECK_FAILS(read_csv(&schedule, text, p, m, v), CY_ERR_REQUEST, words);
    assert_non_null(strstr(cy_error_text(), "schedule.csv"));
}

static void bad_csv(void **context)
{
    (void)context;
    refuse_csv("F0,B0\nF0,X0\n", 2, 1, 1, "schedule.csv:2: \"X0\" is no action");
    refuse_csv("F0,B\n", 1, 1, 1, ":1: \"B\" has no microbatch");
    refuse_csv("\n\nF0,B0.\n", 1, 1, 1, ":3: \"B0.\" has no chunk");
    refuse_csv("F0,B0x\n", 1, 1, 1, "goes on");
    refuse_csv("F0,B1\n", 1, 1, 1, "microbatch that there is not");
    refuse_csv("F0,B99999999999999999999\n", 1, 1, 1, "\"B9999");
    refuse_csv("F0,B0.1\n", 1, 1, 1, "chunk that there is not");
    refuse_csv("F0,B0\n", 2, 1, 1, "1 lines of actions for 2 stages");
    refuse_csv("F0,B0\nF0,B0\n", 1, 1, 1, ":2: a line for rank 1");
    refuse_csv("placement,w\nF0,B0\n", 1, 1, 1, ":1: \"w\" is no placement");
    refuse_csv("F0,B0\nplacement,v\n", 1, 1, 1, "before the first rank");
    refuse_csv("placement,vv\nF0,B0\n", 1, 1, 1, ":1: \"vv\" is no placement: loop or v");
    refuse_csv("placement,look\nF0,B0\n", 1, 1, 1, "\"look\" is no placement");
    refuse_csv("placement,loops\nF0,B0\n", 1, 1, 1, "\"loops\" is no placement");
    refuse_csv("placement\nF0,B0\n", 1, 1, 1, ":1: \"\" is no placement");
    refuse_csv("placement , ,\nF0,B0\n", 1, 1, 1, ":1: \"\" is no placement");
    // Of a long cell the first 24 characters are shown, of one that has 24 all.
    refuse_csv("XABCDEFGHIJKLMNOPQRSTUVW,B0\n", 1, 1, 1, "\"XABCDEFGHIJKLMNOPQRSTUVW\" is no");
    refuse_csv("XABCDEFGHIJKLMNOPQRSTUVWX,B0\n", 1, 1, 1, "\"XABCDEFGHIJKLMNOPQRSTUVW\" is no");
    refuse_csv("F0,B99999999\n", 1, 1, 1, "\"B99999999\" is of a microbatch that there is not");
    refuse_csv("F0,B100000000\n", 1, 1, 1, "\"B100000000\" has no microbatch, as in F3");
    static const char *const of_training[] = {
        "RC0", "OF0", "FE0", "GA", "GA.0", "RE", "OP", "OP0x"};
    for (size_t i = 0; i < sizeof(of_training) / sizeof(of_training[0]); i++) {
        char text[64], wanted[64];
        snprintf(text, sizeof(text), "F0,%s,B0\n", of_training[i]);
        snprintf(
            wanted, sizeof(wanted), ":1: \"%s\" is not an action of a schedule", of_training[i]);
        refuse_csv(text, 1, 1, 1, wanted);
    }
    refuse_csv("F0,B0\n\nF0,B0\n", 1, 1, 1, ":3: a line for rank 1, there are 1 stages");
    refuse_csv("F0,B0\nF0,B0\n", 3, 1, 1, "2 lines of actions for 3 stages");
    refuse_csv("B0,F0\n", 1, 1, 1, "rank 0: F0 comes after B0");
    refuse_csv("F0,B0,F1,B1\nF1,B1,F0,B0\n", 2, 2, 1,
        "cycle: rank 0 waits at B0 for rank 1, rank 1 waits at F1 for rank 0");
    refuse_csv("F0,SF0,F1,SF1,RB0,B0,RB1,B1\nRF0,F0,B0,SB0,RF1,F1,B1,SB1\n", 2, 2, 1,
        "deadlock where a send waits for its receive: rank 0 stands at SF1 with rank 1, rank 1 "
        "stands at SB0 with rank 0");
    cy_schedule schedule;
    const cy_schedule_options options = {.engine = CY_PIPELINE_CSV,
        .stages = 1,
        .microbatches = 1,
        .chunks = 1,
        .csv = "/nowhere/schedule.csv"};
    CY_CHECK_FAILS(cy_schedule_open(&schedule, &options), CY_ERR_IO, "/nowhere/schedule.csv");
}

// Files of random cells: an answer for each, never a crash.
static void random_csv(void **context)
{
    (void)context;
    static const char *const cells[] = {"F0", "F1", "B0", "B1", "I0", "W0", "I1", "W1", "SF0",
        "RF0", "SB0", "RB0", "F0.1", "OP", "RE", "GA.0", "", "#", "placement", "v", ".", "F", "0",
        "RC0", "OF0", "FE0"};
    const uint64_t key = cy_random_key(3, "cells");
    uint64_t index = 0;
    for (int round = 0; round < 300; round++) {
        cy_text text = {0};
        CY_CHECK_OK(cy_text_add(&text, "F0,F1,B0,B1\n"));
        for (int i = 0; i < 6; i++) {
            const uint64_t bits = cy_random_bits(key, index++);
            CY_CHECK_OK(cy_text_add(&text, "%s%c", cells[bits % (sizeof(cells) / sizeof(cells[0]))],
                bits >> 40 & 7 ? ',' : '\n'));
        }
        cy_schedule schedule;
        const cy_status status = read_csv(&schedule, text.bytes, 2, 2, 1);
        if (status == CY_OK) {
            cy_schedule_close(&schedule);
        } else {
            assert_int_equal(status, CY_ERR_REQUEST);
            assert_non_null(strstr(cy_error_text(), "schedule.csv"));
        }
        cy_text_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_proved),
        cmocka_unit_test(bubbles_against_1f1b),
        cmocka_unit_test(is_a_pure_function),
        cmocka_unit_test(segments_go_there_and_back),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(csv_is_read),
        cmocka_unit_test(bad_csv),
        cmocka_unit_test(random_csv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
