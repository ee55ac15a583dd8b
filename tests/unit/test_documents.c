// Documents out of files: where a long text is cut, what a line of JSON gives, compressed files.

#define _GNU_SOURCE
#include "support/support.h"

#include "base/file.h"
#include "data/document.h"
#include "tokenizer/unicode.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define PIECE ((size_t)1 << 20)

static char folder[200];
static uint8_t *classes;

static const char *in_folder(const char *name)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static cy_status open_document(cy_document_reader **reader, const char *name, bool cuts)
{
    const cy_document_options options = {.classes = cuts ? classes : NULL};
    *reader = NULL;
    return cy_document_open(reader, in_folder(name), &options);
}

// ---- text

// Reads a text of several reads and calls `change` after the first of them.
static cy_status read_changed(const char *name, void (*change)(const char *path, size_t count))
{
    const size_t count = 3 * PIECE;
    cy_document_reader *reader;
    cy_document_state part = CY_DOCUMENT_GOES_ON;
    cy_text text = {0};
    char *bytes = calloc(count, 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = i % 50 == 49 ? '\n' : 'a';
    CY_CHECK_OK(cy_file_write(in_folder(name), bytes, count));
    CY_CHECK_OK(open_document(&reader, name, true));
    CY_CHECK_OK(cy_document_next(reader, &text, &part));
    assert_int_equal(part, CY_DOCUMENT_GOES_ON);
    change(in_folder(name), count);
    cy_status status = CY_OK;
    while (status == CY_OK && part == CY_DOCUMENT_GOES_ON)
        status = cy_document_next(reader, &text, &part);
    cy_document_close(reader);
    cy_text_free(&text);
    free(bytes);
    return status;
}

static void cut(const char *path, size_t count)
{
    assert_int_equal(truncate(path, (off_t)(count / 2)), 0);
}

// The clock of a file system may stand for some milliseconds: writes until the file shows it.
static void overwrite(const char *path, size_t count)
{
    struct stat before, after;
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &before), 0);
    do {
        assert_int_equal(pwrite(fd, "b", 1, (off_t)count / 2), 1);
        assert_int_equal(fstat(fd, &after), 0);
    } while (before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
        before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    close(fd);
}

static void append(const char *path, size_t count)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    (void)count;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "bb", 2), 2);
    close(fd);
}

// Whoever reads a file to its end reads it once: a new name or another mode changes nothing.
static void rename_it(const char *path, size_t count)
{
    char other[400];
    (void)count;
    snprintf(other, sizeof(other), "%s.other", path);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(rename(path, other), 0);
}

// A file that changed behind the reader's back is neither the old text nor the new one.
static void a_text_that_changes_is_named(void **state)
{
    (void)state;
    CY_CHECK_FAILS(read_changed("cut.txt", cut), CY_ERR_CORRUPT,
        "cut.txt ends at byte 1572864, it had 3145728");
    CY_CHECK_FAILS(read_changed("over.txt", overwrite), CY_ERR_CORRUPT,
        "over.txt was written to while it was read: it has 3145728 bytes, it had 3145728 when");
    CY_CHECK_FAILS(read_changed("more.txt", append), CY_ERR_CORRUPT,
        "more.txt was written to while it was read: it has 3145730 bytes, it had 3145728 when");
    CY_CHECK_OK(read_changed("moved.txt", rename_it));
}

// The sizes of the pieces of a text; what they hold must be the text.
static int cut_text(size_t sizes[8], const char *bytes, size_t count, bool cuts)
{
    cy_document_reader *reader;
    cy_text text = {0};
    cy_document_state state = CY_DOCUMENT_GOES_ON;
    int pieces = 0;
    CY_CHECK_OK(cy_file_write(in_folder("cut.txt"), bytes, count));
    CY_CHECK_OK(open_document(&reader, "cut.txt", cuts));
    while (state == CY_DOCUMENT_GOES_ON) {
        const size_t before = text.length;
        CY_CHECK_OK(cy_document_next(reader, &text, &state));
        assert_in_range(pieces, 0, 7);
        sizes[pieces++] = text.length - before;
    }
    assert_int_equal(state, CY_DOCUMENT_ENDS);
    assert_int_equal(text.length, count);
    if (count > 0) assert_memory_equal(text.bytes, bytes, count);
    assert_int_equal(cy_document_position(reader), count);
    for (int i = 0; i < 2; i++) {
        CY_CHECK_OK(cy_document_next(reader, &text, &state));
        assert_int_equal(state, CY_DOCUMENT_NONE);
    }
    assert_int_equal(text.length, count);
    cy_document_close(reader);
    cy_text_free(&text);
    return pieces;
}

// A cut stands behind a newline between two characters that are no spaces, as late as it can in
// the first MiB, of which the last 4 bytes may be half a character.
static void long_texts_are_cut_between_words(void **state)
{
    (void)state;
    static const struct {
        size_t place;
        const char *bytes;
        size_t first; // bytes of the first piece
    } cases[] = {
        {PIECE - 5, "\n", PIECE - 4},
        {PIECE - 4, "\n", 101},
        {1000, "\n", 1001},
        {1000, " \n", 101},
        {1000, "\n ", 101},
        {1000, "\r\n", 101},
        {1000, "\n\n", 101},
        {1000, "\n\t", 101},
        {1000, "\n\u00e9", 1001},
        {1000, "\u00e9\n", 1003},
        {1000, "\u00a0\n", 101},
        {1000, "\n\u00a0", 101},
        {1000, "\n\u0301", 101}, // joins what stands before it
        {1000, "\u0301\n", 1003},
        {1000, "\xff\n\xff", 1002},
        {1000, "\U0001f600\n", 1005},
    };
    const size_t count = PIECE + PIECE / 2;
    char *text = malloc(count);
    size_t sizes[8];
    assert_non_null(text);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(text, 'a', count);
        text[100] = '\n';
        memcpy(text + cases[i].place, cases[i].bytes, strlen(cases[i].bytes));
        assert_in_range(cut_text(sizes, text, count, true), 2, 8);
        assert_int_equal(sizes[0], cases[i].first);
        assert_int_equal(cut_text(sizes, text, count, false), 1);
    }
    free(text);
}

static void texts_that_cannot_be_cut_stay_whole(void **state)
{
    (void)state;
    const size_t count = 3 * PIECE;
    char *text = malloc(count);
    size_t sizes[8];
    assert_non_null(text);
    assert_int_equal(cut_text(sizes, "", 0, true), 1);
    assert_int_equal(cut_text(sizes, "a\nb", 3, true), 1);
    memset(text, 'a', count);
    assert_int_equal(cut_text(sizes, text, count, true), 1);
    text[0] = '\n'; // nothing stands before it
    assert_int_equal(cut_text(sizes, text, count, true), 1);
    text[0] = 'a';
    text[1] = '\n';
    assert_int_equal(cut_text(sizes, text, count, true), 2);
    assert_int_equal(sizes[0], 2);
    // Less than a MiB is not looked at; what stands behind the first one is found later.
    assert_int_equal(cut_text(sizes, text, PIECE - 1, true), 1);
    assert_int_equal(cut_text(sizes, text, PIECE, true), 2);
    text[1] = 'a';
    text[PIECE + 10] = '\n';
    assert_int_equal(cut_text(sizes, text, count, true), 2);
    assert_int_equal(sizes[0], PIECE + 11);
    free(text);
}

// ---- lines of JSON

typedef struct lines {
    const char *bytes;
    const char *wanted; // documents, each with a | behind it
    const char *error;  // behind "FOLDER/lines.jsonl: "; NULL is none
} lines;

static void check_lines(const lines *l, const char *field)
{
    cy_document_reader *reader = NULL;
    cy_document_state state = CY_DOCUMENT_ENDS;
    cy_text text = {0};
    cy_status status = CY_OK;
    CY_CHECK_OK(cy_file_write(in_folder("lines.jsonl"), l->bytes, strlen(l->bytes)));
    const cy_document_options options = {.field = field, .classes = classes};
    CY_CHECK_OK(cy_document_open(&reader, in_folder("lines.jsonl"), &options));
    CY_CHECK_OK(cy_text_add_bytes(&text, "", 0));
    for (;;) {
        status = cy_document_next(reader, &text, &state);
        if (status != CY_OK || state == CY_DOCUMENT_NONE) break;
        assert_int_equal(state, CY_DOCUMENT_ENDS);
        CY_CHECK_OK(cy_text_add(&text, "|"));
    }
    assert_string_equal(text.bytes, l->wanted);
    assert_int_equal(status, l->error != NULL ? CY_ERR_CORRUPT : CY_OK);
    if (l->error != NULL) {
        char wanted[500];
        snprintf(wanted, sizeof(wanted), "%s/lines.jsonl: %s", folder, l->error);
        assert_string_equal(cy_error_text(), wanted);
    }
    cy_document_close(reader);
    cy_text_free(&text);
}

static void lines_of_json_are_documents(void **state)
{
    (void)state;
    static const lines cases[] = {
        {"", "", NULL},
        {"\n \t\r\n\n", "", NULL},
        {"{\"text\": \"a\"}", "a|", NULL},
        {"{\"text\": \"a\"}\n", "a|", NULL},
        {"{\"text\": \"a\"}\r\n \n{\"text\": \"\"}\n{\"text\": \"b\"} \t", "a||b|", NULL},
        {"{\"id\": 1, \"text\": \"a\\nb\\u00e9\"}\n", "a\nb\u00e9|", NULL},
        {"\xef\xbb\xbf{\"text\": \"a\"}\n", "a|", NULL},
        {"{\"text\": \"a\"}\n\n{\"body\": \"b\"}\n", "a|", "line 3: no text in the field \"text\""},
        {"{\"text\": 1}\n", "", "line 1: no text in the field \"text\""},
        {"[\"text\"]\n", "", "line 1: no text in the field \"text\""},
        {"{\"text\": \"a\"}\n{\"text\": b}\n", "a|", "line 2, column 10: invalid token near 'b'"},
        {"{\"text\": \"a\"} x\n", "", "line 1, column 15: end of file expected near 'x'"},
        {"\xef\xbb\xbf{\"text\": \"a\"} x\n", "",
            "line 1, column 15: end of file expected near 'x'"},
        {".\n", "", "line 1, column 1: '[' or '{' expected near '.'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_lines(&cases[i], NULL);
    // The mark may stand at the beginning only.
    const lines late = {"{\"text\": \"a\"}\n\xef\xbb\xbf{\"text\": \"b\"}\n", "a|",
        "line 2, column 1: '[' or '{' expected near '\xef\xbb\xbf'"};
    check_lines(&late, NULL);
    const lines two = {"\xef\xbb\n", "", "line 1, column 0: unable to decode byte 0xef"};
    check_lines(&two, NULL);
    const lines other = {"{\"text\": \"a\", \"body\": \"b\"}\n{\"text\": \"c\"}", "b|",
        "line 2: no text in the field \"body\""};
    check_lines(&other, "body");
    assert_string_equal(
        cy_error_hint(), "'cyclotron data prepare --field=NAME' takes another field for the text");
}

// Lines that end on either side of where a read ends.
static void lines_may_be_longer_than_a_read(void **state)
{
    (void)state;
    for (size_t length = PIECE / 4 - 14; length < PIECE / 4 - 9; length++) {
        char *bytes = malloc(length + 100);
        cy_document_reader *reader = NULL;
        cy_document_state found = CY_DOCUMENT_NONE;
        cy_text text = {0};
        assert_non_null(bytes);
        const int head = sprintf(bytes, "{\"text\": \"");
        memset(bytes + head, 'x', length);
        const int tail = sprintf(bytes + (size_t)head + length, "\"}\n{\"text\": \"end\"}\n");
        CY_CHECK_OK(
            cy_file_write(in_folder("long.jsonl"), bytes, (size_t)head + length + (size_t)tail));
        free(bytes);
        CY_CHECK_OK(open_document(&reader, "long.jsonl", true));
        CY_CHECK_OK(cy_document_next(reader, &text, &found));
        assert_int_equal(found, CY_DOCUMENT_ENDS);
        assert_int_equal(text.length, length);
        CY_CHECK_OK(cy_document_next(reader, &text, &found));
        assert_string_equal(text.bytes + length, "end");
        CY_CHECK_OK(cy_document_next(reader, &text, &found));
        assert_int_equal(found, CY_DOCUMENT_NONE);
        cy_document_close(reader);
        cy_text_free(&text);
    }
}

// ---- names and compressed files

static void other_kinds_of_files_are_named(void **state)
{
    (void)state;
    static const char *const others[] = {".parquet", ".arrow", ".zip", ".xz", ".bz2", ".7z",
        ".json", ".csv", ".bin", ".idx", ".tokens", ".npy", ".safetensors", ".pdf"};
    static const char *const packed[] = {"", ".gz", ".zst"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        for (size_t k = 0; k < 3; k++) {
            char name[40], wanted[500];
            cy_document_reader *reader;
            snprintf(name, sizeof(name), "a%s%s", others[i], packed[k]);
            assert_int_equal(open_document(&reader, name, true), CY_ERR_REQUEST);
            snprintf(wanted, sizeof(wanted), "%s/%s: %s files are not read as text", folder, name,
                others[i]);
            assert_string_equal(cy_error_text(), wanted);
            assert_string_equal(cy_error_hint(),
                "convert it to .txt or .jsonl, which may be compressed as .gz or .zst");
            assert_null(reader);
        }
    }
    const cy_document_options options = {0};
    cy_document_reader *reader = NULL;
    assert_int_equal(cy_document_open(&reader, ".json", &options), CY_ERR_REQUEST);
    assert_int_equal(cy_document_open(&reader, "json", &options), CY_ERR_IO);
    assert_string_equal(cy_error_text(), "open json: No such file or directory");
    assert_int_equal(cy_document_open(&reader, folder, &options), CY_ERR_REQUEST);
    char wanted[300];
    snprintf(wanted, sizeof(wanted), "%s is a folder, not a file", folder);
    assert_string_equal(cy_error_text(), wanted);
    assert_null(reader);
}

// The text of a file [count] whose one document is read, or the words of the failure.
static void check_packed(
    const char *name, const void *bytes, size_t count, const char *wanted, const char *error)
{
    cy_document_reader *reader;
    cy_document_state state = CY_DOCUMENT_NONE;
    cy_text text = {0};
    CY_CHECK_OK(cy_file_write(in_folder(name), bytes, count));
    CY_CHECK_OK(open_document(&reader, name, true));
    CY_CHECK_OK(cy_text_add_bytes(&text, "", 0));
    const cy_status status = cy_document_next(reader, &text, &state);
    if (error == NULL) {
        CY_CHECK_OK(status);
        assert_string_equal(text.bytes, wanted);
        assert_int_equal(state, CY_DOCUMENT_ENDS);
        assert_int_equal(cy_document_position(reader), count);
    } else {
        char words[500];
        snprintf(words, sizeof(words), "%s/%s: %s", folder, name, error);
        assert_int_equal(status, CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), words);
    }
    cy_document_close(reader);
    cy_text_free(&text);
}

static size_t gzip(unsigned char *out, size_t room, const char *text)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    unsigned char copy[100];
    memcpy(copy, text, strlen(text));
    stream.next_in = copy;
    stream.avail_in = (uInt)strlen(text);
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return room - stream.avail_out;
}

static void compressed_files_may_have_several_parts(void **state)
{
    (void)state;
    unsigned char bytes[400];
    size_t first = gzip(bytes, 100, "one\n");
    size_t count = first + gzip(bytes + first, 100, "two");
    check_packed("a.txt.gz", bytes, first, "one\n", NULL);
    check_packed("a.txt.gz", bytes, count, "one\ntwo", NULL);
    check_packed("a.txt.gz", bytes, 0, "", NULL);
    char wanted[80];
    snprintf(wanted, sizeof(wanted), "ends within compressed data, at byte %zu", count - 1);
    check_packed("a.txt.gz", bytes, count - 1, NULL, wanted);
    check_packed("a.txt.gz", "no gzip file", 12, NULL, "incorrect header check");
    first = ZSTD_compress(bytes, 200, "one\n", 4, 3);
    count = first + ZSTD_compress(bytes + first, 200, "two", 3, 3);
    check_packed("a.txt.zst", bytes, first, "one\n", NULL);
    check_packed("a.txt.zst", bytes, count, "one\ntwo", NULL);
    check_packed("a.txt.zst", bytes, 0, "", NULL);
    snprintf(wanted, sizeof(wanted), "ends within compressed data, at byte %zu", count - 1);
    check_packed("a.txt.zst", bytes, count - 1, NULL, wanted);
    check_packed("a.txt.zst", "no zstd file", 12, NULL, "Unknown frame descriptor");
}

int main(void)
{
    cy_test_folder(folder, sizeof(folder));
    classes = calloc(CY_UNICODE_POINTS + 1, 1);
    if (classes == NULL) return 1;
    cy_unicode_classify(classes);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_texts_are_cut_between_words),
        cmocka_unit_test(texts_that_cannot_be_cut_stay_whole),
        cmocka_unit_test(a_text_that_changes_is_named),
        cmocka_unit_test(lines_of_json_are_documents),
        cmocka_unit_test(lines_may_be_longer_than_a_read),
        cmocka_unit_test(other_kinds_of_files_are_named),
        cmocka_unit_test(compressed_files_may_have_several_parts),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(classes);
    return failed;
}
