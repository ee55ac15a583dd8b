// Token files of other programs: what they hold is read, and what does not fit is refused.

#include "support/support.h"

#include "base/file.h"
#include "data/source.h"

#include <stdio.h>
#include <string.h>

static char folder[256];
static char path[512];

static void write_file(const char *name, const void *bytes, size_t count)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    CY_CHECK_OK(cy_file_write(path, bytes, count));
}

static cy_token_source *open_file(const char *name, const char *kind, int64_t tokens)
{
    const cy_source_options options = {0};
    cy_token_source *source = NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    CY_CHECK_OK(cy_source_open(&source, path, &options));
    assert_string_equal(source->ops->name, kind);
    assert_int_equal(source->token_count, tokens);
    return source;
}

static void check_fails(cy_status status, const char *words)
{
    const cy_source_options options = {0};
    cy_token_source *source = NULL;
    CY_CHECK_FAILS(cy_source_open(&source, path, &options), status, words);
}

static void llmc_and_nanogpt_files_are_read(void **state)
{
    (void)state;
    uint32_t wide[256 + 3] = {20240801, 7, 3, [256] = 5, 128000, 7};
    write_file("wide.bin", wide, sizeof(wide));
    int32_t tokens[3];
    cy_token_source *source = open_file("wide.bin", "llm.c", 3);
    CY_CHECK_OK(cy_source_read(source, tokens, 1, 2));
    assert_int_equal(tokens[0], 128000);
    assert_int_equal(tokens[1], 7);
    cy_source_close(source);
    wide[2] = 4;
    write_file("wide.bin", wide, sizeof(wide));
    check_fails(CY_ERR_CORRUPT, "the header says 4 tokens");
    wide[1] = 9;
    write_file("wide.bin", wide, sizeof(wide));
    check_fails(CY_ERR_CORRUPT, "version 9");
    const uint16_t plain[4] = {1, 2, 50256, 4};
    write_file("plain.bin", plain, sizeof(plain));
    source = open_file("plain.bin", "nanoGPT", 4);
    CY_CHECK_OK(cy_source_read(source, tokens, 1, 2));
    assert_int_equal(tokens[1], 50256);
    cy_source_close(source);
    write_file("plain.bin", plain, sizeof(plain) - 1);
    check_fails(CY_ERR_CORRUPT, "7 bytes");
}

// Two sequences of int32, 3 and 2 tokens, in two documents.
static size_t make_index(unsigned char *bytes)
{
    const uint64_t version = 1, counts[2] = {2, 3}, places[2] = {0, 12}, bounds[3] = {0, 1, 2};
    const uint32_t lengths[2] = {3, 2};
    memcpy(bytes, "MMIDIDX\0\0", 9);
    memcpy(bytes + 9, &version, 8);
    bytes[17] = 4;
    memcpy(bytes + 18, counts, 16);
    memcpy(bytes + 34, lengths, 8);
    memcpy(bytes + 42, places, 16);
    memcpy(bytes + 58, bounds, 24);
    return 82;
}

static void megatron_files_are_read(void **state)
{
    (void)state;
    unsigned char index[82];
    int32_t tokens[5] = {10, 20, 30, 40, 50};
    assert_int_equal(make_index(index), sizeof(index));
    write_file("m.bin", tokens, sizeof(tokens));
    write_file("m.idx", index, sizeof(index));
    const char *const names[2] = {"m.bin", "m.idx"};
    for (int i = 0; i < 2; i++) {
        int32_t found[5];
        cy_token_source *source = open_file(names[i], "Megatron", 5);
        assert_int_equal(source->document_count, 2);
        CY_CHECK_OK(cy_source_read(source, found, 0, 5));
        assert_memory_equal(found, tokens, sizeof(tokens));
        cy_source_close(source);
    }
    for (size_t cut = 0; cut < sizeof(index); cut++) {
        write_file("m.idx", index, cut);
        check_fails(CY_ERR_CORRUPT, "m.idx: ");
    }
    // Three sequences in 28 bytes, and as many bounds as 28 - 36 wrapped round would be.
    const uint64_t wrapped[2] = {3, UINT64_MAX / 8};
    unsigned char large[82];
    memcpy(large, index, sizeof(large));
    memcpy(large + 18, wrapped, 16);
    write_file("m.idx", large, 34 + 28);
    check_fails(CY_ERR_CORRUPT, "do not hold 3 sequences");
    index[50] = 16; // the second sequence begins elsewhere
    write_file("m.idx", index, sizeof(index));
    check_fails(CY_ERR_UNSUPPORTED, "sequence 1 begins at byte 16");
    index[50] = 12;
    index[9] = 2;
    write_file("m.idx", index, sizeof(index));
    check_fails(CY_ERR_CORRUPT, "version 2 of the index, this reads 1");
    index[9] = 1;
    index[17] = 6; // fp32
    write_file("m.idx", index, sizeof(index));
    check_fails(CY_ERR_CORRUPT, "tokens of kind 6");
    index[17] = 4;
    write_file("m.idx", index, sizeof(index));
    write_file("m.bin", tokens, sizeof(tokens) - 4);
    check_fails(CY_ERR_CORRUPT, "the sequences have 20 bytes, the .bin has 16");
    tokens[2] = -3;
    write_file("m.bin", tokens, sizeof(tokens));
    int32_t found[5];
    cy_token_source *source = open_file("m.bin", "Megatron", 5);
    CY_CHECK_FAILS(cy_source_read(source, found, 0, 5), CY_ERR_CORRUPT, "token 2 is");
    cy_source_close(source);
}

int main(void)
{
    cy_test_folder(folder, sizeof(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llmc_and_nanogpt_files_are_read),
        cmocka_unit_test(megatron_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
