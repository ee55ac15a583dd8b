// The small parts of base/: status, text, files, trace, log, dtypes.

#define _GNU_SOURCE
#include "support/support.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/trace.h"
#include <cyclotron/dtype.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- status

static cy_status forward(cy_status status)
{
    CY_TRY(status);
    return CY_OK;
}

static void status_keeps_its_text(void **state)
{
    (void)state;
    assert_int_equal(CY_FAIL(CY_ERR_CORRUPT, "%s: %d bytes", "x", 3), CY_ERR_CORRUPT);
    cy_error_set_hint("take %d", 4);
    assert_string_equal(cy_error_text(), "x: 3 bytes");
    assert_string_equal(cy_error_hint(), "take 4");
    cy_error_prefix("reading %s: ", "y");
    assert_string_equal(cy_error_text(), "reading y: x: 3 bytes");
    assert_string_equal(cy_error_hint(), "take 4");
    // The new text may be made of the old one; a new failure has no old hint.
    (void)CY_FAIL(CY_ERR_IO, "again: %s", cy_error_text());
    assert_string_equal(cy_error_text(), "again: reading y: x: 3 bytes");
    assert_string_equal(cy_error_hint(), "");
    errno = ENOENT;
    assert_int_equal(forward(CY_FAIL_ERRNO(CY_ERR_IO, "open %s", "z")), CY_ERR_IO);
    assert_string_equal(cy_error_text(), "open z: No such file or directory");
    assert_int_equal(forward(CY_OK), CY_OK);
    for (cy_status s = CY_OK; s <= CY_ERR_STOPPED; s++) {
        assert_string_not_equal(cy_status_name(s), "unknown");
    }
}

static void long_text_is_cut(void **state)
{
    (void)state;
    static char words[9000];
    memset(words, 'a', sizeof(words) - 1);
    (void)CY_FAIL(CY_ERR_IO, "%s", words);
    const size_t length = strlen(cy_error_text());
    assert_true(length > 1000 && length < sizeof(words));
    cy_error_prefix("p: ");
    assert_memory_equal(cy_error_text(), "p: aaa", 6);
    cy_error_set_hint("%s", words);
    assert_true(strlen(cy_error_hint()) < sizeof(words));
}

static void *fail_elsewhere(void *argument)
{
    (void)CY_FAIL(CY_ERR_PEER, "elsewhere");
    return argument;
}

static void text_is_per_thread(void **state)
{
    (void)state;
    pthread_t thread;
    (void)CY_FAIL(CY_ERR_IO, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(cy_error_text(), "here");
}

// ---- text

static void text_grows(void **state)
{
    (void)state;
    cy_text text = {0};
    for (int i = 0; i < 1000; i++)
        CY_CHECK_OK(cy_text_add(&text, "%d,", i));
    assert_int_equal(text.length, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(text.bytes), text.length);
    assert_memory_equal(text.bytes, "0,1,2,", 6);
    assert_string_equal(text.bytes + text.length - 4, "999,");
    CY_CHECK_OK(cy_text_add_bytes(&text, "a\0b", 3)); // zeros are bytes too
    assert_memory_equal(text.bytes + text.length - 4, ",a\0b", 5);
    cy_text_free(&text);
    assert_null(text.bytes);
    CY_CHECK_OK(cy_text_add_bytes(&text, NULL, 0));
    assert_string_equal(text.bytes, "");
    cy_text_free(&text);
}

// ---- files

static int entries(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int count = 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 2;
}

static void files_are_whole(void **state)
{
    (void)state;
    char folder[200], path[300];
    cy_text text = {0};
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/a", folder);
    CY_CHECK_OK(cy_file_write(path, "one", 3));
    CY_CHECK_OK(cy_file_write(path, "three", 5));
    assert_int_equal(entries(folder), 1); // nothing is left beside it
    CY_CHECK_OK(cy_file_read(&text, path, 5));
    assert_string_equal(text.bytes, "three");
    cy_text_free(&text);
    CY_CHECK_FAILS(cy_file_read(&text, path, 4), CY_ERR_CORRUPT, "more than 4 bytes");
    assert_null(text.bytes);
    CY_CHECK_OK(cy_file_write(path, "", 0));
    CY_CHECK_OK(cy_file_read(&text, path, 0));
    assert_string_equal(text.bytes, "");
    cy_text_free(&text);
    snprintf(path, sizeof(path), "%s/b", folder);
    CY_CHECK_FAILS(cy_file_read(&text, path, 9), CY_ERR_IO, "No such file");
    CY_CHECK_FAILS(cy_file_read(&text, folder, 9), CY_ERR_IO, "directory");
    snprintf(path, sizeof(path), "%s/none/b", folder);
    CY_CHECK_FAILS(cy_file_write(path, "x", 1), CY_ERR_IO, "none/b");
    // A failed rename leaves what was there, and nothing beside it.
    snprintf(path, sizeof(path), "%s/folder", folder);
    CY_CHECK_OK(cy_folder_make(path));
    CY_CHECK_FAILS(cy_file_write(path, "x", 1), CY_ERR_IO, "rename");
    assert_int_equal(entries(folder), 2);
}

static void folders_are_made(void **state)
{
    (void)state;
    char folder[200], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/a/b//c/", folder);
    CY_CHECK_OK(cy_folder_make(path));
    CY_CHECK_OK(cy_folder_make(path));
    assert_true(cy_path_is_folder(path));
    snprintf(path, sizeof(path), "%s/a/file", folder);
    CY_CHECK_OK(cy_file_write(path, "x", 1));
    assert_true(cy_path_exists(path));
    assert_false(cy_path_is_folder(path));
    CY_CHECK_FAILS(cy_folder_make(path), CY_ERR_IO, "not a folder");
    snprintf(path, sizeof(path), "%s/a/file/b", folder);
    CY_CHECK_FAILS(cy_folder_make(path), CY_ERR_IO, "a/file");
}

static void mapping_shows_the_file(void **state)
{
    (void)state;
    char folder[200], path[300];
    cy_mapping mapping = {0};
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/a", folder);
    CY_CHECK_OK(cy_file_write(path, "bytes", 5));
    CY_CHECK_OK(cy_mapping_open(&mapping, path));
    assert_int_equal(mapping.count, 5);
    assert_memory_equal(mapping.bytes, "bytes", 5);
    cy_mapping_close(&mapping);
    assert_null(mapping.bytes);
    CY_CHECK_OK(cy_file_write(path, "", 0));
    CY_CHECK_OK(cy_mapping_open(&mapping, path));
    assert_int_equal(mapping.count, 0);
    cy_mapping_close(&mapping);
    CY_CHECK_FAILS(cy_mapping_open(&mapping, folder), CY_ERR_IO, "not a file");
    snprintf(path, sizeof(path), "%s/b", folder);
    CY_CHECK_FAILS(cy_mapping_open(&mapping, path), CY_ERR_IO, "No such file");
}

// ---- trace, log, dtypes

static void trace_is_a_ring(void **state)
{
    (void)state;
    cy_trace trace;
    CY_CHECK_OK(cy_trace_open(&trace, 4));
    for (int i = 0; i < 6; i++) {
        const int64_t start = cy_trace_start(&trace);
        assert_true(start > 0);
        cy_trace_add(&trace, "x", CY_SPAN_COMM, start, (cy_cost){.flops = i}, i);
    }
    assert_int_equal(trace.count, 6);
    for (int i = 2; i < 6; i++) {
        const cy_span span = trace.spans[i % 4];
        assert_int_equal(span.tag, i);
        assert_true(span.cost.flops == i && span.end_ns >= span.start_ns);
        assert_int_equal(span.kind, CY_SPAN_COMM);
    }
    cy_trace_close(&trace);
    assert_int_equal(cy_trace_start(NULL), 0);
    cy_trace_add(NULL, "x", CY_SPAN_COMM, 0, (cy_cost){0}, 0);
}

static void keep_line(void *context, cy_log_level level, const char *line)
{
    snprintf(context, 100, "%d %s", (int)level, line);
}

static void log_hands_lines_on(void **state)
{
    (void)state;
    char line[100] = "";
    const cy_log log = {.write = keep_line, .context = line};
    cy_log_add(&log, CY_LOG_WARNING, "%d of %s", 3, "x");
    assert_string_equal(line, "1 3 of x");
    cy_log_add(NULL, CY_LOG_INFO, "nobody listens");
}

static void dtypes_have_names(void **state)
{
    (void)state;
    const size_t sizes[] = {4, 8, 2, 2, 4, 8, 1, 8};
    for (cy_dtype dtype = CY_F32; dtype <= CY_FX64; dtype++) {
        cy_dtype back = CY_U8;
        assert_int_equal(cy_dtype_size(dtype), sizes[dtype]);
        assert_int_equal(cy_dtype_from_name(&back, cy_dtype_name(dtype)), 1);
        assert_int_equal(back, dtype);
    }
    cy_dtype dtype = CY_I32;
    assert_int_equal(cy_dtype_from_name(&dtype, "bfloat16"), 1);
    assert_int_equal(dtype, CY_BF16);
    assert_int_equal(cy_dtype_from_name(&dtype, "bf1"), 0);
    assert_int_equal(dtype, CY_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_keeps_its_text),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(text_is_per_thread),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(files_are_whole),
        cmocka_unit_test(folders_are_made),
        cmocka_unit_test(mapping_shows_the_file),
        cmocka_unit_test(trace_is_a_ring),
        cmocka_unit_test(log_hands_lines_on),
        cmocka_unit_test(dtypes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
