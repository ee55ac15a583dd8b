// What tokens, a tokenizer and a checkpoint are known by.

#include "support/saves.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/identity.h"
#include "data/shard.h"
#include "train/identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[256];

static const char *in_folder(const char *name)
{
    static char path[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

// ---- tokens

#define MANY ((int64_t)1 << 23) // twice what is read in full

static int32_t token_at(int64_t place, int64_t changed)
{
    return (int32_t)((uint64_t)(place * 2654435761) >> 7 & 0xfff) ^ (place == changed ? 1 : 0);
}

// A folder of shards that end at the places given, whose token `changed` is another one.
static void write_shards(const char *name, const int64_t *ends, int count, int64_t changed)
{
    const cy_shard_header header = {.token_bytes = 2, .vocab_size = 4096, .end_token = -1};
    int64_t place = 0;
    CY_CHECK_OK(cy_folder_make(in_folder(name)));
    for (int i = 0; i < count; i++) {
        char path[600];
        int32_t ids[4096];
        cy_shard_writer writer;
        snprintf(path, sizeof(path), "%s/shard-%05d.tokens", in_folder(name), i);
        CY_CHECK_OK(cy_shard_create(&writer, path, &header));
        while (place < ends[i]) {
            int64_t n = 0;
            for (; n < 4096 && place < ends[i]; n++)
                ids[n] = token_at(place++, changed);
            CY_CHECK_OK(cy_shard_add(&writer, ids, (size_t)n, 0));
        }
        CY_CHECK_OK(cy_shard_finish(&writer));
    }
}

// The fingerprint of the first tokens of a folder's row; 0: of all of them.
static cy_fingerprint fingerprint_of(const char *name, int64_t tokens)
{
    cy_token_source *source = NULL;
    CY_CHECK_OK(cy_source_open(&source, in_folder(name), &(cy_source_options){0}));
    cy_fingerprint made;
    CY_CHECK_OK(cy_source_fingerprint(&made, source, tokens > 0 ? tokens : source->token_count));
    cy_source_close(source);
    return made;
}

static void equal_tokens_are_equal_however_they_are_cut(void **state)
{
    (void)state;
    const int64_t one[] = {MANY}, two[] = {MANY / 3, MANY}, more[] = {MANY, MANY + 70000};
    write_shards("one", one, 1, -1);
    write_shards("two", two, 2, -1);
    write_shards("more", more, 2, -1);
    const cy_fingerprint a = fingerprint_of("one", 0), b = fingerprint_of("two", 0);
    assert_true(cy_fingerprint_equal(&a, &b));
    assert_true(a.cuts != 0 && b.cuts != 0 && a.cuts != b.cuts);
    const cy_fingerprint longer = fingerprint_of("more", 0), start = fingerprint_of("more", MANY);
    assert_false(cy_fingerprint_equal(&a, &longer));
    assert_true(cy_fingerprint_equal(&a, &start));
    assert_true(start.cuts == a.cuts && start.checks == a.checks);
    // Within a shard there is no check of what came before.
    const cy_fingerprint within = fingerprint_of("one", MANY - 1);
    assert_true(within.cuts == 0 && within.checks == 0);
}

// Of so many tokens not all are read; the checks in the headers tell of the others.
static void a_changed_token_is_found(void **state)
{
    (void)state;
    const int64_t ends[] = {MANY / 3, MANY};
    const cy_fingerprint first = fingerprint_of("two", 0);
    static const struct {
        int64_t place;
        bool read; // by the sample
    } cases[] = {{0, true}, {MANY - 1, true}, {((int64_t)1 << 14) - 1, true},
        {((int64_t)1 << 14) + 1, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[20];
        snprintf(name, sizeof(name), "changed%zu", i);
        write_shards(name, ends, 2, cases[i].place);
        const cy_fingerprint other = fingerprint_of(name, 0);
        assert_false(cy_fingerprint_equal(&first, &other));
        assert_int_equal(first.sample != other.sample, cases[i].read);
        assert_true(first.cuts == other.cuts && first.checks != other.checks);
    }
}

// ---- tokenizers

static const char tokenizer_json[] =
    "{\"added_tokens\": [{\"id\": 5, \"content\": \"<end>\", \"special\": true}], "
    "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
    "false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": "
    "{\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 4}, "
    "\"merges\": [\"a b\", \"ab c\"]}}";

static uint64_t fingerprint_with(const char *from, const char *to)
{
    char json[1000];
    const char *place = strstr(tokenizer_json, from);
    assert_non_null(place);
    const int bytes = snprintf(json, sizeof(json), "%.*s%s%s", (int)(place - tokenizer_json),
        tokenizer_json, to, place + strlen(from));
    cy_tokenizer *tokenizer = NULL;
    CY_CHECK_OK(cy_tokenizer_open_text(&tokenizer, json, (size_t)bytes, "t.json"));
    const uint64_t made = cy_tokenizer_fingerprint(tokenizer);
    cy_tokenizer_close(tokenizer);
    return made;
}

static void a_tokenizer_is_known_by_what_decides_ids(void **state)
{
    (void)state;
    const uint64_t first = fingerprint_with("", "");
    assert_true(first != 0 && first != CY_TOKENIZER_OTHER);
    static const struct {
        const char *from, *to;
        bool same;
    } cases[] = {
        {"{\"added", "{\n\n  \"version\": \"1.0\",\n \"added", true},
        {"\"a\": 0, \"b\": 1", "\"b\": 1,\n\"a\": 0", true},
        {"\"a b\", \"ab c\"", "[\"a\", \"b\"], [\"ab\", \"c\"]", true},
        {"\"id\": 5, \"content\": \"<end>\"", "\"content\": \"<end>\", \"id\": 5", true},
        {"\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": null", true},
        {"\"a\": 0, \"b\": 1", "\"b\": 0, \"a\": 1", false},
        {"\"ab c\"", "\"ab c\", \"b c\"", false},
        {"\"a b\", \"ab c\"", "\"ab c\", \"a b\"", false},
        {"<end>", "<fin>", false},
        {"\"id\": 5", "\"id\": 6", false},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", false},
        {"\"add_prefix_space\": false", "\"add_prefix_space\": true", false},
        {"\"type\": \"BPE\"", "\"type\": \"BPE\", \"ignore_merges\": true", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *to = cases[i].to;
        // A merge of b and c needs its token.
        const bool more = strstr(to, "b c\", \"b c") != NULL;
        const uint64_t other = more ? fingerprint_with("\"abc\": 4}", "\"abc\": 4, \"bc\": 6}")
                                    : fingerprint_with(cases[i].from, to);
        if ((other == first) != cases[i].same) fail_msg("case %zu: %s", i, to);
    }
}

// ---- manifests

static void save_with(const char *name, const char *identity_json)
{
    const cy_test_state test = {
        .folder = in_folder(name), .mesh = {1, 1, 1}, .scale = 1, .step = 12};
    CY_CHECK_OK(cy_test_save(
        &test, cy_group_self(), 0, (cy_save){.config_json = "{}", .identity_json = identity_json}));
}

static void identities_come_back(void **state)
{
    (void)state;
    cy_source_identity sources[2] = {
        {.path = "a \"quoted\" path", .weight = 0.1, .whole = {70, 1, 2, UINT64_MAX}},
        {.path = "b", .whole = {80, 3, 4, 5}, .start = {16, 6, 7, 8}},
    };
    const cy_identity wrote = {.tokenizer = 0xfedcba9876543210u,
        .seed = 42,
        .seq_length = 32,
        .num_samples = 7,
        .batch_samples = 8,
        .validation_fraction = 0.1,
        .sources = sources,
        .source_count = 2};
    cy_text json = {0};
    CY_CHECK_OK(cy_identity_to_json(&json, &wrote));
    save_with("kept", json.bytes);
    cy_checkpoint checkpoint;
    cy_identity read;
    CY_CHECK_OK(cy_checkpoint_open_located(&checkpoint, in_folder("kept")));
    CY_CHECK_OK(cy_identity_read(&read, &checkpoint));
    assert_true(read.tokenizer == wrote.tokenizer && read.seed == 42 && read.seq_length == 32);
    assert_true(read.num_samples == 7 && read.batch_samples == 8);
    assert_true(read.validation_fraction == 0.1);
    assert_int_equal(read.source_count, 2);
    for (int i = 0; i < 2; i++) {
        const cy_source_identity *one = &read.sources[i], *other = &sources[i];
        assert_string_equal(one->path, other->path);
        assert_true(one->weight == other->weight);
        assert_true(cy_fingerprint_equal(&one->whole, &other->whole));
        assert_true(cy_fingerprint_equal(&one->start, &other->start));
        assert_true(one->whole.cuts == other->whole.cuts);
        assert_true(one->whole.checks == other->whole.checks);
    }
    cy_identity_free(&read);

    static const char *const keys[] = {"tokenizer", "order", "seed", "seq_length",
        "validation_fraction", "num_samples", "batch_samples", "sources", "path", "weight", "whole",
        "start", "tokens", "sample", "cuts", "checks"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char key[40];
        snprintf(key, sizeof(key), "\"%s\":", keys[i]);
        char *place = strstr(checkpoint.identity_json, key);
        assert_non_null(place);
        place[1] ^= 1;
        CY_CHECK_FAILS(cy_identity_read(&read, &checkpoint), CY_ERR_CORRUPT,
            "manifest.json: identity is not as this program writes it");
        place[1] ^= 1;
    }
    cy_text_free(&json);
    cy_checkpoint_close(&checkpoint);
}

static void what_carries_none_is_told(void **state)
{
    (void)state;
    save_with("earlier", NULL);
    cy_text lines = {0};
    char *path = NULL;
    void *block = NULL;
    CY_CHECK_OK(cy_memory_alloc(&block, 1, sizeof(cy_config)));
    cy_config *config = block;
    cy_config_defaults(config);
    CY_CHECK_OK(cy_checkpoint_locate(&path, in_folder("earlier")));
    const cy_identity run = {0};
    const cy_run_data data = {0};
    for (int weights_only = 0; weights_only < 2; weights_only++) {
        lines.length = 0;
        CY_CHECK_OK(
            cy_identity_compare(&lines, &run, config, &data, path, weights_only != 0, NULL));
        char wanted[700];
        snprintf(wanted, sizeof(wanted),
            "%s carries no fingerprints of its data, as an earlier program wrote it: they are not "
            "compared\n",
            path);
        assert_string_equal(lines.bytes, wanted);
    }
    cy_text_free(&lines);
    cy_memory_free(path);
    cy_memory_free(config);
}

int main(void)
{
    cy_test_folder(folder, sizeof(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_tokens_are_equal_however_they_are_cut),
        cmocka_unit_test(a_changed_token_is_found),
        cmocka_unit_test(a_tokenizer_is_known_by_what_decides_ids),
        cmocka_unit_test(identities_come_back),
        cmocka_unit_test(what_carries_none_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
