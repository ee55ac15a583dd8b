// A run's folder belongs to one run at a time, and a refused run touches nothing in it.

#define _GNU_SOURCE
#include "support/engines.h"
#include "support/support.h"

#include "base/file.h"
#include "train/measure.h"
#include "train/run_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void read_file(cy_text *text, const char *folder, const char *name)
{
    char path[CY_CONFIG_PATH_BYTES + 20];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    *text = (cy_text){0};
    CY_CHECK_OK(cy_file_read(text, path, 1 << 20));
}

static void expect_file(const char *folder, const char *name, const char *wanted)
{
    cy_text text;
    read_file(&text, folder, name);
    assert_string_equal(text.bytes, wanted);
    cy_text_free(&text);
}

// A run's folder and its sinks.
typedef struct outputs {
    cy_run_folder folder;
    cy_sinks sinks;
} outputs;

static cy_status open_folder(outputs *run, const cy_config *config, int64_t last_step)
{
    return cy_run_folder_open(&run->folder, &run->sinks, config, last_step);
}

// Nothing may be lost.
static void close_folder(outputs *run)
{
    cy_text lost = {0};
    cy_run_folder *folder = &run->folder;
    cy_sinks_close(&run->sinks);
    cy_run_folder_close(folder, 60, &lost);
    assert_int_equal(lost.length, 0);
    cy_text_free(&lost);
}

// Opens the folder of a new run, of which `config` holds the settings and the path.
static void open_new(outputs *run, cy_config *config)
{
    char parent[256];
    cy_test_folder(parent, sizeof(parent));
    cy_test_config(config, CY_F32);
    snprintf(config->logging.run_dir, sizeof(config->logging.run_dir), "%s/run", parent);
    CY_CHECK_OK(open_folder(run, config, 0));
}

static void write_validation(outputs *run, int64_t step)
{
    cy_metrics metrics;
    cy_measure_evaluation(&metrics, &(cy_run_position){.step = step}, 1.5, 10);
    cy_sinks_write(&run->sinks, &metrics);
}

static void two_runs_do_not_share_a_folder(void **state)
{
    (void)state;
    static cy_config config;
    char process[60];
    cy_text first_config;
    outputs first = {0}, second = {0};
    open_new(&first, &config);
    const char *folder = config.logging.run_dir;
    write_validation(&first, 5);
    assert_true(cy_async_flush(first.folder.writer, 60));
    read_file(&first_config, folder, "config.json");

    config.training.seed = 7;
    snprintf(process, sizeof(process), "process %ld on ", (long)getpid());
    const cy_status status = open_folder(&second, &config, 0);
    CY_CHECK_FAILS(status, CY_ERR_REQUEST, "another run writes its metrics in");
    CY_CHECK_FAILS(status, CY_ERR_REQUEST, folder);
    CY_CHECK_FAILS(status, CY_ERR_REQUEST, process);
    assert_non_null(strstr(cy_error_hint(), "logging.run_dir"));
    assert_false(second.folder.open);
    assert_int_equal(second.sinks.count, 0);
    expect_file(folder, "config.json", first_config.bytes);
    expect_file(folder, "metrics.jsonl",
        "{\"step\":5,\"val_loss\":1.5,\"val_tokens\":10}\n"); // step 5 is still there

    close_folder(&first);
    CY_CHECK_OK(open_folder(&second, &config, 0));
    expect_file(folder, "metrics.jsonl", "");
    close_folder(&second);
    cy_text_free(&first_config);
}

// Opens the folder as a run that has done `last_step` steps; what it set the old metrics aside as.
static int set_aside_by(const cy_config *config, int64_t last_step)
{
    outputs run = {0};
    CY_CHECK_OK(open_folder(&run, config, last_step));
    const int number = run.folder.rotated;
    close_folder(&run);
    return number;
}

// A run that begins keeps the metrics of an earlier one under the first free name.
static void metrics_of_an_earlier_run_are_kept(void **state)
{
    (void)state;
    static const char lines[] = "torn\n{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n";
    static cy_config config;
    char path[CY_CONFIG_PATH_BYTES + 20];
    cy_test_config(&config, CY_F32);
    cy_test_folder(config.logging.run_dir, 200);
    const char *folder = config.logging.run_dir;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    assert_int_equal(set_aside_by(&config, 0), 0); // there was none
    assert_int_equal(set_aside_by(&config, 0), 0); // an empty one is nothing to keep
    // What another program wrote is kept, by a run that goes on as well.
    for (int last_step = 0; last_step < 2; last_step++) {
        CY_CHECK_OK(cy_file_write(path, "[1]\nno step\n", 12));
        assert_int_equal(set_aside_by(&config, last_step), 1);
        expect_file(folder, "metrics.jsonl", "");
        expect_file(folder, "metrics.jsonl.1", "[1]\nno step\n");
        snprintf(path, sizeof(path), "%s/metrics.jsonl.1", folder);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    }

    CY_CHECK_OK(cy_file_write(path, lines, sizeof(lines) - 1));
    assert_int_equal(set_aside_by(&config, 0), 1);
    expect_file(folder, "metrics.jsonl", "");
    expect_file(folder, "metrics.jsonl.1", lines);
    CY_CHECK_OK(cy_file_write(path, lines + 5, sizeof(lines) - 6)); // the last line has no end
    assert_int_equal(set_aside_by(&config, 1), 0);                  // goes on
    expect_file(folder, "metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
    assert_int_equal(set_aside_by(&config, 0), 2);
    expect_file(folder, "metrics.jsonl.1", lines);
    expect_file(folder, "metrics.jsonl.2", "{\"step\":1,\"loss\":2}\n");
}

// Removes what a run has in its folder, and the folder.
static void remove_folder(const char *folder)
{
    static const char *const names[] = {"config.json", "metrics.jsonl", ".run.lock"};
    char path[CY_CONFIG_PATH_BYTES + 20];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

#define LINE(step) "{\"step\":" #step ",\"val_loss\":1.5,\"val_tokens\":10}\n"

static void a_deleted_folder_is_made_again(void **state)
{
    (void)state;
    static cy_config config;
    cy_text before;
    outputs first = {0}, second = {0};
    open_new(&first, &config);
    const char *folder = config.logging.run_dir;
    read_file(&before, folder, "config.json");
    write_validation(&first, 1);
    assert_true(cy_async_flush(first.folder.writer, 60));
    assert_false(cy_run_folder_was_remade(&first.folder));
    remove_folder(folder);
    write_validation(&first, 2);
    assert_true(cy_async_flush(first.folder.writer, 60));
    expect_file(folder, "config.json", before.bytes);
    expect_file(folder, "metrics.jsonl", LINE(2));
    assert_true(cy_run_folder_was_remade(&first.folder));
    assert_false(cy_run_folder_was_remade(&first.folder));
    CY_CHECK_FAILS(open_folder(&second, &config, 0), CY_ERR_REQUEST,
        "another run writes its metrics in"); // the lock is back
    close_folder(&first);
    cy_text_free(&before);
}

// The lines of the first wait until the folder is its own.
static void a_folder_that_another_run_has_taken_is_left_alone(void **state)
{
    (void)state;
    static cy_config config;
    outputs first = {0}, second = {0};
    open_new(&first, &config);
    const char *folder = config.logging.run_dir;
    remove_folder(folder);
    CY_CHECK_OK(open_folder(&second, &config, 0));
    write_validation(&first, 1);
    cy_text report = {0};
    while (!cy_async_take_report(first.folder.writer, &report))
        usleep(1000);
    assert_non_null(
        strstr(report.bytes, "metrics.jsonl cannot be written: another run writes its"));
    cy_text_free(&report);
    write_validation(&second, 7);
    close_folder(&second);
    expect_file(folder, "metrics.jsonl", LINE(7));
    while (!cy_async_flush(first.folder.writer, 60))
        usleep(1000);
    assert_true(cy_async_take_report(first.folder.writer, &report));
    assert_non_null(strstr(report.bytes, "metrics.jsonl can be written again; no line was lost"));
    cy_text_free(&report);
    close_folder(&first);
    expect_file(folder, "metrics.jsonl", LINE(7) LINE(1));
}

// Ranks other than zero close a folder that they never opened.
static void one_that_was_never_opened_closes_nothing(void **state)
{
    (void)state;
    outputs run = {0};
    const int before = fcntl(STDIN_FILENO, F_GETFD);
    close_folder(&run);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), before);
    assert_true(before >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_runs_do_not_share_a_folder),
        cmocka_unit_test(metrics_of_an_earlier_run_are_kept),
        cmocka_unit_test(a_deleted_folder_is_made_again),
        cmocka_unit_test(a_folder_that_another_run_has_taken_is_left_alone),
        cmocka_unit_test(one_that_was_never_opened_closes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
