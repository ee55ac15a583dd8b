// Lines reach files and pipes from a thread of their own; what fails is reported and tried again.
#define _GNU_SOURCE
#include "observe/async_writer.h"

#include "base/file.h"
#include "support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG_S 60 // a limit that only a fault reaches

static int add(cy_async_writer *writer, const char *path, int fd, size_t backlog)
{
    const cy_async_target target = {
        .name = path != NULL ? path : "a pipe", .path = path, .fd = fd, .backlog_bytes = backlog};
    int number = -1;
    CY_CHECK_OK(cy_async_writer_add(writer, &number, &target));
    return number;
}

static void put(cy_async_writer *writer, int number, const char *text)
{
    cy_async_write(writer, number, text, strlen(text));
}

static void expect_file(const char *path, const char *wanted)
{
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, path, 1 << 20));
    assert_string_equal(text.bytes, wanted);
    cy_text_free(&text);
}

static void end(cy_async_writer *writer)
{
    cy_async_writer_finish(writer, LONG_S);
    cy_async_writer_close(writer);
}

static void records_arrive_whole_and_in_order(void **state)
{
    (void)state;
    char folder[256], path[300], line[64];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/lines", folder);
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    const int number = add(writer, path, -1, 1000); // the ring is wound round many times
    cy_text wanted = {0};
    for (int i = 0; i < 2000; i++) {
        snprintf(
            line, sizeof(line), "%d %.*s\n", i, i % 40, "a line of some letters of some length");
        CY_CHECK_OK(cy_text_add(&wanted, "%s", line));
        put(writer, number, line);
        if (i % 8 == 0) assert_true(cy_async_flush(writer, LONG_S));
    }
    assert_true(cy_async_flush(writer, LONG_S));
    assert_int_equal(cy_async_dropped(writer, number), 0);
    expect_file(path, wanted.bytes);
    cy_text report = {0};
    assert_false(cy_async_take_report(writer, &report));
    cy_text_free(&wanted);
    end(writer);
}

static void a_deleted_folder_is_made_again(void **state)
{
    (void)state;
    char folder[256], run[300], path[400];
    cy_test_folder(folder, sizeof(folder));
    snprintf(run, sizeof(run), "%s/a", folder);
    snprintf(path, sizeof(path), "%s/a/b/lines", folder);
    char deeper[400];
    snprintf(deeper, sizeof(deeper), "%s/a/b", folder);
    CY_CHECK_OK(cy_folder_make(deeper));
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    char header[] = "head\n";
    const cy_async_target target = {
        .name = "lines", .path = path, .header = header, .header_bytes = 5, .backlog_bytes = 1000};
    int number = -1;
    CY_CHECK_OK(cy_async_writer_add(writer, &number, &target));
    memset(header, 'x', sizeof(header)); // the writer has copied it
    put(writer, number, "one\n");
    assert_true(cy_async_flush(writer, LONG_S));
    expect_file(path, "head\none\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(deeper), 0);
    assert_int_equal(rmdir(run), 0);
    put(writer, number, "two\n");
    assert_true(cy_async_flush(writer, LONG_S));
    expect_file(path, "head\ntwo\n");
    end(writer);
}

static void a_failure_and_its_end_are_reported_once(void **state)
{
    (void)state;
    char folder[256], run[300], path[400], aside[400];
    cy_test_folder(folder, sizeof(folder));
    snprintf(run, sizeof(run), "%s/run", folder);
    snprintf(path, sizeof(path), "%s/run/lines", folder);
    snprintf(aside, sizeof(aside), "%s/aside", folder);
    CY_CHECK_OK(cy_folder_make(run));
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    const int number = add(writer, path, -1, 200);
    assert_int_equal(rename(run, aside), 0);
    CY_CHECK_OK(cy_file_write(run, "a file is in the way", 20));
    put(writer, number, "one\n");
    cy_text report = {0};
    while (!cy_async_take_report(writer, &report))
        usleep(1000);
    assert_non_null(strstr(report.bytes, "cannot be written: "));
    assert_non_null(strstr(report.bytes, path));
    report.length = 0;
    assert_false(cy_async_flush(writer, LONG_S)); // and does not wait for what cannot be written
    for (int i = 0; i < 20; i++)
        put(writer, number, "some line that waits\n");
    const int64_t dropped = cy_async_dropped(writer, number);
    assert_true(dropped > 10 && dropped < 20); // of 200 bytes' room
    assert_false(cy_async_take_report(writer, &report));

    assert_int_equal(unlink(run), 0);
    while (!cy_async_take_report(writer, &report))
        usleep(1000);
    char wanted[500];
    snprintf(
        wanted, sizeof(wanted), "%s can be written again; %d lines were lost", path, (int)dropped);
    assert_string_equal(report.bytes, wanted);
    report.length = 0;
    assert_true(cy_async_flush(writer, LONG_S));
    assert_false(cy_async_take_report(writer, &report));
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, path, 1 << 20));
    assert_int_equal(strncmp(text.bytes, "one\nsome line that waits\n", 25), 0);
    assert_int_equal(text.length, 4 + 21 * (size_t)(20 - dropped));
    cy_text_free(&text);
    cy_text_free(&report);
    end(writer);
}

static void what_is_never_written_is_lost_and_counted(void **state)
{
    (void)state;
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    const int number = add(writer, NULL, full, 1000);
    put(writer, number, "one\n");
    put(writer, number, "two\n");
    cy_async_writer_finish(writer, LONG_S);
    assert_int_equal(cy_async_dropped(writer, number), 2);
    assert_true(cy_async_has_failed(writer, number));
    assert_false(cy_async_is_broken(writer, number));
    cy_text report = {0};
    assert_true(cy_async_take_report(writer, &report));
    assert_string_equal(report.bytes, "a pipe: No space left on device: 2 lines were lost");
    report.length = 0;
    assert_false(cy_async_take_report(writer, &report));
    cy_text_free(&report);
    cy_async_writer_close(writer);
    close(full);
}

static void a_pipe_that_nobody_reads_holds_up_nobody(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    const int number = add(writer, NULL, ends[1], 4096);
    char line[1024];
    memset(line, 'x', sizeof(line));
    int64_t handed = 0;
    do { // until the pipe is full
        cy_async_write(writer, number, line, sizeof(line));
        handed++;
    } while (cy_async_flush(writer, 0.1));
    for (int i = 0; i < 10; i++, handed++) // more than the backlog holds
        cy_async_write(writer, number, line, sizeof(line));
    const int64_t dropped = cy_async_dropped(writer, number);
    assert_true(dropped >= 7);
    int64_t got = 0;
    for (char bytes[1024]; got < (handed - dropped) * 1024;) {
        const ssize_t count = read(ends[0], bytes, sizeof(bytes));
        assert_true(count > 0);
        got += count;
    }
    assert_true(cy_async_flush(writer, LONG_S));
    cy_text report = {0};
    assert_true(cy_async_take_report(writer, &report));
    assert_non_null(strstr(report.bytes, "was not written fast enough: "));
    cy_text_free(&report);
    end(writer);
    close(ends[0]);
    close(ends[1]);
}

// The mode is that of the open file, which other processes share.
static void a_full_pipe_that_does_not_block_loses_nothing(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    const int number = add(writer, NULL, ends[1], 1 << 18);
    char line[1024];
    memset(line, 'x', sizeof(line));
    const int lines = 128; // twice what a pipe holds
    for (int i = 0; i < lines; i++)
        cy_async_write(writer, number, line, sizeof(line));
    assert_false(cy_async_flush(writer, 0.1));
    for (int64_t got = 0; got < lines * (int64_t)sizeof(line);) {
        char bytes[1024];
        const ssize_t count = read(ends[0], bytes, sizeof(bytes));
        assert_true(count > 0);
        got += count;
    }
    assert_true(cy_async_flush(writer, LONG_S));
    assert_int_equal(cy_async_dropped(writer, number), 0);
    assert_false(cy_async_has_failed(writer, number));
    end(writer);
    close(ends[0]);
    close(ends[1]);
}

static void a_closed_pipe_is_broken(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    signal(SIGPIPE, SIG_IGN);
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    const int number = add(writer, NULL, ends[1], 4096);
    assert_false(cy_async_is_broken(writer, number));
    close(ends[0]);
    put(writer, number, "one\n");
    assert_true(cy_async_flush(writer, LONG_S));
    assert_true(cy_async_is_broken(writer, number));
    put(writer, number, "two\n");
    assert_int_equal(cy_async_dropped(writer, number), 2);
    end(writer);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_arrive_whole_and_in_order),
        cmocka_unit_test(a_deleted_folder_is_made_again),
        cmocka_unit_test(a_failure_and_its_end_are_reported_once),
        cmocka_unit_test(what_is_never_written_is_lost_and_counted),
        cmocka_unit_test(a_pipe_that_nobody_reads_holds_up_nobody),
        cmocka_unit_test(a_full_pipe_that_does_not_block_loses_nothing),
        cmocka_unit_test(a_closed_pipe_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
