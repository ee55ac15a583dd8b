// The safetensors reader takes what is whole and names what is not.
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/file_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A file of a header text and `data` bytes of data, in memory.
static size_t make_file(unsigned char *file, const char *header, size_t data)
{
    const size_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data; i++)
        file[8 + length + i] = (unsigned char)i;
    return 8 + length + data;
}

static cy_status parse(cy_safetensors *out, const char *header, size_t data)
{
    unsigned char file[4096];
    const size_t count = make_file(file, header, data);
    return cy_safetensors_parse(out, "f.safetensors", file, count, count);
}

static void reads_entries_in_order_of_offset(void **state)
{
    (void)state;
    cy_safetensors file;
    CY_CHECK_OK(parse(&file,
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[20,28]},"
        "\"e\":{\"dtype\":\"F64\",\"shape\":[0,4],\"data_offsets\":[28,28]}}  ",
        28));
    assert_int_equal(file.count, 4);
    assert_string_equal(file.entries[0].name, "a");
    assert_string_equal(file.entries[1].name, "b");
    assert_int_equal(file.entries[1].dtype, CY_BF16);
    assert_int_equal(file.entries[1].dimensions, 2);
    assert_int_equal(file.entries[1].dims[1], 3);
    assert_int_equal(file.entries[1].offset, file.data_first + 8);
    assert_int_equal(file.entries[1].bytes, 12);
    assert_string_equal(file.metadata, "{\"format\":\"pt\"}");
    assert_ptr_equal(cy_safetensors_find(&file, "s"), &file.entries[2]);
    assert_null(cy_safetensors_find(&file, "t"));
    cy_safetensors_close(&file);
}

// jansson's own printer goes on where it could not take the name of a field.
static void metadata_is_whole_or_memory_was_out(void **state)
{
    (void)state;
    cy_safetensors file;
    const char *const metadata = "{\"a_name_that_takes_some_room\":\"b\","
                                 "\"another_name_that_takes_more_room\":\"c\"}";
    char header[200];
    snprintf(header, sizeof(header), "{\"__metadata__\":%s}", metadata);
    for (int at = cy_test_json_allocations(header, strlen(header)) + 1;; at++) {
        cy_test_json_fails_at(at);
        const cy_status status = parse(&file, header, 0);
        const bool failed = cy_test_json_has_failed();
        cy_test_json_fails_at(0);
        if (status == CY_OK) {
            assert_string_equal(file.metadata, metadata);
            cy_safetensors_close(&file);
        }
        if (!failed) {
            CY_CHECK_OK(status);
            return;
        }
    }
}

static const struct {
    const char *header;
    size_t data;
    const char *words;
} faults[] = {
    {"[]", 0, "the header does not begin with {"},
    {"{\"a\":1}", 0, "tensor a is not an object"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", 8,
        "header, byte 53: '}' expected near end of file"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
        "tensor a: dtype is missing or not a text"},
    {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8,
        "tensor a: dtype F8_E4M3 is not one of F64, F32, F16, BF16, I64, I32, U8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8,
        "tensor a: shape is missing or not a list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
        "tensor a: dimension 0 of its shape is not a count"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,true],\"data_offsets\":[0,8]}}", 8,
        "tensor a: dimension 1 of its shape is not a count"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]}}", 8,
        "tensor a: dimension 0 of its shape is not a count"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8,
        "tensor a: 9 dimensions, at most 8 are read"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8,
        "tensor a: a shape of more than 2^63 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2305843009213693952],\"data_offsets\":[0,8]}}", 8,
        "tensor a: a shape of more than 2^63 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2305843009213693951],\"data_offsets\":[0,8]}}", 8,
        "tensor a: 8 bytes of data, its shape needs 9223372036854775804"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
        "tensor a: 8 bytes of data, its shape needs 12"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", 8,
        "tensor a ends at byte 12 of the data, the file holds 8"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
        "tensor a: data_offsets is not a list of two ascending counts"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8,
        "tensor a: data_offsets is not a list of two ascending counts"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8,
        "tensor a: data_offsets is not a list of two ascending counts"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
        "tensor a: data_offsets is not a list of two ascending counts"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.5]}}", 8,
        "tensor a: data_offsets is not a list of two ascending counts"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0.5,8]}}", 8,
        "tensor a: data_offsets is not a list of two ascending counts"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8,
        "tensor a: data_offsets is not a list of two ascending counts"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
        "tensor a: unknown key x"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
        12, "tensors a and b overlap by 4 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}",
        20, "4 bytes before tensor b belong to no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
        "4 bytes before tensor a belong to no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9,
        "1 bytes after the last tensor a"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
        16, "header, byte 57: duplicate object key near '\"a\"'"},
    {"{}", 3, "3 bytes after the last tensor"},
    {"{\"__metadata__\":{\"n\":1}}", 0, "__metadata__: n is not a text"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
};

static void names_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        cy_safetensors file = {0};
        const cy_status status = parse(&file, faults[i].header, faults[i].data);
        char wanted[200];
        snprintf(wanted, sizeof(wanted), "f.safetensors: %s", faults[i].words);
        assert_int_equal(status, CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), wanted);
        assert_null(file.entries);
    }
}

static void lying_lengths_are_named(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        size_t count; // of bytes in the file
        const char *text;
    } cases[] = {
        {UINT64_MAX, 64,
            "f: a header of 18446744073709551615 bytes, at most 104857600 are read: not a "
            "safetensors file"},
        {104857601, 64,
            "f: a header of 104857601 bytes, at most 104857600 are read: not a safetensors file"},
        {104857600, 64, "f: a header of 104857600 bytes in a file of 64 bytes"},
        {57, 64, "f: a header of 57 bytes in a file of 64 bytes"},
        {256, 64, "f: a header of 256 bytes in a file of 64 bytes"},
        {56, 64, "f: the header does not begin with {"},
        {0, 64, "f: the header does not begin with {"},
        {1, 8, "f: a header of 1 bytes in a file of 8 bytes"},
        {0, 8, "f: the header does not begin with {"},
        {0, 7, "f: 7 bytes cannot hold a safetensors header"},
        {0, 0, "f: 0 bytes cannot hold a safetensors header"},
    };
    char folder[256], path[300], wanted[500];
    cy_test_folder(folder, sizeof(folder));
    assert_true(snprintf(path, sizeof(path), "%s/f", folder) > 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_safetensors file;
        unsigned char bytes[64] = {0};
        for (int k = 0; k < 8; k++)
            bytes[k] = (unsigned char)(cases[i].length >> (8 * k));
        const size_t count = cases[i].count;
        assert_int_equal(cy_safetensors_parse(&file, "f", bytes, count, count), CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), cases[i].text);
        // And the same out of a file.
        CY_CHECK_OK(cy_file_write(path, bytes, count));
        snprintf(wanted, sizeof(wanted), "%s%s", path, cases[i].text + 1);
        assert_int_equal(cy_safetensors_open(&file, path), CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), wanted);
    }
    cy_safetensors file;
    assert_int_equal(cy_safetensors_open(&file, "/dev/zero"), CY_ERR_IO);
    assert_string_equal(cy_error_text(), "/dev/zero is a device, not a regular file");
    CY_CHECK_FAILS(
        cy_safetensors_open(&file, folder), CY_ERR_IO, "is a folder, not a regular file");
    snprintf(path, sizeof(path), "%s/none", folder);
    snprintf(wanted, sizeof(wanted), "open %s: No such file or directory", path);
    assert_int_equal(cy_safetensors_open(&file, path), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
}

// Tensors without elements lie between the others in any order; eight dimensions are the most.
static void empty_tensors_lie_anywhere(void **state)
{
    (void)state;
    cy_safetensors file;
    CY_CHECK_OK(parse(&file,
        "{\"c\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]},"
        "\"d\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[2,2]}}",
        2));
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(file.entries[i].name, names[i]);
    assert_int_equal(file.entries[2].dimensions, 8);
    assert_int_equal(file.entries[2].dims[7], 2);
    assert_int_equal(file.entries[2].bytes, 2);
    assert_int_equal(file.entries[3].bytes, 0);
    assert_int_equal(file.entries[3].offset, file.data_first + 2);
    assert_null(file.metadata);
    cy_safetensors_close(&file);
    CY_CHECK_OK(parse(&file, "{}", 0));
    assert_int_equal(file.count, 0);
    cy_safetensors_close(&file);
    assert_null(cy_safetensors_dtype_name(CY_FX64));
    assert_string_equal(cy_safetensors_dtype_name(CY_I64), "I64");
}

static void make_name(char *path, size_t bytes, const char *folder, const char *name)
{
    assert_true((size_t)snprintf(path, bytes, "%s/%s", folder, name) < bytes);
}

// Writes three tensors with awkward names and sizes.
static void write_sample(const char *path)
{
    char names[3][24] = {"a", "quote \" and \\", "d\xc3\xbcnn"};
    cy_safetensors_entry entries[3] = {
        {.name = names[0], .dtype = CY_F32, .dimensions = 2, .dims = {3, 5}},
        {.name = names[1], .dtype = CY_BF16, .dimensions = 1, .dims = {7}},
        {.name = names[2], .dtype = CY_U8, .dimensions = 1, .dims = {1}},
    };
    unsigned char data[60 + 14 + 1];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7);
    cy_text header = {0};
    cy_file_writer *writer = NULL;
    CY_CHECK_OK(cy_safetensors_header(&header, entries, 3, "{\"format\":\"pt\"}"));
    assert_int_equal(header.length % 64, 0);
    CY_CHECK_OK(cy_file_writer_open(&writer, path, header.length + sizeof(data), 0));
    CY_CHECK_OK(cy_file_writer_add(writer, header.bytes, header.length));
    CY_CHECK_OK(cy_file_writer_add(writer, data, 13));
    CY_CHECK_OK(cy_file_writer_add(writer, data + 13, sizeof(data) - 13));
    CY_CHECK_OK(cy_file_writer_close(writer, true));
    cy_text_free(&header);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    make_name(path, sizeof(path), folder, "a.safetensors");
    write_sample(path);
    cy_safetensors file;
    CY_CHECK_OK(cy_safetensors_open(&file, path));
    assert_int_equal(file.count, 3);
    assert_string_equal(file.entries[1].name, "quote \" and \\");
    assert_string_equal(file.entries[2].name, "d\xc3\xbcnn");
    assert_int_equal(file.entries[1].bytes, 14);
    cy_text whole = {0};
    CY_CHECK_OK(cy_file_read(&whole, path, 4096));
    const cy_safetensors_entry *last = &file.entries[2];
    assert_int_equal((unsigned char)whole.bytes[last->offset], (unsigned char)(74 * 7));
    cy_text_free(&whole);
    cy_safetensors_close(&file);
}

static void every_truncation_is_an_error(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    make_name(path, sizeof(path), folder, "a.safetensors");
    write_sample(path);
    cy_text whole = {0};
    CY_CHECK_OK(cy_file_read(&whole, path, 4096));
    make_name(path, sizeof(path), folder, "cut.safetensors");
    for (size_t count = 0; count < whole.length; count += 1 + count / 40) {
        cy_safetensors file;
        FILE *cut = fopen(path, "wb"); // without the fsync of cy_file_write
        assert_int_equal(fwrite(whole.bytes, 1, count, cut), count);
        fclose(cut);
        CY_CHECK_FAILS(cy_safetensors_open(&file, path), CY_ERR_CORRUPT, "cut.safetensors");
    }
    cy_text_free(&whole);
}

static void an_unfinished_file_is_an_error(void **state)
{
    (void)state;
    char folder[256], path[300], name[] = "a";
    cy_test_folder(folder, sizeof(folder));
    make_name(path, sizeof(path), folder, "a.safetensors");
    cy_safetensors_entry entry = {.name = name, .dtype = CY_F32, .dimensions = 1, .dims = {4}};
    cy_text header = {0};
    cy_file_writer *writer = NULL;
    CY_CHECK_OK(cy_safetensors_header(&header, &entry, 1, NULL));
    CY_CHECK_OK(cy_file_writer_open(&writer, path, header.length + 16, 0));
    CY_CHECK_OK(cy_file_writer_add(writer, header.bytes, header.length));
    CY_CHECK_OK(cy_file_writer_add(writer, "12345678", 8));
    CY_CHECK_FAILS(cy_file_writer_close(writer, true), CY_ERR_REQUEST, "bytes were written");
    cy_text_free(&header);
}

// Values from the reference implementation of XXH64, seed 0.
static void checksum_is_xxh64(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        uint64_t wanted;
    } cases[] = {
        {0, 0xef46db3751d8e999u},
        {1, 0xa96c7f0ce858bbb7u},
        {3, 0x56e6957632a487f9u},
        {4, 0xc60d15b1e3ff8f04u},
        {5, 0x808815858624dd4eu},
        {8, 0x3da5c7aa269683e0u},
        {13, 0x0382284cc19c4abbu},
        {31, 0x4a74f3a1a39ad4a1u},
        {32, 0x8d57d6a4671cc43du},
        {33, 0x62c9fd21ed857664u},
        {63, 0x5c320a0d2707057fu},
        {64, 0x7bbabbc45729d17eu},
        {100, 0xefa0ad2d3e70c151u},
        {1024, 0x149aa44972cdae00u},
    };
    unsigned char bytes[1024];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 31 + 7);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(cy_checksum(bytes, cases[i].count) == cases[i].wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_entries_in_order_of_offset),
        cmocka_unit_test(metadata_is_whole_or_memory_was_out),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(lying_lengths_are_named),
        cmocka_unit_test(empty_tensors_lie_anywhere),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_truncation_is_an_error),
        cmocka_unit_test(an_unfinished_file_is_an_error),
        cmocka_unit_test(checksum_is_xxh64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
