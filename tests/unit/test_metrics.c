// The console line, metrics.jsonl, and what a resumed run makes of it.

#include "base/file.h"
#include "observe/progress.h"
#include "observe/sinks.h"
#include "support/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cy_metrics example(int64_t step)
{
    cy_metrics made = {0};
    cy_metrics_set_count(&made, CY_METRIC_STEP, step);
    cy_metrics_set_count(&made, CY_METRIC_TOKENS, 8192 * step);
    cy_metrics_set_count(&made, CY_METRIC_MAX_TOKENS, 1000000);
    cy_metrics_set_count(&made, CY_METRIC_BATCH_TOKENS, 8192);
    cy_metrics_set(&made, CY_METRIC_LOSS, 5.12344);
    cy_metrics_set(&made, CY_METRIC_GRAD_NORM, 1.25);
    cy_metrics_set(&made, CY_METRIC_LR, 3e-4);
    cy_metrics_set(&made, CY_METRIC_STEP_S, 1.95);
    cy_metrics_set(&made, CY_METRIC_TOK_S, 4205.7);
    cy_metrics_set(&made, CY_METRIC_TOK_S_RANK, 2102.85);
    cy_metrics_set(&made, CY_METRIC_MFU, 0.612);
    cy_metrics_set(&made, CY_METRIC_MFU_CAUSAL, 0.55);
    cy_metrics_set(&made, CY_METRIC_MEM_GB, 1.2);
    cy_metrics_set(&made, CY_METRIC_DATA_S, 0.015625);
    cy_metrics_set(&made, CY_METRIC_DATA_READY, 0.75);
    cy_metrics_set_count(&made, CY_METRIC_COMM, 0);
    cy_metrics_set_count(&made, CY_METRIC_COMM_DP_BYTES, 4096);
    cy_metrics_set_count(&made, CY_METRIC_COMM_DP_MESSAGES, 2);
    cy_metrics_set(&made, CY_METRIC_COMM_DP_S, 0.5);
    cy_metrics_set(&made, CY_METRIC_COMM_DP_EXPOSED_S, 0.125);
    cy_metrics_set_count(&made, CY_METRIC_COMM_TP_BYTES, 77);
    cy_metrics_set_count(&made, CY_METRIC_COMM_TP_MESSAGES, 9);
    cy_metrics_set(&made, CY_METRIC_COMM_TP_S, 0.25);
    cy_metrics_set(&made, CY_METRIC_COMM_TP_EXPOSED_S, 0);
    cy_metrics_set_count(&made, CY_METRIC_SKIPPED, 0);
    return made;
}

static cy_metrics evaluation(int64_t step, double loss, int64_t tokens)
{
    cy_metrics made = {0};
    cy_metrics_set_count(&made, CY_METRIC_STEP, step);
    cy_metrics_set(&made, CY_METRIC_VAL_LOSS, loss);
    cy_metrics_set_count(&made, CY_METRIC_VAL_TOKENS, tokens);
    return made;
}

static void console_line_is_to_the_letter(void **state)
{
    (void)state;
    cy_text line = {0};
    cy_metrics metrics = example(12);
    CY_CHECK_OK(cy_metrics_add_console(&line, &metrics));
    assert_string_equal(line.bytes,
        "[rank 0] Step: 12 | Loss: 5.1234 | Global batch size: 8.19K | Tokens/s: 4.21K | "
        "Tokens/s/GPU: 2.10K | Tokens: 98.3K/1.00M | MFU: 61.20% | Memory usage: 1.20GB | "
        "Grad norm: 1.2500 | LR: 3.00e-04");
    line.length = 0;
    metrics.set[CY_METRIC_MAX_TOKENS] = false;
    cy_metrics_set(&metrics, CY_METRIC_MFU, (double)NAN);
    cy_metrics_set(&metrics, CY_METRIC_LOSS, copysign((double)NAN, -1)); // as 0 / 0 gives it
    cy_metrics_set_count(&metrics, CY_METRIC_SKIPPED, 1);
    CY_CHECK_OK(cy_metrics_add_console(&line, &metrics));
    assert_string_equal(line.bytes,
        "[rank 0] Step: 12 | Loss: nan | Global batch size: 8.19K | Tokens/s: 4.21K | "
        "Tokens/s/GPU: 2.10K | Tokens: 98.3K | MFU: - | Memory usage: 1.20GB | "
        "Grad norm: 1.2500 | LR: 3.00e-04 | Skipped");
    line.length = 0;
    cy_metrics_set_count(&metrics, CY_METRIC_SKIPPED, 0);
    cy_metrics_set_count(&metrics, CY_METRIC_REPEATED, 2);
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
    cy_metrics metrics = example(3);
    cy_metrics_set(&metrics, CY_METRIC_LOSS, 0.1 + 0.2); // needs all 17 digits
    cy_metrics_set_count(&metrics, CY_METRIC_PARAMS_HASH, 0xabcdef);
    CY_CHECK_OK(cy_metrics_add_json(&line, &metrics));
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
    cy_metrics metrics = example(1);
    cy_metrics_set(&metrics, CY_METRIC_LOSS, (double)NAN);
    cy_metrics_set(&metrics, CY_METRIC_GRAD_NORM, -(double)INFINITY);
    cy_metrics_set(&metrics, CY_METRIC_MFU, (double)NAN);
    cy_metrics_set(&metrics, CY_METRIC_COMM_DP_S, (double)INFINITY);
    CY_CHECK_OK(cy_metrics_add_json(&line, &metrics));
    json_t *object = json_loads(line.bytes, 0, NULL);
    assert_non_null(object);
    assert_true(json_is_null(json_object_get(object, "loss")));
    assert_true(json_is_null(json_object_get(object, "grad_norm")));
    assert_true(json_is_null(json_object_get(object, "mfu")));
    assert_null(json_object_get(object, "params_hash"));
    json_decref(object);
    cy_text_free(&line);
}

// A metrics.jsonl with a writer of its own.
typedef struct jsonl {
    cy_async_writer *writer;
    cy_sink *sink;
} jsonl;

static jsonl open_file(const char *path, int64_t last_step, int64_t *unreadable)
{
    jsonl file = {0};
    CY_CHECK_OK(cy_async_writer_open(&file.writer));
    CY_CHECK_OK(cy_jsonl_sink_open(&file.sink, file.writer, path, last_step, unreadable));
    return file;
}

static void write_record(const jsonl *file, const cy_metrics *metrics)
{
    CY_CHECK_OK(file->sink->ops->write(file->sink, metrics));
}

static void close_file(const jsonl *file)
{
    file->sink->ops->close(file->sink);
    cy_async_writer_finish(file->writer, 60);
    cy_async_writer_close(file->writer);
}

static void write_steps(const char *path, int64_t from, int64_t to, int64_t *unreadable)
{
    const jsonl file = open_file(path, from - 1, unreadable);
    for (int64_t step = from; step <= to; step++) {
        const cy_metrics metrics = example(step), validation = evaluation(step, 4.5, 1000);
        write_record(&file, &metrics);
        if (step % 4 == 0) write_record(&file, &validation);
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
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    append(path, "\n{\"step\":2,\"val_loss\":100}");
    const jsonl file = open_file(path, 3, NULL);
    const cy_metrics validation = evaluation(4, 1.5, 10);
    write_record(&file, &validation);
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
    const jsonl file = open_file(path, 3, &unreadable);
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
    assert_int_equal(history.of[CY_METRIC_LOSS].count, 10);
    assert_int_equal(history.of[CY_METRIC_VAL_LOSS].count, 2);
    assert_int_equal(history.unreadable, 1);
    for (int i = 0; i < 10; i++)
        assert_true(history.of[CY_METRIC_LOSS].step[i] == i + 1);
    assert_true(history.of[CY_METRIC_LOSS].value[8] == 5.12344);
    assert_true(isnan(history.of[CY_METRIC_LOSS].value[9]));
    assert_true(history.of[CY_METRIC_VAL_LOSS].step[1] == 8 &&
        history.of[CY_METRIC_VAL_LOSS].value[1] == 4.5);
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
    assert_int_equal(history.of[CY_METRIC_LOSS].count, 3);
    assert_int_equal(history.of[CY_METRIC_MFU].count, 1);
    assert_int_equal(history.of[CY_METRIC_TOKENS].count, 0);
    assert_int_equal(history.unreadable, 0);
    assert_true(
        isnan(history.of[CY_METRIC_LOSS].value[0]) && isnan(history.of[CY_METRIC_LOSS].value[2]));
    assert_true(
        history.of[CY_METRIC_LOSS].value[1] == 3 && history.of[CY_METRIC_MFU].value[0] == 0);
    cy_history_close(&history);
}

static void a_summary_is_of_finite_values_after_a_step(void **state)
{
    (void)state;
    double steps[] = {1, 2, 3, 4, 5, 6, 7}, values[] = {99, 4, 1, (double)NAN, 3, -5, 2};
    const cy_series series = {.step = steps, .value = values, .count = 7};
    cy_summary of;
    CY_CHECK_OK(cy_series_summarise(&of, &series, 1));
    assert_true(of.least == -5 && of.median == 2 && of.most == 4 && of.mean == 1);
    CY_CHECK_OK(cy_series_summarise(&of, &series, 4)); // 3, -5, 2
    assert_true(of.least == -5 && of.median == 2 && of.most == 3 && of.mean == 0);
    CY_CHECK_OK(cy_series_summarise(&of, &series, 5)); // the mean of the two in the middle
    assert_true(of.median == -1.5 && of.last == 2);
    CY_CHECK_OK(cy_series_summarise(&of, &series, 7));
    assert_true(isnan(of.median) && isnan(of.mean) && of.last == 2);
}

static void a_line_is_written_whole_before_the_next(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    const jsonl file = open_file(path, 0, NULL);
    const cy_metrics metrics = example(1);
    write_record(&file, &metrics);
    assert_true(cy_async_flush(file.writer, 60));
    cy_text got;
    read_all(&got, path);
    assert_int_equal(got.bytes[got.length - 1], '\n');
    cy_text_free(&got);
    close_file(&file);
}

static void a_file_that_cannot_be_made_is_an_error(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/none/metrics.jsonl", folder);
    cy_sink *sink = NULL;
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    CY_CHECK_FAILS(
        cy_jsonl_sink_open(&sink, writer, path, 0, NULL), CY_ERR_IO, "none/metrics.jsonl");
    cy_async_writer_finish(writer, 60);
    cy_async_writer_close(writer);
}

// ---- the table and the list of sinks

// The console has one field for each place, names and tags are not used twice, and docs/observe.md
// explains every field.
static void the_table_is_consistent(void **state)
{
    (void)state;
    int places[CY_METRICS + 1] = {0}, shown = 0;
    cy_text page = {0};
    char path[600];
    assert_non_null(getenv("SOURCE"));
    snprintf(path, sizeof(path), "%s/docs/observe.md", getenv("SOURCE"));
    CY_CHECK_OK(cy_file_read(&page, path, 1 << 20));
    for (int i = 0; i < CY_METRICS; i++) {
        const cy_metric_entry *entry = cy_metric_entry_of((cy_metric)i);
        assert_in_range(entry->place, 0, CY_METRICS);
        shown += entry->place > 0;
        assert_true(entry->place == 0 || places[entry->place]++ == 0);
        assert_true(entry->name != NULL || entry->place > 0);
        assert_true(entry->name != NULL || entry->tag == NULL);
        if (entry->name == NULL) continue;
        const char *dot = strrchr(entry->name, '.');
        char field[64];
        snprintf(field, sizeof(field), "`%s`", dot != NULL ? dot + 1 : entry->name);
        if (strstr(page.bytes, field) == NULL) fail_msg("docs/observe.md has no %s", field);
        for (int j = 0; j < i; j++) {
            const cy_metric_entry *other = cy_metric_entry_of((cy_metric)j);
            assert_true(other->name == NULL || strcmp(other->name, entry->name) != 0);
            if (other->tag == NULL || entry->tag == NULL) continue;
            assert_string_not_equal(other->tag, entry->tag);
        }
    }
    for (int place = 1; place <= shown; place++)
        assert_int_equal(places[place], 1);
    cy_text_free(&page);
}

typedef struct test_sink {
    cy_sink base;
    int *written, *closed;
    bool fails;
} test_sink;

static cy_status test_write(cy_sink *base, const cy_metrics *metrics)
{
    test_sink *sink = (test_sink *)base;
    if (sink->fails) return CY_FAIL(CY_ERR_MEMORY, "no memory for a test");
    *sink->written += (int)cy_metrics_count(metrics, CY_METRIC_STEP);
    return CY_OK;
}

static void test_close(cy_sink *base)
{
    ++*((test_sink *)base)->closed;
}

static void expect_report(cy_sinks *sinks, const char *wanted)
{
    cy_text line = {0};
    assert_int_equal(cy_sinks_take_report(sinks, &line), wanted != NULL);
    if (wanted != NULL) assert_string_equal(line.bytes, wanted);
    cy_text_free(&line);
}

// A sink that fails hides no record from the others; its failure and its end are each one report.
static void a_sink_that_fails_is_reported_once(void **state)
{
    (void)state;
    static const cy_sink_ops ops = {.write = test_write, .close = test_close};
    int written[2] = {0}, closed = 0;
    test_sink bad = {{&ops, "bad"}, &written[0], &closed, true};
    test_sink good = {{&ops, "good"}, &written[1], &closed, false};
    const cy_metrics metrics = example(10);
    cy_sinks sinks = {0};
    cy_sinks_add(&sinks, &bad.base);
    cy_sinks_add(&sinks, &good.base);
    cy_sinks_write(&sinks, &metrics);
    expect_report(&sinks, "bad: records are lost: no memory for a test");
    expect_report(&sinks, NULL);
    cy_sinks_write(&sinks, &metrics);
    expect_report(&sinks, NULL);
    bad.fails = false;
    cy_sinks_write(&sinks, &metrics);
    expect_report(&sinks, "bad: 2 records were lost: no memory for a test");
    expect_report(&sinks, NULL);
    cy_sinks_write(&sinks, &metrics);
    expect_report(&sinks, NULL);
    assert_int_equal(written[0], 20);
    assert_int_equal(written[1], 40);
    // A failure that has ended before anybody asked is one report, and the next one is new.
    bad.fails = true;
    cy_sinks_write(&sinks, &metrics);
    bad.fails = false;
    cy_sinks_write(&sinks, &metrics);
    expect_report(&sinks, "bad: 1 records were lost: no memory for a test");
    bad.fails = true;
    cy_sinks_write(&sinks, &metrics);
    expect_report(&sinks, "bad: records are lost: no memory for a test");
    cy_sinks_close(&sinks);
    assert_int_equal(closed, 2);
    assert_int_equal(sinks.count, 0);
}

static void keep_line(void *context, const char *line)
{
    cy_text *lines = context;
    CY_CHECK_OK(cy_text_add(lines, "%.*s\n", 17, line));
}

// The console has the steps that are multiples of `every`, the last one, and no evaluation.
static void the_console_shows_some_steps(void **state)
{
    (void)state;
    cy_text lines = {0};
    cy_sinks sinks = {0};
    cy_sink *console = NULL;
    const cy_console_sink_options options = {
        .write = keep_line, .context = &lines, .every = 4, .last_step = 10};
    CY_CHECK_OK(cy_console_sink_open(&console, &options));
    cy_sinks_add(&sinks, console);
    for (int64_t step = 1; step <= 10; step++) {
        const cy_metrics metrics = example(step), validation = evaluation(step, 4.5, 1000);
        cy_sinks_write(&sinks, &metrics);
        cy_sinks_write(&sinks, &validation);
    }
    cy_sinks_close(&sinks);
    assert_string_equal(lines.bytes, "[rank 0] Step: 4 \n[rank 0] Step: 8 \n[rank 0] Step: 10\n");
    cy_text_free(&lines);
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
        cmocka_unit_test(a_summary_is_of_finite_values_after_a_step),
        cmocka_unit_test(a_line_is_written_whole_before_the_next),
        cmocka_unit_test(a_file_that_cannot_be_made_is_an_error),
        cmocka_unit_test(the_table_is_consistent),
        cmocka_unit_test(a_sink_that_fails_is_reported_once),
        cmocka_unit_test(the_console_shows_some_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
