// Token files of other programs: what they hold is read, and what does not fit is refused.

#include "support/support.h"

#include "base/file.h"
#include "data/prepare.h"
#include "data/shard.h"
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

// The same with the whole text behind the path of one file.
static void check_says(const char *name, cy_status status, const char *words)
{
    const cy_source_options options = {0};
    cy_token_source *source = NULL;
    char wanted[700];
    snprintf(wanted, sizeof(wanted), "%s/%s: %s", folder, name, words);
    assert_int_equal(cy_source_open(&source, path, &options), status);
    assert_string_equal(cy_error_text(), wanted);
    assert_null(source);
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
    check_says(
        "wide.bin", CY_ERR_CORRUPT, "12 bytes of tokens, the header says 4 tokens of 4 bytes");
    wide[2] = 2;
    write_file("wide.bin", wide, sizeof(wide) - 1);
    check_says(
        "wide.bin", CY_ERR_CORRUPT, "11 bytes of tokens, the header says 2 tokens of 4 bytes");
    wide[1] = 9;
    write_file("wide.bin", wide, sizeof(wide));
    check_says("wide.bin", CY_ERR_CORRUPT, "version 9 of llm.c's format, this reads 7");
    // GPT-2's are 2 bytes wide; a header is no token, and what follows it may be none.
    uint32_t narrow[256 + 2] = {20240520, 1, 3, [256] = 50256u << 16 | 5, 9};
    write_file("narrow.bin", narrow, 1024 + 6);
    source = open_file("narrow.bin", "llm.c", 3);
    assert_int_equal(source->document_count, -1);
    assert_int_equal(source->text_bytes, -1);
    CY_CHECK_OK(cy_source_read(source, tokens, 0, 3));
    assert_int_equal(tokens[0], 5);
    assert_int_equal(tokens[1], 50256);
    assert_int_equal(tokens[2], 9);
    cy_source_close(source);
    narrow[2] = 0;
    write_file("narrow.bin", narrow, 1024);
    cy_source_close(open_file("narrow.bin", "llm.c", 0));
    // One byte less than a header makes it tokens of 2 bytes, which are not whole then.
    write_file("narrow.bin", narrow, 1023);
    check_says(
        "narrow.bin", CY_ERR_CORRUPT, "1023 bytes: neither llm.c's format nor tokens of 2 bytes");
    write_file("narrow.bin", narrow, 1022);
    cy_source_close(open_file("narrow.bin", "nanoGPT", 511));
    narrow[1] = 7;
    write_file("narrow.bin", narrow, 1024);
    check_says("narrow.bin", CY_ERR_CORRUPT, "version 7 of llm.c's format, this reads 1");
    const uint16_t plain[4] = {1, 2, 50256, 4};
    write_file("plain.bin", plain, sizeof(plain));
    source = open_file("plain.bin", "nanoGPT", 4);
    CY_CHECK_OK(cy_source_read(source, tokens, 1, 2));
    assert_int_equal(tokens[1], 50256);
    cy_source_close(source);
    write_file("plain.bin", plain, sizeof(plain) - 1);
    check_says(
        "plain.bin", CY_ERR_CORRUPT, "7 bytes: neither llm.c's format nor tokens of 2 bytes");
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
    check_says("m.idx", CY_ERR_UNSUPPORTED,
        "sequence 1 begins at byte 16, not where the one before it ends, 12");
    index[50] = 12;
    index[9] = 2;
    write_file("m.idx", index, sizeof(index));
    check_says("m.idx", CY_ERR_CORRUPT, "version 2 of the index, this reads 1");
    index[9] = 1;
    index[17] = 6; // fp32
    write_file("m.idx", index, sizeof(index));
    check_says("m.idx", CY_ERR_CORRUPT, "tokens of kind 6");
    index[17] = 4;
    write_file("m.idx", index, sizeof(index));
    write_file("m.bin", tokens, sizeof(tokens) - 4);
    check_says("m.idx", CY_ERR_CORRUPT, "the sequences have 20 bytes, the .bin has 16");
    tokens[2] = -3;
    write_file("m.bin", tokens, sizeof(tokens));
    int32_t found[5];
    cy_token_source *source = open_file("m.bin", "Megatron", 5);
    CY_CHECK_FAILS(cy_source_read(source, found, 0, 5), CY_ERR_CORRUPT, "token 2 is");
    cy_source_close(source);
}

// Each kind of number, its largest and, where it has a sign, a negative one.
static void every_kind_of_token_is_read(void **state)
{
    (void)state;
    static const struct {
        int kind;
        size_t bytes; // 0: no kind of token
        uint64_t tokens[3];
        int64_t ids[3]; // -1 is none
    } cases[] = {
        {0, 0, {0}, {0}},
        {1, 1, {7, 127, 255}, {7, 127, 255}},
        {2, 1, {7, 127, 128}, {7, 127, -1}},
        {3, 2, {7, 32767, 32768}, {7, 32767, -1}},
        {4, 4, {7, 0x7ffffffe, 0x80000000}, {7, 0x7ffffffe, -1}},
        {5, 8, {7, 0x7ffffffe, UINT64_MAX}, {7, 0x7ffffffe, -1}},
        {5, 8, {7, 0x80000000, 0x100000007}, {7, -1, -1}},
        {6, 0, {0}, {0}},
        {7, 0, {0}, {0}},
        {8, 2, {7, 32768, 65535}, {7, 32768, 65535}},
        {9, 0, {0}, {0}},
        {255, 0, {0}, {0}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t bytes = cases[i].bytes;
        const uint64_t version = 1, counts[2] = {1, 0}, place = 0;
        const uint32_t length = 3;
        unsigned char index[46], tokens[24];
        for (size_t k = 0; k < 3; k++)
            memcpy(tokens + k * bytes, &cases[i].tokens[k], bytes);
        memcpy(index, "MMIDIDX\0\0", 9);
        memcpy(index + 9, &version, 8);
        index[17] = (unsigned char)cases[i].kind;
        memcpy(index + 18, counts, 16);
        memcpy(index + 34, &length, 4);
        memcpy(index + 38, &place, 8);
        write_file("k.idx", index, sizeof(index));
        write_file("k.bin", tokens, 3 * bytes);
        if (bytes == 0) {
            char words[40];
            snprintf(words, sizeof(words), "tokens of kind %d", cases[i].kind);
            check_says("k.idx", CY_ERR_CORRUPT, words);
            continue;
        }
        cy_token_source *source = open_file("k.bin", "Megatron", 3);
        assert_int_equal(source->document_count, 0);
        for (int64_t k = 0; k < 3; k++) {
            int32_t found = -2;
            if (cases[i].ids[k] >= 0) {
                CY_CHECK_OK(cy_source_read(source, &found, k, 1));
                assert_int_equal(found, cases[i].ids[k]);
                continue;
            }
            char words[700];
            snprintf(words, sizeof(words),
                "%s/k.bin: token %d is 4294967295, the vocabulary has 2147483647", folder, (int)k);
            assert_int_equal(cy_source_read(source, &found, k, 1), CY_ERR_CORRUPT);
            assert_string_equal(cy_error_text(), words);
        }
        cy_source_close(source);
    }
}

static void indexes_are_read_to_the_byte(void **state)
{
    (void)state;
    unsigned char index[82 + 8] = {0};
    const int32_t tokens[5] = {10, 20, 30, 40, 50};
    write_file("m.bin", tokens, sizeof(tokens));
    make_index(index);
    write_file("m.idx", index, 82 + 8);
    check_says("m.idx", CY_ERR_CORRUPT, "90 bytes do not hold 2 sequences and 3 document bounds");
    write_file("m.idx", index, 82 + 1);
    check_says("m.idx", CY_ERR_CORRUPT, "83 bytes do not hold 2 sequences and 3 document bounds");
    write_file("m.idx", index, 82 - 8);
    check_says("m.idx", CY_ERR_CORRUPT, "74 bytes do not hold 2 sequences and 3 document bounds");
    write_file("m.idx", index, 33);
    check_says("m.idx", CY_ERR_CORRUPT, "not Megatron's index");
    index[8] = 1;
    write_file("m.idx", index, 82);
    check_says("m.idx", CY_ERR_CORRUPT, "not Megatron's index");
    make_index(index);
    index[37] = 0x80; // a length that is negative to Megatron
    write_file("m.idx", index, 82);
    check_says(
        "m.idx", CY_ERR_CORRUPT, "sequence 0 has 2147483651 tokens, at most 2147483647 can be");
    make_index(index);
    write_file("m.idx", index, 82);
    write_file("m.bin", tokens, 16);
    check_says("m.idx", CY_ERR_CORRUPT, "the sequences have 20 bytes, the .bin has 16");
    // Nothing at all is a corpus of nothing.
    memset(index + 18, 0, 16);
    write_file("m.idx", index, 34);
    write_file("m.bin", tokens, 0);
    cy_token_source *source = open_file("m.bin", "Megatron", 0);
    assert_int_equal(source->document_count, 0);
    cy_source_close(source);
}

// Files that do not say how large their vocabulary is are held against the reader's.
static void the_vocabulary_of_the_reader_counts(void **state)
{
    (void)state;
    const uint16_t plain[3] = {1, 99, 100};
    write_file("v.bin", plain, sizeof(plain));
    for (int32_t vocab = 100; vocab <= 101; vocab++) {
        const cy_source_options options = {.vocab_size = vocab};
        cy_token_source *source = NULL;
        int32_t tokens[3];
        char words[700];
        CY_CHECK_OK(cy_source_open(&source, path, &options));
        assert_int_equal(source->vocab_size, vocab);
        CY_CHECK_OK(cy_source_read(source, tokens, 0, 2));
        const cy_status status = cy_source_read(source, tokens, 1, 2);
        assert_int_equal(status, vocab == 100 ? CY_ERR_CORRUPT : CY_OK);
        snprintf(words, sizeof(words), "%s: token 2 is 100, the vocabulary has 100", path);
        if (vocab == 100) assert_string_equal(cy_error_text(), words);
        cy_source_close(source);
    }
}

static void check_inspected(const char *name, int json, const char *wanted)
{
    cy_text out = {0};
    char text[1500];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(text, sizeof(text), json ? "{\"path\": \"%s\"%s" : "%s%s", path, wanted);
    CY_CHECK_OK(cy_data_inspect(&out, path, json));
    assert_string_equal(out.bytes, text);
    cy_text_free(&out);
}

static void what_is_inspected_is_told_in_full(void **state)
{
    (void)state;
    cy_text out = {0};
    char words[700];
    uint16_t plain[5000] = {1, 2, 3};
    write_file("i.bin", plain, sizeof(plain));
    check_inspected("i.bin", 0, ": nanoGPT, whole\n  tokens      5000\n");
    check_inspected("i.bin", 1,
        ", \"kind\": \"nanoGPT\", \"tokens\": 5000, \"documents\": -1, \"text_bytes\": -1, "
        "\"vocab_size\": 0}\n");
    write_file("none.bin", plain, 0);
    check_inspected("none.bin", 0, ": nanoGPT, whole\n  tokens      0\n");
    // A folder of two shards, and one of one that holds nothing.
    for (int shards = 2; shards > 0; shards--) {
        const char *name = shards == 2 ? "shards" : "single";
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        CY_CHECK_OK(cy_folder_make(path));
        for (int i = 0; i < shards; i++) {
            const cy_shard_header header = {
                .token_bytes = 2, .vocab_size = 300, .tokenizer_hash = 0xabc, .end_token = 7};
            const int32_t tokens[3] = {1, 299, 7};
            cy_shard_writer writer;
            snprintf(path, sizeof(path), "%s/%s/shard-%05d.tokens", folder, name, i);
            CY_CHECK_OK(cy_shard_create(&writer, path, &header));
            if (shards == 2) CY_CHECK_OK(cy_shard_add(&writer, tokens, 3, 5 + (uint64_t)i));
            writer.header.document_count = shards == 2;
            CY_CHECK_OK(cy_shard_finish(&writer));
        }
    }
    check_inspected("shards", 0,
        ": shards, whole\n  tokens      6\n  documents   2\n  text        11 bytes, 1.83 a token\n"
        "  vocabulary  300\n  shards      2, 2 bytes a token\n  end token   7\n"
        "  tokenizer   hash 0000000000000abc\n");
    check_inspected("shards", 1,
        ", \"kind\": \"shards\", \"tokens\": 6, \"documents\": 2, \"text_bytes\": 11, "
        "\"vocab_size\": 300, \"shards\": 2, \"token_bytes\": 2, \"end_token\": 7, "
        "\"tokenizer_hash\": \"0000000000000abc\"}\n");
    check_inspected("single", 0,
        ": shards, whole\n  tokens      0\n  documents   0\n  vocabulary  300\n"
        "  shards      1, 2 bytes a token\n  end token   7\n"
        "  tokenizer   hash 0000000000000abc\n");
    // Damage in the second shard, and in the last token of a file.
    snprintf(path, sizeof(path), "%s/shards/shard-00001.tokens", folder);
    cy_test_flip(path, 64, 1);
    snprintf(words, sizeof(words), "%s: the tokens have check", path);
    snprintf(path, sizeof(path), "%s/shards", folder);
    CY_CHECK_FAILS(cy_data_inspect(&out, path, 0), CY_ERR_CORRUPT, words);
    static uint32_t wide[256 + 5000] = {20240801, 7, 5000};
    for (size_t last = 4095; last < 5000; last += 904) {
        wide[256 + last] = 0x80000000;
        write_file("bad.bin", wide, sizeof(wide));
        snprintf(words, sizeof(words), "%s: token %zu is 4294967295, the vocabulary has 2147483647",
            path, last);
        assert_int_equal(cy_data_inspect(&out, path, 0), CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), words);
        wide[256 + last] = 0;
    }
    write_file("text.txt", "a", 1);
    snprintf(words, sizeof(words),
        "%s is neither a folder of token shards, a shard nor a .bin file", path);
    assert_int_equal(cy_data_inspect(&out, path, 0), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(), words);
    snprintf(path, sizeof(path), "%s/absent", folder);
    snprintf(words, sizeof(words), "dataset %s: no such file", path);
    assert_int_equal(cy_data_inspect(&out, path, 0), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(), words);
    assert_null(out.bytes);
}

int main(void)
{
    cy_test_folder(folder, sizeof(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llmc_and_nanogpt_files_are_read),
        cmocka_unit_test(megatron_files_are_read),
        cmocka_unit_test(every_kind_of_token_is_read),
        cmocka_unit_test(indexes_are_read_to_the_byte),
        cmocka_unit_test(the_vocabulary_of_the_reader_counts),
        cmocka_unit_test(what_is_inspected_is_told_in_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
