// Progress lines on a terminal and elsewhere, with a clock of our own.

#include "observe/progress.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

typedef struct cy_seen {
    char text[16384];
    size_t length;
    int writes;
} cy_seen;

static void keep(void *context, const char *text, size_t length)
{
    cy_seen *seen = context;
    assert_true(seen->length + length < sizeof(seen->text));
    memcpy(seen->text + seen->length, text, length);
    seen->length += length;
    seen->text[seen->length] = '\0';
    seen->writes++;
}

static cy_progress start(cy_seen *seen, bool terminal, int64_t total)
{
    cy_progress progress;
    *seen = (cy_seen){.length = 0};
    const cy_progress_writer writer = {keep, seen, terminal};
    cy_progress_open(&progress, &writer, "tokenizer", "bytes", total, 1000);
    return progress;
}

static void a_terminal_line_has_bar_rate_and_time_left(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, true, 4000000);
    cy_progress_update(&progress, 0, 1000);
    assert_string_equal(
        seen.text, "\rtokenizer   0% [------------------------] 0/4.00M bytes\x1b[K");
    seen.length = 0;
    cy_progress_update(&progress, 1000000, 1002); // 0.5 M a second, 3 M are left
    assert_string_equal(seen.text,
        "\rtokenizer  25% [######------------------] 1.00M/4.00M bytes "
        "| 500K/s | 0:06 left\x1b[K");
    seen.length = 0;
    cy_progress_close(&progress, 4000000, 1008);
    assert_string_equal(seen.text,
        "\rtokenizer 100% [########################] 4.00M/4.00M bytes "
        "| 500K/s | took 0:08\x1b[K\n");
}

static void a_terminal_is_drawn_ten_times_a_second(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, true, 10000);
    for (int i = 0; i < 10000; i++)
        cy_progress_update(&progress, i, 1000 + i * 1e-3);
    assert_in_range(seen.writes, 90, 101);
}

static void plain_lines_come_every_ten_seconds_and_at_the_end(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, false, 1000);
    for (int i = 0; i <= 250; i++)
        cy_progress_update(&progress, i, 1000 + i * 0.1);
    assert_int_equal(seen.writes, 2);
    cy_progress_close(&progress, 1000, 1100);
    assert_string_equal(seen.text,
        "tokenizer  10% 100/1.00K bytes | 10.0/s | 1:30 left\n"
        "tokenizer  20% 200/1.00K bytes | 10.0/s | 1:20 left\n"
        "tokenizer 100% 1.00K/1.00K bytes | 10.0/s | took 1:40\n");
}

static void what_an_earlier_run_did_is_in_no_rate(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, false, 1000);
    cy_progress_skip(&progress, 500);
    cy_progress_update(&progress, 600, 1010);
    cy_progress_close(&progress, 1000, 1050);
    assert_string_equal(seen.text,
        "tokenizer  60% 600/1.00K bytes | 10.0/s | 0:40 left\n"
        "tokenizer 100% 1.00K/1.00K bytes | 10.0/s | took 0:50\n");
}

static void an_unknown_total_promises_nothing(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, false, 0);
    cy_progress_update(&progress, 5000, 1010);
    assert_string_equal(seen.text, "tokenizer 5.00K bytes | 500/s\n");
}

static void the_rate_follows_a_change(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, false, 1000000);
    int64_t done = 0;
    for (int second = 1; second <= 100; second++) {
        done += second <= 50 ? 1000 : 10;
        cy_progress_update(&progress, done, 1000 + second);
    }
    assert_true(progress.rate > 10 && progress.rate < 30); // the mean of all is 505
}

static void clearing_takes_the_drawn_line_away(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, true, 10);
    cy_progress_clear(&progress);
    assert_int_equal(seen.writes, 0);
    cy_progress_update(&progress, 1, 1000);
    seen.length = 0;
    cy_progress_clear(&progress);
    assert_string_equal(seen.text, "\r\x1b[K");
    cy_progress_update(&progress, 1, 1000); // at once
    assert_int_equal(seen.writes, 3);
    cy_progress_close(&progress, 10, 1001);
    const int writes = seen.writes;
    cy_progress_clear(&progress); // the last line stays
    assert_int_equal(seen.writes, writes);
}

static void no_name_is_too_long(void **state)
{
    (void)state;
    cy_seen seen = {.length = 0};
    char what[1000];
    memset(what, 'w', sizeof(what) - 1);
    what[sizeof(what) - 1] = '\0';
    const cy_progress_writer writer = {keep, &seen, false};
    cy_progress progress;
    cy_progress_open(&progress, &writer, what, what, 7, 0);
    cy_progress_close(&progress, 7, 1e12); // nor any time
    assert_true(seen.length > 0 && seen.length < 256);
}

// The end of a line that is closed after so many seconds.
static void takes(double seconds, const char *wanted)
{
    cy_seen seen;
    cy_progress progress = start(&seen, false, 0);
    cy_progress_close(&progress, 0, 1000 + seconds);
    char line[100];
    snprintf(line, sizeof(line), "tokenizer 0 bytes | took %s\n", wanted);
    assert_string_equal(seen.text, line);
}

static void times_are_rounded_up(void **state)
{
    (void)state;
    takes(0, "0:00");
    takes(-5, "0:00"); // a clock that was set back
    takes(0.25, "0:01");
    takes(59, "0:59");
    takes(60, "1:00");
    takes(61, "1:01");
    takes(3599, "59:59");
    takes(3599.5, "1:00:00");
    takes(3661, "1:01:01");
    takes(360000, "100:00:00");
    takes(1e12, "277777:46:40"); // 1e9 seconds and no more are told
}

static void counts_have_three_digits(void **state)
{
    (void)state;
    static const struct {
        int64_t done;
        const char *wanted;
    } cases[] = {{999, "999"}, {1000, "1.00K"}, {9994, "9.99K"}, {9995, "10.0K"}, {99949, "99.9K"},
        {99950, "100K"}, {999499, "999K"}, {999500, "1.00M"}, {1000000000, "1.00B"},
        {INT64_C(2000000000000), "2.00T"}, {INT64_C(3000000000000000), "3000T"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cy_seen seen;
        char line[100];
        cy_progress progress = start(&seen, false, 0);
        cy_progress_close(&progress, cases[i].done, 1000); // no time has passed: no rate
        snprintf(line, sizeof(line), "tokenizer %s bytes | took 0:00\n", cases[i].wanted);
        assert_string_equal(seen.text, line);
    }
}

static void more_than_all_is_all(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, true, 100);
    cy_progress_update(&progress, 150, 1001);
    assert_string_equal(seen.text,
        "\rtokenizer 100% [########################] 150/100 bytes | 150/s | 0:00 left\x1b[K");
    progress = start(&seen, true, 100);
    cy_progress_update(&progress, 0, 1001); // nothing yet: no rate, and no time is promised
    assert_string_equal(seen.text, "\rtokenizer   0% [------------------------] 0/100 bytes\x1b[K");
}

// A line is due when its interval has passed, and a rate when half a second has.
static void intervals_have_ends(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, false, 0);
    cy_progress_update(&progress, 1, 1009.75);
    assert_int_equal(seen.writes, 0);
    cy_progress_update(&progress, 1, 1010);
    assert_int_equal(seen.writes, 1);
    progress = start(&seen, true, 0);
    cy_progress_update(&progress, 10, 1000.25);
    assert_string_equal(seen.text, "\rtokenizer 10 bytes\x1b[K");
    cy_progress_update(&progress, 10, 1000.3125); // less than a tenth of a second later
    assert_int_equal(seen.writes, 1);
    seen.length = 0;
    cy_progress_update(&progress, 10, 1000.5);
    assert_string_equal(seen.text, "\rtokenizer 10 bytes | 20.0/s\x1b[K");
}

static void little_is_told_too(void **state)
{
    (void)state;
    cy_seen seen;
    cy_progress progress = start(&seen, false, 1000);
    cy_progress_update(&progress, 5, 1010);
    assert_string_equal(seen.text, "tokenizer   0% 5/1.00K bytes | 0.50/s | 33:10 left\n");
    progress = start(&seen, false, 1);
    cy_progress_close(&progress, 1, 1000.5);
    assert_string_equal(seen.text, "tokenizer 100% 1/1 bytes | 2.00/s | took 0:01\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_line_has_bar_rate_and_time_left),
        cmocka_unit_test(a_terminal_is_drawn_ten_times_a_second),
        cmocka_unit_test(plain_lines_come_every_ten_seconds_and_at_the_end),
        cmocka_unit_test(what_an_earlier_run_did_is_in_no_rate),
        cmocka_unit_test(an_unknown_total_promises_nothing),
        cmocka_unit_test(the_rate_follows_a_change),
        cmocka_unit_test(clearing_takes_the_drawn_line_away),
        cmocka_unit_test(no_name_is_too_long),
        cmocka_unit_test(times_are_rounded_up),
        cmocka_unit_test(counts_have_three_digits),
        cmocka_unit_test(more_than_all_is_all),
        cmocka_unit_test(intervals_have_ends),
        cmocka_unit_test(little_is_told_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
