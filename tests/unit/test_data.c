#define _GNU_SOURCE
// From text to microbatches: shards, preparation, the order of samples, the loader.

#include "support/support.h"

#include "base/file.h"
#include "base/random.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/shard.h"

#include <dirent.h>
#include <stdbool.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

static const char *in_folder(const char *name)
{
    static char path[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

// A shard whose token i is i modulo the vocabulary.
static void write_counting_shard(const char *path, int64_t count, uint32_t vocab, uint32_t width)
{
    const cy_shard_header header = {
        .token_bytes = width, .vocab_size = vocab, .tokenizer_hash = 0, .end_token = 0};
    cy_shard_writer writer;
    CY_CHECK_OK(cy_shard_create(&writer, path, &header));
    for (int64_t i = 0; i < count; i++) {
        const int32_t token = (int32_t)(i % vocab);
        CY_CHECK_OK(cy_shard_add(&writer, &token, 1, 1));
    }
    CY_CHECK_OK(cy_shard_finish(&writer));
}

static void make_counting_folder(const char *name, int64_t first, int64_t second)
{
    char path[512];
    CY_CHECK_OK(cy_folder_make(in_folder(name)));
    snprintf(path, sizeof(path), "%s/%s/shard-00000.tokens", folder, name);
    write_counting_shard(path, first, 60000, 2);
    if (second == 0) return;
    snprintf(path, sizeof(path), "%s/%s/shard-00001.tokens", folder, name);
    write_counting_shard(path, second, 60000, 4);
}

static void write_file(const char *name, const void *bytes, size_t count)
{
    CY_CHECK_OK(cy_file_write(in_folder(name), bytes, count));
}

// Fails unless the call failed so, with these words and no others. A %s is the folder of the test.
static void check_text(cy_status status, cy_status wanted, const char *words)
{
    char text[600];
    const char *mark = strstr(words, "%s");
    const int head = mark != NULL ? (int)(mark - words) : (int)strlen(words);
    snprintf(text, sizeof(text), "%.*s%s%s", head, words, mark != NULL ? folder : "",
        mark != NULL ? mark + 2 : "");
    assert_int_equal(status, wanted);
    assert_string_equal(cy_error_text(), text);
}

static void shards_hold_what_was_written(void **state)
{
    (void)state;
    for (uint32_t width = 2; width <= 4; width += 2) {
        const char *path = in_folder(width == 2 ? "two" : "four");
        write_counting_shard(path, 1000, 300, width);
        cy_shard shard;
        CY_CHECK_OK(cy_shard_open(&shard, path));
        CY_CHECK_OK(cy_shard_verify(&shard));
        int32_t tokens[7];
        CY_CHECK_OK(cy_shard_read(&shard, tokens, 298, 7));
        const int32_t wanted[7] = {298, 299, 0, 1, 2, 3, 4};
        assert_memory_equal(tokens, wanted, sizeof(wanted));
        cy_shard_close(&shard);
    }
}

// Cut at every length, and with each byte of the header changed: never opened as if whole.
static void damaged_shards_are_refused(void **state)
{
    (void)state;
    write_counting_shard(in_folder("whole"), 100, 300, 2);
    cy_text whole = {0};
    CY_CHECK_OK(cy_file_read(&whole, in_folder("whole"), 1 << 20));
    cy_shard shard;
    for (size_t length = 0; length < whole.length; length++) {
        write_file("cut", whole.bytes, length);
        const cy_status status = cy_shard_open(&shard, in_folder("cut"));
        assert_int_equal(status, CY_ERR_CORRUPT);
        assert_non_null(strstr(cy_error_text(), "/cut: "));
    }
    whole.bytes[70] ^= 1;
    write_file("flipped", whole.bytes, whole.length);
    CY_CHECK_OK(cy_shard_open(&shard, in_folder("flipped")));
    CY_CHECK_FAILS(cy_shard_verify(&shard), CY_ERR_CORRUPT, "check");
    cy_shard_close(&shard);
    whole.bytes[0] ^= 1;
    write_file("foreign", whole.bytes, whole.length);
    CY_CHECK_FAILS(
        cy_shard_open(&shard, in_folder("foreign")), CY_ERR_CORRUPT, "not a token shard");
    cy_text_free(&whole);
}

static void headers_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at; // of a number of 4 bytes in the header
        uint32_t number;
        const char *text; // behind the path; NULL: it is opened
    } cases[] = {
        {offsetof(cy_shard_header, version), 2, "version 2 of the format, this reads 1"},
        {offsetof(cy_shard_header, version), 0, "version 0 of the format, this reads 1"},
        {offsetof(cy_shard_header, token_bytes), 3, "tokens of 3 bytes"},
        {offsetof(cy_shard_header, token_bytes), 0, "tokens of 0 bytes"},
        {offsetof(cy_shard_header, token_bytes), 4,
            "202 bytes of tokens, the header says 101 tokens of 4 bytes"},
        {offsetof(cy_shard_header, token_count), 100,
            "202 bytes of tokens, the header says 100 tokens of 2 bytes"},
        {offsetof(cy_shard_header, token_count), 102,
            "202 bytes of tokens, the header says 102 tokens of 2 bytes"},
        {offsetof(cy_shard_header, vocab_size), 0, "a vocabulary of 0 in tokens of 2 bytes"},
        {offsetof(cy_shard_header, vocab_size), 65537,
            "a vocabulary of 65537 in tokens of 2 bytes"},
        {offsetof(cy_shard_header, vocab_size), 65536, NULL},
        {offsetof(cy_shard_header, vocab_size), 1, NULL},
    };
    write_counting_shard(in_folder("good"), 101, 300, 2);
    cy_text whole = {0};
    CY_CHECK_OK(cy_file_read(&whole, in_folder("good"), 1 << 20));
    assert_int_equal(whole.length, 64 + 202);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char words[200];
        uint32_t kept;
        cy_shard shard;
        memcpy(&kept, whole.bytes + cases[i].at, 4);
        memcpy(whole.bytes + cases[i].at, &cases[i].number, 4);
        write_file("wrong", whole.bytes, whole.length);
        memcpy(whole.bytes + cases[i].at, &kept, 4);
        if (cases[i].text == NULL) {
            CY_CHECK_OK(cy_shard_open(&shard, in_folder("wrong")));
            cy_shard_close(&shard);
            continue;
        }
        snprintf(words, sizeof(words), "%%s/wrong: %s", cases[i].text);
        check_text(cy_shard_open(&shard, in_folder("wrong")), CY_ERR_CORRUPT, words);
    }
    cy_shard shard;
    write_file("cut", whole.bytes, 63);
    check_text(cy_shard_open(&shard, in_folder("cut")), CY_ERR_CORRUPT,
        "%s/cut: 63 bytes cannot hold a header");
    write_file("cut", whole.bytes, 265);
    check_text(cy_shard_open(&shard, in_folder("cut")), CY_ERR_CORRUPT,
        "%s/cut: 201 bytes of tokens, the header says 101 tokens of 2 bytes");
    cy_text_free(&whole);
    // Four bytes hold more, but no more than an id.
    write_counting_shard(in_folder("most"), 10, INT32_MAX, 4);
    CY_CHECK_OK(cy_shard_open(&shard, in_folder("most")));
    cy_shard_close(&shard);
    write_counting_shard(in_folder("above"), 10, (uint32_t)INT32_MAX + 1, 4);
    check_text(cy_shard_open(&shard, in_folder("above")), CY_ERR_CORRUPT,
        "%s/above: a vocabulary of 2147483648 in tokens of 4 bytes");
    write_counting_shard(in_folder("none"), 0, 10, 2);
    CY_CHECK_OK(cy_shard_open(&shard, in_folder("none")));
    CY_CHECK_OK(cy_shard_verify(&shard));
    cy_shard_close(&shard);
}

static void writers_refuse_what_is_no_token(void **state)
{
    (void)state;
    const cy_shard_header header = {.token_bytes = 2, .vocab_size = 300};
    cy_shard_writer writer;
    CY_CHECK_OK(cy_shard_create(&writer, in_folder("writer"), &header));
    const int32_t tokens[3] = {299, 300, -1};
    CY_CHECK_OK(cy_shard_add(&writer, tokens, 1, 5));
    check_text(cy_shard_add(&writer, tokens, 2, 5), CY_ERR_REQUEST,
        "%s/writer: token 300 of a vocabulary of 300");
    check_text(cy_shard_add(&writer, tokens + 2, 1, 5), CY_ERR_REQUEST,
        "%s/writer: token -1 of a vocabulary of 300");
    cy_shard_abandon(&writer);
    assert_false(cy_path_exists(in_folder("writer")));
    write_file("writer", "x", 1);
    check_text(cy_shard_create(&writer, in_folder("writer"), &header), CY_ERR_IO,
        "create %s/writer: File exists");
    // A vocabulary that is smaller than what was written, under a check that fits.
    write_counting_shard(in_folder("small"), 100, 300, 2);
    cy_text whole = {0};
    CY_CHECK_OK(cy_file_read(&whole, in_folder("small"), 1 << 20));
    const uint32_t vocab[2] = {99, 100};
    cy_shard shard;
    for (int i = 0; i < 2; i++) {
        memcpy(whole.bytes + offsetof(cy_shard_header, vocab_size), &vocab[i], 4);
        write_file("small", whole.bytes, whole.length);
        CY_CHECK_OK(cy_shard_open(&shard, in_folder("small")));
        if (i == 1) CY_CHECK_OK(cy_shard_verify(&shard));
        if (i == 0) {
            check_text(cy_shard_verify(&shard), CY_ERR_CORRUPT,
                "%s/small: token 99 is 99, the vocabulary has 99");
        }
        cy_shard_close(&shard);
    }
    cy_text_free(&whole);
}

// The check is kept in files: it must be this one for ever. By a script of the same definition.
static void the_check_of_a_shard_is_what_it_was(void **state)
{
    (void)state;
    unsigned char bytes[256];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 31 + 7);
    assert_true(cy_shard_check(0, bytes, 0) == 0);
    assert_true(cy_shard_check(0, bytes, 1) == 0);
    assert_true(cy_shard_check(0, bytes, 2) == UINT64_C(0x2dcd56b066d44b20));
    assert_true(cy_shard_check(0, bytes, 256) == UINT64_C(0x301908f3ef1adb6b));
    assert_true(cy_shard_check(cy_shard_check(0, bytes, 100), bytes + 100, 156) ==
        UINT64_C(0x301908f3ef1adb6b));
}

// More tokens than the writer holds back at once, in calls of a size that does not divide that.
static void writers_flush_at_any_place(void **state)
{
    (void)state;
    enum { COUNT = (1 << 19) + 7 };
    int32_t *tokens = malloc(COUNT * sizeof(int32_t));
    assert_non_null(tokens);
    for (int i = 0; i < COUNT; i++)
        tokens[i] = i % 65521;
    for (uint32_t width = 2; width <= 4; width += 2) {
        const cy_shard_header header = {.token_bytes = width, .vocab_size = 65536};
        const char *path = in_folder(width == 2 ? "flush2" : "flush4");
        cy_shard_writer writer;
        CY_CHECK_OK(cy_shard_create(&writer, path, &header));
        for (int at = 0; at < COUNT; at += 1000) {
            const size_t some = COUNT - at < 1000 ? (size_t)(COUNT - at) : 1000;
            CY_CHECK_OK(cy_shard_add(&writer, tokens + at, some, some));
        }
        CY_CHECK_OK(cy_shard_finish(&writer));
        cy_shard shard;
        CY_CHECK_OK(cy_shard_open(&shard, path));
        CY_CHECK_OK(cy_shard_verify(&shard));
        assert_int_equal(shard.header.token_count, COUNT);
        assert_int_equal(shard.header.text_bytes, COUNT);
        int32_t *back = malloc(COUNT * sizeof(int32_t));
        CY_CHECK_OK(cy_shard_read(&shard, back, 0, COUNT));
        assert_memory_equal(back, tokens, COUNT * sizeof(int32_t));
        free(back);
        cy_shard_close(&shard);
    }
    free(tokens);
}

static void tokens_beyond_the_vocabulary_are_refused(void **state)
{
    (void)state;
    make_counting_folder("beyond", 100, 0);
    cy_text whole = {0};
    const char *path = in_folder("beyond/shard-00000.tokens");
    CY_CHECK_OK(cy_file_read(&whole, path, 1 << 20));
    whole.bytes[sizeof(cy_shard_header) + 83] = (char)0xff;
    CY_CHECK_OK(cy_file_write(path, whole.bytes, whole.length));
    cy_text_free(&whole);
    cy_token_source *source = NULL;
    const cy_source_options options = {0};
    CY_CHECK_OK(cy_source_open(&source, in_folder("beyond"), &options));
    int32_t tokens[50];
    CY_CHECK_OK(cy_source_read(source, tokens, 0, 41));
    check_text(cy_source_read(source, tokens, 0, 50), CY_ERR_CORRUPT,
        "%s/beyond: token 41 is 65321, the vocabulary has 60000");
    check_text(cy_source_read(source, tokens, 40, 2), CY_ERR_CORRUPT,
        "%s/beyond: token 41 is 65321, the vocabulary has 60000");
    CY_CHECK_OK(cy_source_read(source, tokens, 42, 50));
    cy_source_close(source);
}

static void sources_read_across_shards(void **state)
{
    (void)state;
    make_counting_folder("across", 10, 10);
    cy_token_source *source = NULL;
    const cy_source_options options = {0};
    CY_CHECK_OK(cy_source_open(&source, in_folder("across"), &options));
    assert_int_equal(source->token_count, 20);
    int32_t tokens[12];
    CY_CHECK_OK(cy_source_read(source, tokens, 6, 12));
    const int32_t wanted[12] = {6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7};
    assert_memory_equal(tokens, wanted, sizeof(wanted));
    cy_source_close(source);
}

// How many files whose path holds `part` this process has open.
static int open_files(const char *part)
{
    int count = 0;
    DIR *open_ones = opendir("/proc/self/fd");
    assert_non_null(open_ones);
    for (const struct dirent *entry; (entry = readdir(open_ones)) != NULL;) {
        char link[300], target[512] = "";
        snprintf(link, sizeof(link), "/proc/self/fd/%s", entry->d_name);
        if (readlink(link, target, sizeof(target) - 1) < 0) continue;
        count += strstr(target, part) != NULL ? 1 : 0;
    }
    closedir(open_ones);
    return count;
}

// Every range of three shards, one of them of one token.
static void sources_read_any_range(void **state)
{
    (void)state;
    make_counting_folder("three", 4, 1);
    write_counting_shard(in_folder("three/shard-00002.tokens"), 3, 60000, 2);
    const int32_t all[8] = {0, 1, 2, 3, 0, 0, 1, 2};
    cy_token_source *source = NULL;
    const cy_source_options options = {0};
    CY_CHECK_OK(cy_source_open(&source, in_folder("three"), &options));
    assert_int_equal(source->token_count, 8);
    assert_int_equal(open_files("/three/"), 3);
    assert_string_equal(source->ops->name, "shards");
    for (int64_t first = 0; first <= 8; first++) {
        for (int64_t count = 0; count <= 8 - first; count++) {
            int32_t tokens[9] = {-7, -7, -7, -7, -7, -7, -7, -7, -7};
            CY_CHECK_OK(cy_source_read(source, tokens, first, count));
            assert_memory_equal(tokens, all + first, (size_t)count * sizeof(int32_t));
            assert_int_equal(tokens[count], -7);
        }
    }
    cy_source_close(source);
    assert_int_equal(open_files("/three/"), 0);
}

static void what_no_source_can_be_is_refused(void **state)
{
    (void)state;
    cy_token_source *source = NULL;
    const cy_source_options options = {0};
    check_text(cy_source_open(&source, in_folder("absent"), &options), CY_ERR_REQUEST,
        "dataset %s/absent: no such file");
    CY_CHECK_OK(cy_folder_make(in_folder("hollow")));
    check_text(cy_source_open(&source, in_folder("hollow"), &options), CY_ERR_REQUEST,
        "%s/hollow: the folder holds no shard-00000.tokens");
    write_file("plain.txt", "abc", 3);
    check_text(cy_source_open(&source, in_folder("plain.txt"), &options), CY_ERR_REQUEST,
        "%s/plain.txt: a tokenizer is needed to read text");
    // Shards of one folder must be of one tokenizer: by its hash, and by its vocabulary.
    for (int i = 0; i < 2; i++) {
        make_counting_folder("mixed", 10, 10);
        const cy_shard_header header = {.token_bytes = 2,
            .vocab_size = i == 0 ? 60000 : 60001,
            .tokenizer_hash = i == 0 ? 1 : 0};
        const char *path = in_folder("mixed/shard-00001.tokens");
        cy_shard_writer writer;
        assert_int_equal(remove(path), 0);
        CY_CHECK_OK(cy_shard_create(&writer, path, &header));
        CY_CHECK_OK(cy_shard_finish(&writer));
        check_text(cy_source_open(&source, in_folder("mixed"), &options), CY_ERR_CORRUPT,
            "%s/mixed/shard-00001.tokens: of another tokenizer than the shard before it");
        assert_int_equal(remove(path), 0);
        assert_int_equal(remove(in_folder("mixed/shard-00000.tokens")), 0);
    }
    assert_null(source);
    static const struct {
        const char *name;
        bool is_file;
    } names[] = {{"a.bin", true}, {"a.idx", true}, {"/.bin", true}, {".bin", false},
        {".idx", false}, {"a.binx", false}, {"bin", false}, {"a.txt", false}, {"", false}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(cy_source_is_file(names[i].name), names[i].is_file);
}

static void permutations_visit_all_once(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        bool *seen = calloc((size_t)counts[c], sizeof(bool));
        int64_t moved = 0;
        for (int64_t i = 0; i < counts[c]; i++) {
            const int64_t at = cy_permute(77, i, counts[c]);
            assert_in_range(at, 0, counts[c] - 1);
            assert_false(seen[at]);
            seen[at] = true;
            moved += at != i;
        }
        if (counts[c] >= 1000) assert_true(moved > counts[c] - 20);
        free(seen);
    }
    int64_t same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += cy_permute(1, i, 1000) == cy_permute(2, i, 1000);
    assert_true(same < 20);
}

// Runs that go on must see the samples in the order in which they began: these are pinned.
static void the_order_of_samples_does_not_change(void **state)
{
    (void)state;
    static const int64_t wanted[3][8] = {{3, 2, 6, 5, 4, 7, 1, 0}, {5, 9, 14, 2, 12, 15, 7, 11},
        {1561, 67363, 70053, 93724, 23837, 62313, 8248, 56398}};
    static const int64_t counts[3] = {8, 17, 100000};
    for (int c = 0; c < 3; c++) {
        for (int64_t i = 0; i < 8; i++)
            assert_int_equal(cy_permute(77, i, counts[c]), wanted[c][i]);
    }
    assert_int_equal(cy_permute(77, 0, 1), 0);
    const double weights[3] = {0.5, 0.3, 0.2};
    static const cy_mixture_sample picks[10] = {
        {0, 0}, {1, 0}, {0, 1}, {2, 0}, {0, 2}, {1, 1}, {0, 3}, {2, 1}, {0, 4}, {1, 2}};
    cy_mixture mixture;
    cy_mixture_init(&mixture, weights, 3);
    for (int64_t n = 0; n < 10; n++) {
        const cy_mixture_sample pick = cy_mixture_pick(&mixture, n);
        assert_int_equal(pick.source, picks[n].source);
        assert_int_equal(pick.index, picks[n].index);
    }
    const cy_mixture_sample far = cy_mixture_pick(&mixture, INT64_C(1) << 60);
    assert_int_equal(far.source, 0);
    assert_int_equal(far.index, INT64_C(576460752303423488));
}

// After n samples each source gave its share of n, within one a source, and its own samples
// without a gap.
static void mixtures_keep_their_weights(void **state)
{
    (void)state;
    const double weights[4] = {0.5, 0.3, 0.15, 0.05};
    cy_mixture mixture;
    cy_mixture_init(&mixture, weights, 4);
    int64_t given[4] = {0};
    for (int64_t n = 0; n < 20000; n++) {
        const cy_mixture_sample pick = cy_mixture_pick(&mixture, n);
        assert_int_equal(pick.index, given[pick.source]);
        given[pick.source]++;
        for (int k = 0; k < 4; k++) {
            const double wanted = weights[k] * (double)(n + 1);
            assert_true((double)given[k] > wanted - 3 && (double)given[k] < wanted + 3);
        }
    }
    // Far out the arithmetic must not overflow.
    const cy_mixture_sample far = cy_mixture_pick(&mixture, (int64_t)1 << 60);
    assert_true(far.index > 0);
}

static cy_dataset *open_dataset(const cy_dataset_entry *entries, int count, int64_t seq_length,
    double validation, int64_t num_samples, uint64_t seed)
{
    cy_dataset *dataset = NULL;
    const cy_dataset_options options = {.entries = entries,
        .count = count,
        .seq_length = seq_length,
        .validation_fraction = validation,
        .num_samples = num_samples,
        .seed = seed};
    CY_CHECK_OK(cy_dataset_open(&dataset, &options));
    return dataset;
}

static void an_epoch_holds_every_sample_once(void **state)
{
    (void)state;
    make_counting_folder("epoch", 1000, 501);
    const cy_dataset_entry entry = {.path = in_folder("epoch")};
    cy_dataset *dataset = open_dataset(&entry, 1, 10, 0.2, 0, 5);
    // 1501 tokens: the last 300 are held out, 1201 make 120 samples of 10 and a target.
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_TRAIN), 120);
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_VALIDATION), 29);
    int64_t seen[3][120] = {{0}};
    for (int64_t n = 0; n < 360; n++) {
        const cy_sample sample = cy_dataset_find(dataset, CY_DATASET_TRAIN, n);
        assert_int_equal(sample.epoch, n / 120);
        seen[n / 120][sample.first / 10]++;
    }
    for (int e = 0; e < 3; e++) {
        for (int i = 0; i < 120; i++)
            assert_int_equal(seen[e][i], 1);
    }
    int64_t same = 0;
    for (int64_t n = 0; n < 120; n++) {
        same += cy_dataset_find(dataset, CY_DATASET_TRAIN, n).first ==
            cy_dataset_find(dataset, CY_DATASET_TRAIN, n + 120).first;
    }
    assert_true(same < 20);
    // Validation goes through the end of the text as it stands.
    assert_int_equal(cy_dataset_find(dataset, CY_DATASET_VALIDATION, 0).first, 1201);
    assert_int_equal(cy_dataset_find(dataset, CY_DATASET_VALIDATION, 28).first, 1481);
    assert_int_equal(cy_dataset_find(dataset, CY_DATASET_VALIDATION, 29).first, 1201);
    cy_dataset_close(dataset);
}

static void limits_and_weights_hold(void **state)
{
    (void)state;
    make_counting_folder("left", 1001, 0);
    make_counting_folder("right", 501, 0);
    cy_dataset_entry entries[2] = {{.path = in_folder("left")}, {.path = in_folder("right")}};
    cy_dataset *dataset = open_dataset(entries, 2, 10, 0, 30, 1);
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_TRAIN), 30);
    cy_dataset_close(dataset);
    entries[0].weight = 1;
    entries[1].weight = 3;
    dataset = open_dataset(entries, 2, 10, 0, 0, 1);
    int64_t right = 0;
    for (int64_t n = 0; n < 1000; n++) {
        right += cy_dataset_find(dataset, CY_DATASET_TRAIN, n).source == 1;
    }
    assert_int_equal(right, 750);
    cy_dataset_close(dataset);
    entries[0].weight = 0;
    cy_dataset_options options = {.entries = entries, .count = 2, .seq_length = 10};
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: 1 of 2 sources have a weight; all or none must");
    entries[1].weight = 0;
    options.seq_length = 1001;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "%s/left: 1001 tokens to train on, a sample of seq_length 1001 needs 1002");
    options.seq_length = 1000;
    options.count = 1;
    CY_CHECK_OK(cy_dataset_open(&dataset, &options));
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_TRAIN), 1);
    assert_int_equal(cy_dataset_vocab_size(dataset), 60000);
    assert_int_equal(cy_dataset_seq_length(dataset), 1000);
    cy_dataset_close(dataset);
}

// A limit is shared out by the weights, rounded up; what a source does not have it cannot give.
static void a_limit_is_shared_by_weight(void **state)
{
    (void)state;
    static const struct {
        double weights[2];
        int64_t limit, samples;
    } cases[] = {
        {{0, 0}, 0, 150},
        {{0, 0}, 149, 150}, // 99.3 and 49.7 of 100 and 50
        {{0, 0}, 150, 150},
        {{0, 0}, 151, 150},
        {{0, 0}, 3, 3},
        {{0, 0}, 4, 5},
        {{0, 0}, 1, 2},
        {{1, 3}, 40, 40},
        {{1, 3}, 100, 75}, // the second has 50
        {{3, 1}, 100, 100},
    };
    cy_dataset_entry entries[2] = {{.path = in_folder("left")}, {.path = in_folder("right")}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        entries[0].weight = cases[i].weights[0];
        entries[1].weight = cases[i].weights[1];
        cy_dataset *dataset = open_dataset(entries, 2, 10, 0, cases[i].limit, 1);
        assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_TRAIN), cases[i].samples);
        assert_int_equal(cy_dataset_tokens(dataset, CY_DATASET_TRAIN), 1502);
        assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_VALIDATION), 0);
        assert_int_equal(cy_dataset_tokens(dataset, CY_DATASET_VALIDATION), 0);
        cy_dataset_close(dataset);
    }
    // What is held out of two sources stands one after the other, without the limit.
    entries[0].weight = entries[1].weight = 0;
    cy_dataset *dataset = open_dataset(entries, 2, 10, 0.1, 7, 1);
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_VALIDATION), 9 + 4);
    assert_int_equal(cy_dataset_tokens(dataset, CY_DATASET_VALIDATION), 100 + 50);
    static const int64_t places[5][4] = {
        {0, 0, 901, 0}, {8, 0, 981, 0}, {9, 1, 451, 0}, {12, 1, 481, 0}, {13, 0, 901, 1}};
    for (int i = 0; i < 5; i++) {
        const cy_sample sample = cy_dataset_find(dataset, CY_DATASET_VALIDATION, places[i][0]);
        assert_int_equal(sample.source, places[i][1]);
        assert_int_equal(sample.first, places[i][2]);
        assert_int_equal(sample.epoch, places[i][3]);
        int32_t tokens[11];
        CY_CHECK_OK(cy_dataset_read(dataset, tokens, CY_DATASET_VALIDATION, places[i][0], 2, 9));
        assert_int_equal(tokens[0], places[i][2] + 2);
        assert_int_equal(tokens[8], places[i][2] + 10);
    }
    cy_dataset_close(dataset);
}

static void what_no_dataset_can_be_is_refused(void **state)
{
    (void)state;
    make_counting_folder("any", 1001, 0);
    cy_dataset_entry entry = {.path = in_folder("any")};
    const cy_dataset_options good = {.entries = &entry, .count = 1, .seq_length = 10};
    cy_dataset *dataset = NULL;
    cy_dataset_options options = good;
    options.count = 0;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: 0 sources, 1 to 64 can be mixed");
    options = good;
    options.count = CY_MIXTURE_SOURCES_MAX + 1;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: 65 sources, 1 to 64 can be mixed");
    options = good;
    options.seq_length = 0;
    check_text(
        cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "dataset: seq_length 0 is below 1");
    options = good;
    options.validation_fraction = 1;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: validation_fraction 1 is not in [0, 1)");
    options.validation_fraction = -0.5;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: validation_fraction -0.5 is not in [0, 1)");
    options.validation_fraction = (double)NAN;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: validation_fraction nan is not in [0, 1)");
    options = good;
    options.num_samples = -1;
    check_text(
        cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "dataset: num_samples -1 is below 0");
    options = good;
    entry.weight = (double)INFINITY;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: weight inf of %s/any is not above 0");
    entry.weight = -2;
    check_text(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST,
        "dataset: weight -2 of %s/any is not above 0");
    assert_null(dataset);
}

// The samples of a step are the same on every mesh, and every rank's rows are its own.
static void every_mesh_takes_the_same_samples(void **state)
{
    (void)state;
    const int meshes[][3] = {{12, 1, 1}, {1, 12, 1}, {1, 1, 12}, {2, 3, 2}, {3, 1, 4}};
    for (size_t m = 0; m < sizeof(meshes) / sizeof(meshes[0]); m++) {
        int seen[12] = {0};
        for (int rank = 0; rank < meshes[m][2]; rank++) {
            const cy_batch_shape shape = {.micro_batch_size = meshes[m][0],
                .accumulation = meshes[m][1],
                .dp_rank = rank,
                .dp_size = meshes[m][2]};
            for (int micro = 0; micro < meshes[m][1]; micro++) {
                for (int64_t row = 0; row < meshes[m][0]; row++) {
                    const int64_t sample = cy_batch_sample(&shape, 3, micro, row);
                    assert_in_range(sample, 24, 35);
                    seen[sample - 24]++;
                }
            }
        }
        for (int i = 0; i < 12; i++)
            assert_int_equal(seen[i], 1);
    }
}

// What the data ranks of a mesh take in steps `first` to `last`, from a dataset of 120 samples: how
// often each sample of each epoch, [epochs][120].
static void count_samples(int64_t (*seen)[120], uint64_t seed, const cy_batch_shape *mesh,
    int64_t first_step, int64_t last_step)
{
    const cy_dataset_entry entry = {.path = in_folder("sampler")};
    cy_dataset *dataset = open_dataset(&entry, 1, 10, 0.2, 0, seed);
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_TRAIN), 120);
    for (int rank = 0; rank < mesh->dp_size; rank++) {
        cy_loader_options options = {.dataset = dataset, .shape = *mesh, .first_step = first_step};
        options.shape.dp_rank = rank;
        cy_loader *loader;
        CY_CHECK_OK(cy_loader_open(&loader, &options));
        for (int64_t i = 0; i < (last_step - first_step + 1) * mesh->accumulation; i++) {
            cy_batch batch;
            CY_CHECK_OK(cy_loader_next(loader, &batch));
            for (int64_t row = 0; row < batch.rows; row++) {
                const int64_t number =
                    cy_batch_sample(&options.shape, batch.step, batch.microbatch, row);
                const int64_t first = cy_dataset_find(dataset, CY_DATASET_TRAIN, number).first;
                assert_int_equal(batch.inputs[row * 10], first < 1000 ? first : first - 1000);
                seen[number / 120][first / 10]++;
            }
        }
        cy_loader_close(loader);
    }
    cy_dataset_close(dataset);
}

// 16 samples a step, which 120 is no multiple of: steps reach over the end of an epoch, no sample
// is padding. A run that is resumed at any step, on another mesh, sees what is left of its epoch.
static void data_ranks_share_every_epoch_and_resume_into_it(void **state)
{
    (void)state;
    make_counting_folder("sampler", 1000, 501);
    const cy_batch_shape two = {.micro_batch_size = 4, .accumulation = 2, .dp_size = 2};
    const cy_batch_shape four = {.micro_batch_size = 1, .accumulation = 4, .dp_size = 4};
    for (int64_t stop = 1; stop <= 29; stop += 7) {
        int64_t seen[4][120] = {{0}};
        count_samples(seen, 5, &two, 1, stop);
        for (int e = 0; e < 4; e++) {
            for (int i = 0; i < 120; i++)
                assert_in_range(seen[e][i], 0, 1); // no two ranks have the same sample
        }
        count_samples(seen, 5, &four, stop + 1, 30);
        for (int e = 0; e < 4; e++) {
            for (int i = 0; i < 120; i++)
                assert_int_equal(seen[e][i], 1); // together they have all
        }
    }
}

static void loaders_give_inputs_targets_and_positions(void **state)
{
    (void)state;
    make_counting_folder("loader", 5001, 0);
    const cy_dataset_entry entry = {.path = in_folder("loader")};
    cy_dataset *dataset = open_dataset(&entry, 1, 8, 0, 0, 9);
    // The zigzag of rank 0 of 2: the first and the last quarter.
    const cy_position_range ranges[2] = {{0, 2}, {6, 2}};
    const cy_loader_options whole = {.dataset = dataset,
        .first_step = 1,
        .shape = {.micro_batch_size = 2, .accumulation = 3, .dp_rank = 1, .dp_size = 2}};
    cy_loader_options part = whole;
    part.shape.ranges = ranges;
    part.shape.range_count = 2;
    cy_loader *loaders[2];
    CY_CHECK_OK(cy_loader_open(&loaders[0], &whole));
    CY_CHECK_OK(cy_loader_open(&loaders[1], &part));
    for (int i = 0; i < 50; i++) {
        cy_batch a, b;
        CY_CHECK_OK(cy_loader_next(loaders[0], &a));
        CY_CHECK_OK(cy_loader_next(loaders[1], &b));
        assert_int_equal(a.step, i / 3 + 1);
        assert_int_equal(a.microbatch, i % 3);
        assert_int_equal(b.columns, 4);
        for (int64_t row = 0; row < 2; row++) {
            const int64_t number = cy_batch_sample(&whole.shape, a.step, a.microbatch, row);
            const int64_t first = cy_dataset_find(dataset, CY_DATASET_TRAIN, number).first;
            for (int64_t t = 0; t < 8; t++) {
                assert_int_equal(a.inputs[row * 8 + t], first + t);
                assert_int_equal(a.targets[row * 8 + t], first + t + 1);
                assert_int_equal(a.positions[t], t);
            }
            for (int64_t t = 0; t < 4; t++) {
                const int64_t position = t < 2 ? t : t + 4;
                assert_int_equal(b.positions[t], position);
                assert_int_equal(b.inputs[row * 4 + t], first + position);
                assert_int_equal(b.targets[row * 4 + t], first + position + 1);
            }
        }
        // Going back in the middle of a run of the ring gives that step again.
        if (i == 25) {
            for (int k = 0; k < 2; k++) {
                cy_loader_seek(loaders[k], 2);
                CY_CHECK_OK(cy_loader_next(loaders[k], &a));
                assert_int_equal(a.step, 2);
                assert_int_equal(a.microbatch, 0);
                cy_loader_seek(loaders[k], 9);
                CY_CHECK_OK(cy_loader_next(loaders[k], &a));
                CY_CHECK_OK(cy_loader_next(loaders[k], &a));
            }
        }
    }
    const cy_loader_counters counters = cy_loader_count(loaders[0]);
    assert_int_equal(counters.batches, 53);
    cy_loader_close(loaders[0]);
    cy_loader_close(loaders[1]);
    cy_dataset_close(dataset);
}

static void a_loader_without_samples_says_so(void **state)
{
    (void)state;
    make_counting_folder("short", 1001, 0);
    const cy_dataset_entry entry = {.path = in_folder("short")};
    // Of 1001 tokens 10 are held out; a sample of 9 fits, one of 10 does not.
    for (int64_t length = 9; length <= 10; length++) {
        cy_dataset *dataset = open_dataset(&entry, 1, length, 0.01, 0, 9);
        const cy_loader_options options = {.dataset = dataset,
            .first_step = 1,
            .ahead = 1,
            .shape = {.split = CY_DATASET_VALIDATION,
                .micro_batch_size = 2,
                .accumulation = 1,
                .dp_size = 1}};
        cy_loader *loader = NULL;
        if (length == 10) {
            check_text(cy_loader_open(&loader, &options), CY_ERR_REQUEST,
                "the validation part has 10 tokens, a sample of seq_length 10 needs 11");
            assert_null(loader);
        } else {
            cy_batch batch;
            CY_CHECK_OK(cy_loader_open(&loader, &options));
            for (int64_t step = 1; step < 4; step++) {
                CY_CHECK_OK(cy_loader_next(loader, &batch));
                assert_int_equal(batch.step, step);
                assert_int_equal(batch.inputs[0], 991);
                assert_int_equal(batch.inputs[9], 991); // the one sample again
                assert_int_equal(batch.targets[8], 1000);
            }
            cy_loader_close(loader);
        }
        cy_dataset_close(dataset);
    }
}

static void a_failing_read_comes_out_of_next(void **state)
{
    (void)state;
    const cy_dataset_entry entry = {.path = in_folder("beyond")}; // token 41 is broken
    cy_dataset *dataset = open_dataset(&entry, 1, 99, 0, 0, 1);
    const cy_loader_options options = {.dataset = dataset,
        .first_step = 1,
        .shape = {.micro_batch_size = 1, .accumulation = 1, .dp_size = 1}};
    cy_loader *loader = NULL;
    CY_CHECK_OK(cy_loader_open(&loader, &options));
    cy_batch batch;
    check_text(cy_loader_next(loader, &batch), CY_ERR_CORRUPT,
        "%s/beyond: token 41 is 65321, the vocabulary has 60000");
    cy_loader_close(loader);
    cy_dataset_close(dataset);
}

int main(void)
{
    cy_test_folder(folder, sizeof(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_hold_what_was_written),
        cmocka_unit_test(damaged_shards_are_refused),
        cmocka_unit_test(headers_that_contradict_themselves_are_refused),
        cmocka_unit_test(writers_refuse_what_is_no_token),
        cmocka_unit_test(the_check_of_a_shard_is_what_it_was),
        cmocka_unit_test(writers_flush_at_any_place),
        cmocka_unit_test(tokens_beyond_the_vocabulary_are_refused),
        cmocka_unit_test(sources_read_across_shards),
        cmocka_unit_test(sources_read_any_range),
        cmocka_unit_test(what_no_source_can_be_is_refused),
        cmocka_unit_test(permutations_visit_all_once),
        cmocka_unit_test(the_order_of_samples_does_not_change),
        cmocka_unit_test(mixtures_keep_their_weights),
        cmocka_unit_test(an_epoch_holds_every_sample_once),
        cmocka_unit_test(limits_and_weights_hold),
        cmocka_unit_test(a_limit_is_shared_by_weight),
        cmocka_unit_test(what_no_dataset_can_be_is_refused),
        cmocka_unit_test(every_mesh_takes_the_same_samples),
        cmocka_unit_test(data_ranks_share_every_epoch_and_resume_into_it),
        cmocka_unit_test(loaders_give_inputs_targets_and_positions),
        cmocka_unit_test(a_loader_without_samples_says_so),
        cmocka_unit_test(a_failing_read_comes_out_of_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
