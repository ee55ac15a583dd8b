// The small parts of base/: status, text, files, trace, log, dtypes.

#define _GNU_SOURCE
#include "support/support.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"
#include "base/trace.h"
#include <cyclotron/dtype.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
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
    static const char *const names[] = {"ok", "request", "io", "corrupt", "memory", "unsupported",
        "timeout", "peer", "not finite", "stopped", "unknown"};
    for (cy_status s = CY_OK; s <= CY_ERR_STOPPED + 1; s++) {
        assert_string_equal(cy_status_name(s), names[s]);
    }
}

static void long_text_is_cut(void **state)
{
    (void)state;
    static char words[9000];
    memset(words, 'a', sizeof(words) - 1);
    (void)CY_FAIL(CY_ERR_IO, "%s", words);
    assert_int_equal(strlen(cy_error_text()), 4095);
    cy_error_prefix("p: ");
    assert_memory_equal(cy_error_text(), "p: aaa", 6);
    assert_int_equal(strlen(cy_error_text()), 4095);
    cy_error_set_hint("%s", words);
    assert_int_equal(strlen(cy_error_hint()), 1023);
    // What the system says comes behind the text as far as there is room.
    for (size_t length = 4080; length <= 4100; length++) {
        words[length] = '\0';
        errno = ENOENT;
        (void)CY_FAIL_ERRNO(CY_ERR_IO, "%s", words);
        words[length] = 'a';
        const size_t whole = length + strlen(": No such file or directory");
        assert_int_equal(strlen(cy_error_text()), whole < 4095 ? whole : 4095);
        assert_int_equal(cy_error_text()[4079], 'a');
        if (length < 4095) assert_int_equal(cy_error_text()[length], ':');
    }
    (void)CY_FAIL(CY_ERR_IO, "old");
    cy_error_prefix("%s", words);
    assert_int_equal(strlen(cy_error_text()), 4095);
    assert_int_equal(cy_error_text()[4094], 'a');
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

static void numbers_become_numbers_of_json(void **state)
{
    (void)state;
    const struct {
        double value;
        const char *wanted, *three, *shortest;
    } cases[] = {{1e22, "1e+22", "1e+22", "1e+22"},
        {-1.5e-7, "-1.4999999999999999e-07", "-1.5e-07", "-1.5e-07"}, {0.5, "0.5", "0.5", "0.5"},
        {-0.0, "-0", "-0", "-0.0"}, {0, "0", "0", "0"}, {123456, "123456", "1.23e+05", "123456"},
        {2251799813685249.5, "2251799813685249.5", "2.25e+15", "2251799813685249.5"},
        {-DBL_MAX, "-1.7976931348623157e+308", "-1.8e+308", "-1.7976931348623157e+308"},
        {(double)INFINITY, "null", "null", "null"}, {-(double)INFINITY, "null", "null", "null"},
        {(double)NAN, "null", "null", "null"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(cy_json_number(cases[i].value, 17).bytes, cases[i].wanted);
        assert_string_equal(cy_json_number(cases[i].value, 3).bytes, cases[i].three);
        assert_string_equal(cy_json_number_shortest(cases[i].value).bytes, cases[i].shortest);
    }
    char comma[] = "-1,5e-07",
         mark[] = "1\xd9\xab"
                  "5";
    cy_number_set_point(comma);
    assert_string_equal(comma, "-1.5e-07");
    cy_number_set_point(mark);
    assert_string_equal(mark, "1.5");
}

static void texts_become_strings_of_json(void **state)
{
    (void)state;
#define BAD "\xef\xbf\xbd"
    static const struct {
        const char *bytes, *wanted;
    } cases[] = {
        {"", ""},
        {"a b~\x7f", "a b~\x7f"},
        {"\"\\/", "\\\"\\\\/"},
        {"\n\t\x01\x1f\x20", "\\u000a\\u0009\\u0001\\u001f "},
        {"\xc2\x80\xdf\xbf", "\xc2\x80\xdf\xbf"},
        {"\xe0\xa0\x80\xed\x9f\xbf", "\xe0\xa0\x80\xed\x9f\xbf"},
        {"\xee\x80\x80\xef\xbf\xbf", "\xee\x80\x80\xef\xbf\xbf"},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\xf1\x80\x80\x80\xf3\xbf\xbf\xbf", "\xf1\x80\x80\x80\xf3\xbf\xbf\xbf"},
        {"\xe1\x80\x80\xec\xbf\xbf", "\xe1\x80\x80\xec\xbf\xbf"},
        {"\x80", BAD},
        {"\xbf"
         "a",
            BAD "a"},
        {"\xc0\xaf", BAD BAD},
        {"\xc1\xbf", BAD BAD},
        {"\xc3", BAD},
        {"\xc3"
         "a",
            BAD "a"},
        {"\xc3\xc3\xa9", BAD "\xc3\xa9"},
        {"\xe0\x9f\xbf", BAD BAD BAD},
        {"\xed\xa0\x80", BAD BAD BAD},
        {"\xe2\x82", BAD BAD},
        {"\xe2\x82"
         "a",
            BAD BAD "a"},
        {"\xf0\x8f\xbf\xbf", BAD BAD BAD BAD},
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD},
        {"\xf5\x80\x80\x80", BAD BAD BAD BAD},
        {"\xf0\x9f\x98", BAD BAD BAD},
        {"\xff\xfe", BAD BAD},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char wanted[60];
        cy_text text = {0};
        snprintf(wanted, sizeof(wanted), "x\"%s\"", cases[i].wanted);
        CY_CHECK_OK(cy_text_add(&text, "x"));
        CY_CHECK_OK(cy_text_add_json_string(&text, cases[i].bytes, strlen(cases[i].bytes)));
        assert_string_equal(text.bytes, wanted);
        cy_text_free(&text);
    }
#undef BAD
    cy_text text = {0};
    CY_CHECK_OK(cy_text_add_json_string(&text, "a\0b", 3));
    assert_string_equal(text.bytes, "\"a\\u0000b\"");
    cy_text_free(&text);
    // One item of a list stands behind the text, several stand below it.
    CY_CHECK_OK(cy_text_add(&text, "\n  - one"));
    assert_string_equal(cy_list_items(&text, 1), " one");
    assert_string_equal(cy_list_items(&text, 2), "\n  - one");
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
    char wanted[900];
    snprintf(wanted, sizeof(wanted), "%s: more than 4 bytes", path);
    assert_int_equal(cy_file_read(&text, path, 4), CY_ERR_CORRUPT);
    assert_string_equal(cy_error_text(), wanted);
    assert_null(text.bytes);
    CY_CHECK_OK(cy_file_write(path, "", 0));
    CY_CHECK_OK(cy_file_read(&text, path, 0));
    assert_string_equal(text.bytes, "");
    cy_text_free(&text);
    snprintf(path, sizeof(path), "%s/b", folder);
    snprintf(wanted, sizeof(wanted), "open %s: No such file or directory", path);
    assert_int_equal(cy_file_read(&text, path, 9), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
    CY_CHECK_FAILS(cy_file_read(&text, folder, 9), CY_ERR_IO, "is a folder, not a regular file");
    snprintf(path, sizeof(path), "%s/none/b", folder);
    snprintf(wanted, sizeof(wanted), "create a file beside %s: No such file or directory", path);
    assert_int_equal(cy_file_write(path, "x", 1), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
    // What is no file stays, and there is nothing beside it.
    snprintf(path, sizeof(path), "%s/folder", folder);
    CY_CHECK_OK(cy_folder_make(path));
    snprintf(wanted, sizeof(wanted), "%s is not a regular file: it is not replaced", path);
    assert_int_equal(cy_file_write(path, "x", 1), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
    assert_int_equal(entries(folder), 2);
}

static void only_a_regular_file_is_read(void **state)
{
    (void)state;
    char folder[200], pipe_path[300], socket_path[300], wanted[900];
    cy_text text = {0};
    cy_input_file file;
    int fd = -1;
    cy_test_folder(folder, sizeof(folder));
    snprintf(pipe_path, sizeof(pipe_path), "%s/pipe", folder);
    snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
    assert_int_equal(
        mkfifo(pipe_path, 0600), 0); // nobody writes to it: an open could wait for ever
    assert_int_equal(mknod(socket_path, S_IFSOCK | 0600, 0), 0);
    const struct {
        const char *path, *kind;
        bool stream; // a stream is not refused for its kind
    } others[] = {
        {folder, "a folder", false}, {"/dev/zero", "a device", false}, {pipe_path, "a pipe", true}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const char *path = others[i].path;
        snprintf(wanted, sizeof(wanted), "%s is %s, not a regular file", path, others[i].kind);
        CY_CHECK_FAILS(cy_file_open(&fd, path), CY_ERR_IO, wanted);
        CY_CHECK_FAILS(cy_file_read(&text, path, 9), CY_ERR_IO, wanted);
        CY_CHECK_FAILS(cy_input_open(&file, path), CY_ERR_IO, wanted);
        if (!others[i].stream) {
            CY_CHECK_FAILS(cy_file_open_stream(&fd, path), CY_ERR_IO, wanted);
        }
        assert_int_equal(fd, -1);
        assert_null(text.bytes);
        assert_null(text.bytes);
    }
    assert_int_equal(cy_file_open(&fd, socket_path), CY_ERR_IO); // a socket cannot be opened at all
    char some[8];
    assert_int_equal(cy_file_read_some(pipe_path, some, sizeof(some)), 0);
    // With a writer the pipe is a stream.
    const int writer = open(pipe_path, O_RDWR | O_CLOEXEC);
    assert_true(writer >= 0);
    CY_CHECK_OK(cy_file_open_stream(&fd, pipe_path));
    assert_int_equal(write(writer, "ab", 2), 2);
    assert_int_equal(read(fd, some, 2), 2);
    close(fd);
    close(writer);
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

// Several pieces of the size in which a file is read, and the limit to the byte.
static void large_files_are_read_to_the_byte(void **state)
{
    (void)state;
    enum { COUNT = 3 * 65536 };
    static char bytes[COUNT];
    char folder[200], path[300];
    cy_text text = {0};
    for (int i = 0; i < COUNT; i++)
        bytes[i] = (char)(i % 251);
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/large", folder);
    CY_CHECK_OK(cy_file_write(path, bytes, COUNT));
    CY_CHECK_OK(cy_file_read(&text, path, COUNT));
    assert_int_equal(text.length, COUNT);
    assert_memory_equal(text.bytes, bytes, COUNT);
    cy_text_free(&text);
    CY_CHECK_FAILS(
        cy_file_read(&text, path, COUNT - 1), CY_ERR_CORRUPT, ": more than 196607 bytes");
    assert_null(text.bytes);
}

static void a_folder_is_held_by_one(void **state)
{
    (void)state;
    static const cy_folder_lock_kind use = {
        .file = ".held", .doing = "writes in", .hint = "wait for it"};
    char folder[200], path[300], host[200] = "", wanted[800];
    int fd = -1, again = -1;
    cy_text text = {0};
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/.held", folder);
    // What an earlier owner left, longer than what is written now, goes.
    memset(wanted, 'x', 600);
    CY_CHECK_OK(cy_file_write(path, wanted, 600));
    CY_CHECK_OK(cy_folder_lock_acquire(&fd, folder, &use));
    gethostname(host, sizeof(host) - 1);
    snprintf(wanted, sizeof(wanted), "process %ld on %s\n", (long)getpid(), host);
    CY_CHECK_OK(cy_file_read(&text, path, 1000));
    assert_string_equal(text.bytes, wanted);
    cy_text_free(&text);
    assert_int_equal(cy_folder_lock_acquire(&again, folder, &use), CY_ERR_REQUEST);
    snprintf(wanted, sizeof(wanted), "another run writes in %s: process %ld on %s", folder,
        (long)getpid(), host);
    assert_string_equal(cy_error_text(), wanted);
    assert_string_equal(cy_error_hint(), "wait for it");
    assert_int_equal(again, -1);
    assert_int_equal(truncate(path, 0), 0); // a lock that its owner has not signed
    assert_int_equal(cy_folder_lock_acquire(&again, folder, &use), CY_ERR_REQUEST);
    snprintf(wanted, sizeof(wanted), "another run writes in %s: it is locked", folder);
    assert_string_equal(cy_error_text(), wanted);
    close(fd);
    CY_CHECK_OK(cy_folder_lock_acquire(&again, folder, &use));
    close(again);
    snprintf(path, sizeof(path), "%s/none", folder);
    snprintf(wanted, sizeof(wanted), "create %s/.held: No such file or directory", path);
    assert_int_equal(cy_folder_lock_acquire(&again, path, &use), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
}

static void read_ten(const char *path)
{
    cy_input_file file;
    char bytes[10];
    CY_CHECK_OK(cy_input_open(&file, path));
    assert_int_equal(file.bytes, 10);
    CY_CHECK_OK(cy_input_read(&file, bytes, 0, 10));
    assert_memory_equal(bytes, "0123456789", 10);
    CY_CHECK_OK(cy_input_read(&file, bytes, 7, 2));
    assert_memory_equal(bytes, "78", 2);
    CY_CHECK_OK(cy_input_read(&file, bytes, 10, 0));
    // Cut while it is open: what is still there can be read, the rest is an error with its name.
    assert_int_equal(truncate(path, 5), 0);
    CY_CHECK_OK(cy_input_read(&file, bytes, 3, 2));
    CY_CHECK_FAILS(cy_input_read(&file, bytes, 4, 2), CY_ERR_CORRUPT,
        "has 5 bytes, it had 10 when it was opened");
    CY_CHECK_FAILS(cy_input_read(&file, bytes, 8, 2), CY_ERR_CORRUPT, path);
    // Another file of that name is another file, whether this one is kept open or not.
    const bool kept = file.fd >= 0;
    CY_CHECK_OK(cy_file_write(path, "0123456789", 10));
    if (kept) CY_CHECK_FAILS(cy_input_read(&file, bytes, 8, 2), CY_ERR_CORRUPT, "has 5 bytes");
    if (!kept) CY_CHECK_FAILS(cy_input_read(&file, bytes, 8, 2), CY_ERR_CORRUPT, "was replaced");
    assert_int_equal(unlink(path), 0);
    if (!kept) CY_CHECK_FAILS(cy_input_read(&file, bytes, 8, 2), CY_ERR_IO, "No such file");
    cy_input_close(&file);
    assert_int_equal(file.fd, -1);
}

static void an_input_is_read_at_any_place(void **state)
{
    (void)state;
    char folder[200], path[300];
    struct rlimit before;
    cy_input_file file;
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/a", folder);
    CY_CHECK_OK(cy_file_write(path, "0123456789", 10));
    read_ten(path);
    // Where descriptors are scarce, none is kept.
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int free_fd = open("/dev/null", O_RDONLY);
    const struct rlimit scarce = {.rlim_cur = (rlim_t)free_fd + 3, .rlim_max = before.rlim_max};
    CY_CHECK_OK(cy_file_write(path, "0123456789", 10));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &scarce), 0);
    read_ten(path);
    CY_CHECK_OK(cy_file_write(path, "", 0));
    for (int i = 0; i < 9; i++) {
        CY_CHECK_OK(cy_input_open(&file, path));
        assert_int_equal(file.bytes, 0);
        assert_int_equal(file.fd, -1);
    }
    cy_input_close(&file);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(free_fd);
    CY_CHECK_FAILS(cy_input_open(&file, folder), CY_ERR_IO, "not a regular file");
    snprintf(path, sizeof(path), "%s/b", folder);
    CY_CHECK_FAILS(cy_input_open(&file, path), CY_ERR_IO, "No such file");
}

// Lines of 0 to 200000 bytes, with and without an end behind the last.
static void a_file_is_read_by_lines(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 65535, 65536, 0, 0, 200000, 7};
    const int count = sizeof(lengths) / sizeof(lengths[0]);
    char folder[200], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/a", folder);
    for (int ended = 0; ended < 2; ended++) {
        cy_text text = {0};
        for (int i = 0; i < count; i++) {
            for (size_t k = 0; k < lengths[i]; k++)
                CY_CHECK_OK(cy_text_add_bytes(&text, &"abcdefgh"[i], 1));
            if (ended || i + 1 < count) CY_CHECK_OK(cy_text_add_bytes(&text, "\n", 1));
        }
        CY_CHECK_OK(cy_file_write(path, text.bytes, text.length));
        cy_input_file file;
        CY_CHECK_OK(cy_input_open(&file, path));
        cy_lines lines = {.file = &file};
        const char *line = NULL;
        size_t length = 0;
        for (int i = 0; i < count; i++) {
            CY_CHECK_OK(cy_lines_next(&lines, &line, &length));
            assert_non_null(line);
            assert_int_equal(length, lengths[i]);
            assert_int_equal(lines.number, i + 1);
            if (length > 0) assert_int_equal(line[0], 'a' + i);
            if (length > 0) assert_int_equal(line[length - 1], 'a' + i);
        }
        CY_CHECK_OK(cy_lines_next(&lines, &line, &length));
        assert_null(line);
        cy_lines_free(&lines);
        cy_input_close(&file);
        cy_text_free(&text);
    }
}

static void a_line_without_end_is_refused(void **state)
{
    (void)state;
    char folder[200], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/a", folder);
    CY_CHECK_OK(cy_file_write(path, "1\n2", 3));
    assert_int_equal(truncate(path, (off_t)1 << 30), 0);
    cy_input_file file;
    CY_CHECK_OK(cy_input_open(&file, path));
    cy_lines lines = {.file = &file};
    const char *line = NULL;
    size_t length = 0;
    CY_CHECK_OK(cy_lines_next(&lines, &line, &length));
    CY_CHECK_FAILS(cy_lines_next(&lines, &line, &length), CY_ERR_CORRUPT,
        "line 2 has more than 16777216 bytes");
    assert_true(lines.room < 4 * CY_LINE_BYTES_MAX);
    cy_lines_free(&lines);
    cy_input_close(&file);
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
    static const struct {
        const char *name;
        cy_dtype dtype;
    } names[] = {{"fp32", CY_F32}, {"float32", CY_F32}, {"float", CY_F32}, {"fp64", CY_F64},
        {"float64", CY_F64}, {"double", CY_F64}, {"bf16", CY_BF16}, {"bfloat16", CY_BF16},
        {"fp16", CY_F16}, {"float16", CY_F16}, {"half", CY_F16}, {"int32", CY_I32},
        {"int64", CY_I64}, {"uint8", CY_U8}, {"fixed64", CY_FX64}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cy_dtype dtype = i == 0 ? CY_U8 : CY_F32;
        assert_int_equal(cy_dtype_from_name(&dtype, names[i].name), 1);
        assert_int_equal(dtype, names[i].dtype);
    }
    static const char *const others[] = {"bf1", "bf166", "FP32", "", "f32"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        cy_dtype dtype = CY_I32;
        assert_int_equal(cy_dtype_from_name(&dtype, others[i]), 0);
        assert_int_equal(dtype, CY_I32);
    }
    for (cy_dtype dtype = CY_F32; dtype <= CY_FX64; dtype++)
        assert_int_equal(cy_dtype_is_float(dtype), dtype <= CY_F16);
}

// The kernel appends " (deleted)" to the name of an open file that somebody removed.
static void an_activity_names_a_file_that_is_gone(void **state)
{
    (void)state;
    char folder[200], path[300], text[256];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/shard.bin", folder);
    const int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(file >= 0);
    cy_activity activity = {0};
    cy_activity *before = cy_activity_attach(&activity);
    cy_activity_begin(CY_ACTIVITY_SYNC, NULL, file);
    cy_activity_describe(&activity, (int)getpid(), text, sizeof(text));
    assert_string_equal(text, "syncing shard.bin for 0 s");
    assert_int_equal(unlink(path), 0);
    cy_activity_describe(&activity, (int)getpid(), text, sizeof(text));
    assert_string_equal(text, "syncing shard.bin for 0 s");
    cy_activity_end();
    cy_activity_attach(before);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_keeps_its_text),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(text_is_per_thread),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(numbers_become_numbers_of_json),
        cmocka_unit_test(texts_become_strings_of_json),
        cmocka_unit_test(files_are_whole),
        cmocka_unit_test(large_files_are_read_to_the_byte),
        cmocka_unit_test(a_folder_is_held_by_one),
        cmocka_unit_test(only_a_regular_file_is_read),
        cmocka_unit_test(folders_are_made),
        cmocka_unit_test(an_input_is_read_at_any_place),
        cmocka_unit_test(a_file_is_read_by_lines),
        cmocka_unit_test(a_line_without_end_is_refused),
        cmocka_unit_test(trace_is_a_ring),
        cmocka_unit_test(log_hands_lines_on),
        cmocka_unit_test(dtypes_have_names),
        cmocka_unit_test(an_activity_names_a_file_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
