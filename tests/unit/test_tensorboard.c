// TensorBoard's event files, read back by hand.

#include "base/file.h"
#include "observe/tensorboard.h"
#include "support/support.h"

#include <math.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

static void the_checksum_is_castagnolis(void **state)
{
    (void)state;
    assert_int_equal(cy_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(cy_crc32c("", 0), 0);
}

static uint32_t masked(const void *bytes, size_t count)
{
    const uint32_t crc = cy_crc32c(bytes, count);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Checks the frame of the record at `at` and returns its length in bytes, frame included.
static size_t check_frame(const char *at, size_t left)
{
    uint64_t length;
    uint32_t crc;
    assert_true(left > 16);
    memcpy(&length, at, 8);
    memcpy(&crc, at + 8, 4);
    assert_int_equal(crc, masked(at, 8));
    assert_true(length + 16 <= left);
    memcpy(&crc, at + 12 + length, 4);
    assert_int_equal(crc, masked(at + 12, (size_t)length));
    return (size_t)length + 16;
}

// The one file of a folder whose name begins with "events".
static void read_events(cy_text *bytes, const char *folder)
{
    glob_t found;
    char pattern[300];
    snprintf(pattern, sizeof(pattern), "%s/events.out.tfevents.*", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    CY_CHECK_OK(cy_file_read(bytes, found.gl_pathv[0], 4096));
    globfree(&found);
}

static void scalars_are_records(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    cy_event_file file;
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    CY_CHECK_OK(cy_event_file_open(&file, writer, folder));
    CY_CHECK_OK(cy_event_file_scalar(&file, 12.5, 300, "train/loss", 2.5f));
    cy_async_writer_finish(writer, 60);
    cy_text bytes = {0};
    read_events(&bytes, folder);
    cy_event_file_close(&file);
    cy_async_writer_close(writer);

    const size_t version = check_frame(bytes.bytes, bytes.length);
    const char *record = bytes.bytes + version;
    assert_int_equal(version + check_frame(record, bytes.length - version), bytes.length);
    static const unsigned char expected[] = {
        0x09, 0, 0, 0, 0, 0, 0, 0x29, 0x40,                         // 1: 12.5
        0x10, 0xac, 0x02,                                           // 2: 300
        0x2a, 19, 0x0a, 17,                                         // 5: 1: a value
        0x0a, 10, 't', 'r', 'a', 'i', 'n', '/', 'l', 'o', 's', 's', // 1: its tag
        0x15, 0, 0, 0x20, 0x40,                                     // 2: 2.5
    };
    assert_memory_equal(record + 12, expected, sizeof(expected));
    cy_text_free(&bytes);
}

static void files_do_not_overwrite_each_other(void **state)
{
    (void)state;
    char folder[256], missing[300], pattern[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(missing, sizeof(missing), "%s/missing", folder);
    cy_event_file first, second, third;
    cy_async_writer *writer = NULL;
    CY_CHECK_OK(cy_async_writer_open(&writer));
    CY_CHECK_OK(cy_event_file_open(&first, writer, folder));
    CY_CHECK_OK(cy_event_file_open(&second, writer, folder));
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/events.out.tfevents.*", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 2);
    globfree(&found);
    char tag[200];
    memset(tag, 'a', sizeof(tag));
    tag[199] = '\0';
    CY_CHECK_FAILS(
        cy_event_file_scalar(&first, 0, 1, tag, 1.0f), CY_ERR_REQUEST, "199 bytes is too long");
    CY_CHECK_FAILS(cy_event_file_open(&third, writer, missing), CY_ERR_IO, "/missing/events");
    cy_async_writer_finish(writer, 60);
    cy_event_file_close(&first);
    cy_event_file_close(&second);
    cy_async_writer_close(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checksum_is_castagnolis),
        cmocka_unit_test(scalars_are_records),
        cmocka_unit_test(files_do_not_overwrite_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
