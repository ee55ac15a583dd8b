// The console line, metrics.jsonl, and what a resumed run makes of it.

#include "base/file.h"
#include "observe/metrics.h"
#include "observe/progress.h"
#include "support/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static cy_step_metrics example(int64_t step)
{
    return (cy_step_metrics){
        .step = step,
        .tokens = 8192 * step,
        .max_tokens = 1000000,
        .batch_tokens = 8192,
        .loss = 5.12344,
        .grad_norm = 1.25,
        .learning_rate = 3e-4,
        .step_s = 1.95,
        .tok_s = 4205.7,
        .tok_s_rank = 2102.85,
        .mfu = 0.612,
        .mfu_causal = 0.55,
        .memory_bytes = 1.2 * 1073741824.0,
        .data_s = 0.015625,
        .data_ready = 0.75,
        .comm = {{"dp", 4096, 2, 0.5, 0.125, 0}, {"tp", 77, 9, 0.25, 0, 0}},
        .comm_count = 2,
    };
}

static void console_line_is_to_the_letter(void **state)
{
    (void)state;
    cy_text line = {0};
    cy_step_metrics metrics = example(12);
    CY_CHECK_OK(cy_metrics_add_console(&line, &metrics));
    assert_string_equal(line.bytes,
        "[rank 0] Step: 12 | Loss: 5.1234 | Global batch size: 8.19K | Tokens/s: 4.21K | "
        "Tokens/s/GPU: 2.10K | Tokens: 98.3K/1.00M | MFU: 61.20% | Memory usage: 1.20GB | "
        "Grad norm: 1.2500 | LR: 3.00e-04");
    line.length = 0;
    metrics.max_tokens = 0;
    metrics.mfu = (double)NAN;
    metrics.loss = copysign((double)NAN, -1); // as processors make them of 0 / 0
    metrics.skipped = true;
    CY_CHECK_OK(cy_metrics_add_console(&line, &metrics));
    assert_string_equal(line.bytes,
        "[rank 0] Step: 12 | Loss: nan | Global batch size: 8.19K | Tokens/s: 4.21K | "
        "Tokens/s/GPU: 2.10K | Tokens: 98.3K | MFU: - | Memory usage: 1.20GB | "
        "Grad norm: 1.2500 | LR: 3.00e-04 | Skipped");
    line.length = 0;
    metrics.skipped = false;
    metrics.repeats = 2;
    CY_CHECK_OK(cy_metrics_add_console(&line, &metrics));
    assert_non_null(strstr(line.bytes, " | LR: 3.00e-04 | Repeated: 2"));
    cy_text_free(&line);
}

static void short_numbers_have_three_digits(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *wanted;
    } cases[] = {{0, "0.00"}, {1, "1.00"}, {9.994, "9.99"}, {9.996, "10.0"}, {99.96, "100"},
        {512, "512"}, {999.4, "999"}, {999.6, "1.00K"}, {1000, "1.00K"}, {98304, "98.3K"},
        {999949, "1.00M"}, {4404412, "4.40M"}, {1.5e9, "1.50B"}, {2.5e12, "2.50T"},
        {1.5e16, "15000T"}, {-2048, "-2.05K"}, {(double)INFINITY, "inf"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_text text = {0};
        CY_CHECK_OK(cy_number_short(&text, cases[i].value));
        assert_string_equal(text.bytes, cases[i].wanted);
        cy_text_free(&text);
    }
}

static double number_at(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void step_object_holds_every_field(void **state)
{
    (void)state;
    cy_text line = {0};
    cy_step_metrics metrics = example(3);
    metrics.loss = 0.1 + 0.2; // needs all 17 digits
    metrics.has_params_hash = true;
    metrics.params_hash = 0xabcdef;
    CY_CHECK_OK(cy_metrics_add_step(&line, &metrics));
    json_t *object = json_loads(line.bytes, 0, NULL);
    assert_non_null(object);
    assert_int_equal(json_object_size(object), 16);
    assert_true(number_at(object, "step") == 3);
    assert_true(number_at(object, "tokens") == 24576);
    assert_true(number_at(object, "loss") == 0.1 + 0.2);
    assert_non_null(strstr(line.bytes, "0.30000000000000004"));
    assert_true(number_at(object, "grad_norm") == 1.25);
    assert_true(number_at(object, "lr") == 3e-4);
    assert_true(number_at(object, "step_s") == 1.95);
    assert_true(number_at(object, "tok_s") == 4205.7);
    assert_true(number_at(object, "tok_s_rank") == 2102.85);
    assert_true(number_at(object, "mfu") == 0.612);
    assert_true(number_at(object, "mfu_causal") == 0.55);
    assert_true(number_at(object, "mem_gb") == 1.2);
    assert_true(number_at(object, "data_s") == 0.015625);
    assert_true(number_at(object, "data_ready") == 0.75);
    assert_true(json_is_false(json_object_get(object, "skipped")));
    assert_string_equal(
        json_string_value(json_object_get(object, "params_hash")), "0000000000abcdef");
    const json_t *comm = json_object_get(object, "comm");
    assert_int_equal(json_object_size(comm), 2);
    const json_t *dp = json_object_get(comm, "dp");
    assert_true(number_at(dp, "bytes") == 4096);
    assert_true(number_at(dp, "messages") == 2);
    assert_true(number_at(dp, "s") == 0.5);
    assert_true(number_at(dp, "exposed_s") == 0.125);
    assert_true(number_at(json_object_get(comm, "tp"), "bytes") == 77);
    json_decref(object);
    cy_text_free(&line);
}

static void what_is_not_finite_is_null(void **state)
{
    (void)state;
    cy_text line = {0};
    cy_step_metrics metrics = example(1);
    metrics.loss = (double)NAN;
    metrics.grad_norm = -(double)INFINITY;
    metrics.mfu = (double)NAN;
    metrics.comm[0].seconds = (double)INFINITY;
    CY_CHECK_OK(cy_metrics_add_step(&line, &metrics));
    json_t *object = json_loads(line.bytes, 0, NULL);
    assert_non_null(object);
    assert_true(json_is_null(json_object_get(object, "loss")));
    assert_true(json_is_null(json_object_get(object, "grad_norm")));
    assert_true(json_is_null(json_object_get(object, "mfu")));
    assert_null(json_object_get(object, "params_hash"));
    json_decref(object);
    cy_text_free(&line);
}

// A writer for one file, and its end once all lines are in the file.
static cy_async_writer *open_writer(void)
{
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    return writer;
}

static void close_file(cy_metrics_file *file)
{
    cy_async_writer *writer = file->writer;
    cy_async_writer_finish(writer, 60);
    cy_metrics_file_close(file);
    cy_async_writer_close(writer);
}

static void write_steps(const char *path, int64_t from, int64_t to, int64_t *unreadable)
{
    cy_metrics_file file;
    CY_CHECK_OK(cy_metrics_file_open(&file, open_writer(), path, from - 1, unreadable));
    for (int64_t step = from; step <= to; step++) {
        const cy_step_metrics metrics = example(step);
        CY_CHECK_OK(cy_metrics_file_step(&file, &metrics));
        if (step % 4 == 0) CY_CHECK_OK(cy_metrics_file_validation(&file, step, 4.5, 1000));
    }
    close_file(&file);
}

static void read_all(cy_text *text, const char *path)
{
    *text = (cy_text){0};
    CY_CHECK_OK(cy_file_read(text, path, 1 << 20));
}

static void append(const char *path, const char *bytes)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(bytes, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_resumed_run_goes_on_from_its_own_step(void **state)
{
    (void)state;
    char folder[256], straight[300], resumed[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(straight, sizeof(straight), "%s/straight.jsonl", folder);
    snprintf(resumed, sizeof(resumed), "%s/resumed.jsonl", folder);
    int64_t unreadable = -1;
    write_steps(straight, 1, 20, &unreadable);
    assert_int_equal(unreadable, 0);

    // It dies in the middle of the line of step 14; its last checkpoint is of step 8.
    write_steps(resumed, 1, 13, &unreadable);
    append(resumed, "{\"step\":14,\"tokens\":114688,\"lo");
    write_steps(resumed, 9, 20, &unreadable);
    assert_int_equal(unreadable, 1);
    cy_text wanted, got;
    read_all(&wanted, straight);
    read_all(&got, resumed);
    assert_string_equal(got.bytes, wanted.bytes); // the validation line of step 8 is kept
    cy_text_free(&got);

    // A fresh start in the same folder holds its own lines only.
    write_steps(resumed, 1, 20, &unreadable);
    read_all(&got, resumed);
    assert_string_equal(got.bytes, wanted.bytes);
    cy_text_free(&got);
    cy_text_free(&wanted);
}

// An empty line goes and the end of the last one comes: as many bytes as before, but others.
static void as_many_bytes_are_not_the_same_lines(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_text text = {0};
    cy_metrics_file file;
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    append(path, "\n{\"step\":2,\"val_loss\":100}");
    CY_CHECK_OK(cy_metrics_file_open(&file, open_writer(), path, 3, NULL));
    CY_CHECK_OK(cy_metrics_file_validation(&file, 4, 1.5, 10));
    close_file(&file);
    CY_CHECK_OK(cy_file_read(&text, path, 1000));
    assert_string_equal(text.bytes,
        "{\"step\":2,\"val_loss\":100}\n"
        "{\"step\":4,\"val_loss\":1.5,\"val_tokens\":10}\n");
    cy_text_free(&text);
}

static void torn_and_foreign_lines_go(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    append(path,
        "{\"step\":1,\"loss\":2}\n{\"step\":0}\nnot json\n\n{\"loss\":3}\n{\"step\":2}\n[1]\n"
        "{\"step\":-3}\n{\"step\":2.5}\n{\"step\":3,\"loss\":1}");
    int64_t unreadable = 0;
    cy_metrics_file file;
    CY_CHECK_OK(cy_metrics_file_open(&file, open_writer(), path, 3, &unreadable));
    close_file(&file);
    assert_int_equal(unreadable, 6);
    cy_text got;
    read_all(&got, path);
    assert_string_equal(got.bytes,
        "{\"step\":1,\"loss\":2}\n{\"step\":0}\n{\"step\":2}\n{\"step\":3,\"loss\":1}\n");
    cy_text_free(&got);
}

static void a_history_reads_what_was_written(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    write_steps(path, 1, 9, NULL);
    append(path, "{\"step\":10,\"loss\":null}\n{\"step\":11,\"lo");
    cy_history history;
    CY_CHECK_OK(cy_history_open(&history, path));
    assert_int_equal(history.loss.count, 10);
    assert_int_equal(history.val_loss.count, 2);
    assert_int_equal(history.unreadable, 1);
    for (int i = 0; i < 10; i++)
        assert_true(history.loss.step[i] == i + 1);
    assert_true(history.loss.value[8] == 5.12344);
    assert_true(isnan(history.loss.value[9]));
    assert_true(history.val_loss.step[1] == 8 && history.val_loss.value[1] == 4.5);
    cy_history_close(&history);
    CY_CHECK_FAILS(cy_history_open(&history, folder), CY_ERR_IO, "not a regular file");
}

// A value that is no number leaves a gap; one that is not there leaves nothing.
static void a_history_of_other_values(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    append(path,
        "{\"step\":1,\"loss\":\"5\",\"mfu\":0}\n{\"step\":2,\"loss\":3}\n"
        "{\"step\":3,\"loss\":true}\n");
    cy_history history;
    CY_CHECK_OK(cy_history_open(&history, path));
    assert_int_equal(history.loss.count, 3);
    assert_int_equal(history.mfu.count, 1);
    assert_int_equal(history.tokens.count, 0);
    assert_int_equal(history.unreadable, 0);
    assert_true(isnan(history.loss.value[0]) && isnan(history.loss.value[2]));
    assert_true(history.loss.value[1] == 3 && history.mfu.value[0] == 0);
    cy_history_close(&history);
}

static void a_spread_is_of_finite_values_after_a_step(void **state)
{
    (void)state;
    double steps[] = {1, 2, 3, 4, 5, 6, 7}, values[] = {99, 4, 1, (double)NAN, 3, -5, 2};
    const cy_series series = {.step = steps, .value = values, .count = 7};
    cy_spread spread;
    CY_CHECK_OK(cy_series_spread(&spread, &series, 1));
    assert_true(spread.least == -5 && spread.median == 2 && spread.most == 4);
    CY_CHECK_OK(cy_series_spread(&spread, &series, 4)); // 3, -5, 2
    assert_true(spread.least == -5 && spread.median == 2 && spread.most == 3);
    CY_CHECK_OK(cy_series_spread(&spread, &series, 5)); // the mean of the two in the middle
    assert_true(spread.median == -1.5);
    CY_CHECK_OK(cy_series_spread(&spread, &series, 7));
    assert_true(isnan(spread.median));
}

static void each_line_is_whole_and_steps_reuse_its_room(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    cy_metrics_file file;
    CY_CHECK_OK(cy_metrics_file_open(&file, open_writer(), path, 0, NULL));
    const cy_step_metrics metrics = example(1);
    CY_CHECK_OK(cy_metrics_file_step(&file, &metrics));
    const size_t room = file.line.capacity;
    assert_true(cy_async_flush(file.writer, 60));
    cy_text got;
    read_all(&got, path);
    assert_int_equal(got.bytes[got.length - 1], '\n');
    cy_text_free(&got);
    for (int i = 0; i < 50; i++)
        CY_CHECK_OK(cy_metrics_file_step(&file, &metrics));
    assert_int_equal(file.line.capacity, room); // steps reuse the room of the first
    close_file(&file);
}

static void a_file_that_cannot_be_made_is_an_error(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/none/metrics.jsonl", folder);
    cy_metrics_file file;
    cy_async_writer *writer = open_writer();
    CY_CHECK_FAILS(
        cy_metrics_file_open(&file, writer, path, 0, NULL), CY_ERR_IO, "none/metrics.jsonl");
    cy_async_writer_finish(writer, 60);
    cy_async_writer_close(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(console_line_is_to_the_letter),
        cmocka_unit_test(short_numbers_have_three_digits),
        cmocka_unit_test(step_object_holds_every_field),
        cmocka_unit_test(what_is_not_finite_is_null),
        cmocka_unit_test(a_resumed_run_goes_on_from_its_own_step),
        cmocka_unit_test(as_many_bytes_are_not_the_same_lines),
        cmocka_unit_test(torn_and_foreign_lines_go),
        cmocka_unit_test(a_history_reads_what_was_written),
        cmocka_unit_test(a_history_of_other_values),
        cmocka_unit_test(a_spread_is_of_finite_values_after_a_step),
        cmocka_unit_test(each_line_is_whole_and_steps_reuse_its_room),
        cmocka_unit_test(a_file_that_cannot_be_made_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
