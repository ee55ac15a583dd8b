// Preparing corpora: files of every kind give the same tokens, whole or not at all.

#include "support/support.h"

#include "base/file.h"
#include "base/output.h"
#include "data/prepare.h"
#include "data/shard.h"
#include "data/source.h"
#include "tokenizer/bpe.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static char folder[256];
static cy_tokenizer *tokenizer;

static const char *in_folder(const char *name)
{
    static char path[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

// Lines of words, some empty, some beginning or ending in spaces; not all of it is UTF-8.
static char *make_text(size_t bytes)
{
    static const char *const lines[] = {"In the beginning was the word.\n", "\n", "  and more \n",
        "été\n", "42 13\n", "x", "\xff\xfe\n", "one two\r\n", "end\n", " \n \n"};
    char *text = malloc(bytes + 64);
    assert_non_null(text);
    size_t at = 0;
    for (uint64_t i = 1; at < bytes; i++) {
        const char *line = lines[(i * i / 3 + i) % (sizeof(lines) / sizeof(lines[0]))];
        memcpy(text + at, line, strlen(line));
        at += strlen(line);
    }
    return text;
}

static cy_status prepare(const char *out, const char *const *paths, int count, int threads,
    int64_t shard_tokens, cy_prepare_result *result)
{
    const cy_prepare_options options = {.out = out,
        .shard_tokens = shard_tokens,
        .corpus = {.tokenizer = tokenizer,
            .paths = paths,
            .count = count,
            .end_token = -1,
            .threads = threads}};
    return cy_data_prepare(result, &options);
}

static cy_tokens read_all(const char *path)
{
    cy_token_source *source = NULL;
    const cy_source_options options = {.tokenizer = tokenizer};
    CY_CHECK_OK(cy_source_open(&source, path, &options));
    cy_tokens tokens = {0};
    tokens.count = (size_t)source->token_count;
    tokens.ids = malloc((tokens.count + 1) * sizeof(int32_t));
    assert_non_null(tokens.ids);
    CY_CHECK_OK(cy_source_read(source, tokens.ids, 0, source->token_count));
    cy_source_close(source);
    return tokens;
}

static void check_same(const char *path, const cy_tokens *wanted)
{
    cy_tokens found = read_all(path);
    assert_int_equal(found.count, wanted->count);
    assert_memory_equal(found.ids, wanted->ids, wanted->count * sizeof(int32_t));
    free(found.ids);
}

// A text that is cut for the threads must give the ids of the text as a whole.
static void threads_and_shards_do_not_change_the_tokens(void **state)
{
    (void)state;
    const size_t bytes = 5 << 20;
    char *text = make_text(bytes);
    CY_CHECK_OK(cy_file_write(in_folder("big.txt"), text, bytes));
    cy_tokens wanted = {0};
    CY_CHECK_OK(cy_tokenizer_encode(tokenizer, &wanted, text, bytes, CY_ENCODE_DEFAULT));
    const int32_t end = cy_tokenizer_end_token(tokenizer);
    const char *paths[] = {in_folder("big.txt")};
    cy_prepare_result result;
    CY_CHECK_OK(prepare(in_folder("one"), paths, 1, 1, 0, &result));
    assert_int_equal(result.tokens, wanted.count + 1);
    assert_int_equal(result.text_bytes, bytes);
    assert_int_equal(result.documents, 1);
    assert_int_equal(result.shards, 1);
    cy_tokens found = read_all(in_folder("one"));
    assert_int_equal(found.count, wanted.count + 1);
    assert_memory_equal(found.ids, wanted.ids, wanted.count * sizeof(int32_t));
    assert_int_equal(found.ids[wanted.count], end);
    CY_CHECK_OK(prepare(in_folder("many"), paths, 1, 4, 100000, &result));
    assert_true(result.shards > 1);
    check_same(in_folder("many"), &found);
    check_same(in_folder("big.txt"), &found); // tokenized when it is opened
    free(found.ids);
    cy_tokens_free(&wanted);
    free(text);
}

static void write_gzip(const char *path, const char *text, size_t bytes)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned)bytes), bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

static void write_zstd(const char *path, const char *text, size_t bytes)
{
    const size_t room = ZSTD_compressBound(bytes);
    char *packed = malloc(room);
    assert_non_null(packed);
    const size_t count = ZSTD_compress(packed, room, text, bytes, 3);
    assert_false(ZSTD_isError(count));
    CY_CHECK_OK(cy_file_write(path, packed, count));
    free(packed);
}

static void every_kind_of_file_is_read(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"text\": \"In the beginning\", \"id\": 1}\n\n{\"text\": \"\"}\n{\"id\": 3, \"text\": "
        "\"\\u00e9t\\u00e9\\nend\"}";
    const size_t bytes = sizeof(lines) - 1;
    CY_CHECK_OK(cy_file_write(in_folder("a.jsonl"), lines, bytes));
    write_gzip(in_folder("a.jsonl.gz"), lines, bytes);
    write_zstd(in_folder("a.jsonl.zst"), lines, bytes);
    const int32_t end = cy_tokenizer_end_token(tokenizer);
    cy_tokens wanted = {0};
    const char *const texts[] = {"In the beginning", "", "été\nend"};
    for (int i = 0; i < 3; i++) {
        CY_CHECK_OK(
            cy_tokenizer_encode(tokenizer, &wanted, texts[i], strlen(texts[i]), CY_ENCODE_DEFAULT));
        CY_CHECK_OK(cy_tokens_add(&wanted, &end, 1));
    }
    check_same(in_folder("a.jsonl"), &wanted);
    check_same(in_folder("a.jsonl.gz"), &wanted);
    check_same(in_folder("a.jsonl.zst"), &wanted);
    cy_tokens_free(&wanted);
}

static void check_fails(const char *name, const char *words)
{
    const char *paths[] = {in_folder(name)};
    cy_prepare_result result;
    CY_CHECK_FAILS(prepare(in_folder("never"), paths, 1, 2, 0, &result), CY_ERR_CORRUPT, words);
    assert_false(cy_path_exists(in_folder("never")));
}

static void damaged_files_are_named_and_leave_nothing(void **state)
{
    (void)state;
    static const char broken[] = "{\"text\": \"a\"}\n{\"text\": \n";
    static const char other[] = "{\"text\": \"a\"}\n{\"body\": \"b\"}\n";
    CY_CHECK_OK(cy_file_write(in_folder("broken.jsonl"), broken, sizeof(broken) - 1));
    CY_CHECK_OK(cy_file_write(in_folder("other.jsonl"), other, sizeof(other) - 1));
    check_fails("broken.jsonl", "broken.jsonl: line 2");
    check_fails("other.jsonl", "line 2: no text in the field \"text\"");
    char *text = make_text(100000);
    write_gzip(in_folder("b.txt.gz"), text, 100000);
    write_zstd(in_folder("b.txt.zst"), text, 100000);
    free(text);
    const char *const packed[] = {"b.txt.gz", "b.txt.zst"};
    const char *const cut[] = {"cut.txt.gz", "cut.txt.zst"};
    for (int i = 0; i < 2; i++) {
        cy_text file = {0};
        CY_CHECK_OK(cy_file_read(&file, in_folder(packed[i]), 1 << 20));
        CY_CHECK_OK(cy_file_write(in_folder(cut[i]), file.bytes, file.length - 9));
        check_fails(cut[i], cut[i]);
        cy_text_free(&file);
    }
    // Nothing is left beside the place of the folder either.
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    while ((entry = readdir(listing)) != NULL) {
        assert_null(strstr(entry->d_name, ".tmp"));
    }
    closedir(listing);
}

static bool stop_at_once(void *context, int64_t done, int64_t total)
{
    (void)context;
    return done > total;
}

static void a_stop_leaves_nothing(void **state)
{
    (void)state;
    const char *const paths[] = {in_folder("b.txt.gz")};
    const cy_prepare_options options = {.out = in_folder("stopped"),
        .corpus = {.tokenizer = tokenizer,
            .paths = paths,
            .count = 1,
            .end_token = -1,
            .progress = stop_at_once}};
    cy_prepare_result result;
    cy_text packed = {0};
    char wanted[100];
    CY_CHECK_OK(cy_file_read(&packed, paths[0], 1 << 20));
    snprintf(
        wanted, sizeof(wanted), "stopped after %zu of %zu bytes", packed.length, packed.length);
    cy_text_free(&packed);
    assert_int_equal(cy_data_prepare(&result, &options), CY_ERR_STOPPED);
    assert_string_equal(cy_error_text(), wanted);
    assert_false(cy_path_exists(in_folder("stopped")));
}

static void what_is_there_is_not_written_over(void **state)
{
    (void)state;
    const char *paths[] = {in_folder("a.jsonl")};
    cy_prepare_result result;
    CY_CHECK_FAILS(
        prepare(in_folder("one"), paths, 1, 1, 0, &result), CY_ERR_REQUEST, "is there already");
    CY_CHECK_OK(cy_folder_make(in_folder("empty")));
    CY_CHECK_OK(prepare(in_folder("empty/"), paths, 1, 1, 0, &result));
    assert_true(cy_path_exists(in_folder("empty/tokenizer.json")));
    // A file in the way is not written over.
    CY_CHECK_OK(cy_file_write(in_folder("way"), "x", 1));
    char wanted[600];
    snprintf(wanted, sizeof(wanted), "%s/way is there already: it is not written over", folder);
    assert_int_equal(prepare(in_folder("way"), paths, 1, 1, 0, &result), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(), wanted);
    assert_string_equal(cy_error_hint(), "name a new folder, or remove that one");
}

static void make_attempt(const char *name, const char *owner)
{
    char path[120];
    snprintf(path, sizeof(path), "parent/%s", name);
    CY_CHECK_OK(cy_folder_make(in_folder(path)));
    snprintf(path, sizeof(path), "parent/%s/shard-00000.tokens", name);
    CY_CHECK_OK(cy_file_write(in_folder(path), "x", 1));
    snprintf(path, sizeof(path), "parent/%s/.making", name);
    if (owner != NULL) CY_CHECK_OK(cy_file_write(in_folder(path), owner, strlen(owner)));
}

// The folder that is made stands beside the place; of others' only dead attempts are swept away.
static void only_what_dead_runs_left_is_swept(void **state)
{
    (void)state;
    static const cy_folder_lock_kind use = {
        .file = ".making", .doing = "is made in", .hint = "wait"};
    static const struct {
        const char *name;
        const char *owner; // in its lock; NULL: no lock
        bool held;
        bool stays;
    } cases[] = {
        {".swept.0123456789abcdef.tmp", "process 1 on x\n", false, false},
        {".swept.1123456789abcdef.tmp", "process 1 on x\n", true, true},
        {".swept.2123456789abcdef.tmp", "", false, true},   // its lock is about to be taken
        {".swept.3123456789abcdef.tmp", NULL, false, true}, // is about to be renamed
        {".swept.0123456789abcdef.old", "process 1 on x\n", false, true},
        {".swept.0123456789abcdef.tmp2", "process 1 on x\n", false, true},
        {".swept.0123456789abcde.tmp", "process 1 on x\n", false, true},
        {".swept.x.0123456789abcdef.tmp", "process 1 on x\n", false, true},
        {".other.0123456789abcdef.tmp", "process 1 on x\n", false, true},
    };
    char file[400], name[120];
    snprintf(file, sizeof(file), "%s/a.jsonl", folder);
    const char *paths[] = {file};
    cy_prepare_result result;
    int held = -1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_attempt(cases[i].name, cases[i].owner);
        snprintf(name, sizeof(name), "parent/%s", cases[i].name);
        if (cases[i].held) CY_CHECK_OK(cy_folder_lock_acquire(&held, in_folder(name), &use));
    }
    CY_CHECK_OK(prepare(in_folder("parent/swept///"), paths, 1, 0, 0, &result));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(name, sizeof(name), "parent/%s", cases[i].name);
        assert_int_equal(cy_path_exists(in_folder(name)), cases[i].stays);
    }
    close(held);
    assert_true(cy_path_exists(in_folder("parent/swept/shard-00000.tokens")));
    assert_false(cy_path_exists(in_folder("parent/swept/.making")));
    // A path without a folder is one in this folder.
    char before[500];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    CY_CHECK_OK(prepare("here", paths, 1, 1, 0, &result));
    assert_int_equal(chdir(before), 0);
    assert_true(cy_path_exists(in_folder("here/tokenizer.json")));
}

typedef struct reports {
    int64_t done[8], total;
    int count;
} reports;

static bool keep_report(void *context, int64_t done, int64_t total)
{
    reports *r = context;
    assert_in_range(r->count, 0, 7);
    r->done[r->count++] = done;
    r->total = total;
    return true;
}

static void progress_counts_the_bytes_of_all_files(void **state)
{
    (void)state;
    const char *const texts[] = {"one two", "in", ""};
    const char *const names[] = {"p1.txt", "p2.txt", "p3.txt"};
    const char *paths[3];
    for (int i = 0; i < 3; i++) {
        paths[i] = in_folder(names[i]);
        CY_CHECK_OK(cy_file_write(paths[i], texts[i], strlen(texts[i])));
    }
    reports r = {0};
    const int32_t end = cy_tokenizer_find(tokenizer, "n", 1);
    const cy_prepare_options options = {.out = in_folder("progress"),
        .corpus = {.tokenizer = tokenizer,
            .paths = paths,
            .count = 3,
            .end_token = end,
            .progress = keep_report,
            .progress_context = &r}};
    cy_prepare_result result;
    CY_CHECK_OK(cy_data_prepare(&result, &options));
    assert_int_equal(r.count, 3);
    assert_int_equal(r.done[0], 7);
    assert_int_equal(r.done[1], 9);
    assert_int_equal(r.done[2], 9);
    assert_int_equal(r.total, 9);
    assert_int_equal(result.documents, 3);
    assert_int_equal(result.text_bytes, 9);
    assert_int_equal(result.token_bytes, 2);
    // The end token that was asked for ends each document, and is what the shard says.
    cy_tokens found = read_all(in_folder("progress"));
    cy_tokens wanted = {0};
    for (int i = 0; i < 3; i++) {
        CY_CHECK_OK(
            cy_tokenizer_encode(tokenizer, &wanted, texts[i], strlen(texts[i]), CY_ENCODE_DEFAULT));
        CY_CHECK_OK(cy_tokens_add(&wanted, &end, 1));
    }
    assert_int_equal(found.count, wanted.count);
    assert_int_equal(result.tokens, wanted.count);
    assert_memory_equal(found.ids, wanted.ids, wanted.count * sizeof(int32_t));
    free(found.ids);
    cy_tokens_free(&wanted);
    cy_shard shard;
    CY_CHECK_OK(cy_shard_open(&shard, in_folder("progress/shard-00000.tokens")));
    assert_int_equal(shard.header.end_token, end);
    assert_int_equal(shard.header.vocab_size, cy_tokenizer_vocab_size(tokenizer));
    assert_true(shard.header.tokenizer_hash == cy_tokenizer_hash(tokenizer));
    assert_int_equal(shard.header.document_count, 3);
    cy_shard_close(&shard);
}

// A template that ends a document itself needs no second end; ids above 65535 need 4 bytes.
static void the_template_may_end_documents(void **state)
{
    (void)state;
    static const struct {
        const char *after; // what the template puts behind a text
        int32_t end, high;
        int count, token_bytes;
        int32_t ids[4];
    } cases[] = {
        {"[2]", 2, 65535, 2, 2, {0, 2}},
        {"[1, 2]", 2, 65535, 3, 2, {0, 1, 2}},
        {"[2, 1]", 2, 65535, 4, 2, {0, 2, 1, 2}},
        {"[2]", 1, 65536, 3, 4, {0, 2, 1}},
    };
    CY_CHECK_OK(cy_file_write(in_folder("short.txt"), "a", 1));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char json[1000], name[20];
        const int bytes = snprintf(json, sizeof(json),
            "{\"added_tokens\": [{\"id\": %d, \"content\": \"zz\"}], \"pre_tokenizer\": "
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"post_processor\": "
            "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {}}, "
            "{\"SpecialToken\": {\"id\": \"x\"}}], \"special_tokens\": {\"x\": {\"ids\": %s}}}, "
            "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2}, \"merges\": []}}",
            cases[i].high, cases[i].after);
        const char *paths[] = {in_folder("short.txt")};
        cy_tokenizer *other = NULL;
        CY_CHECK_OK(cy_tokenizer_open_text(&other, json, (size_t)bytes, "t.json"));
        snprintf(name, sizeof(name), "ends%zu", i);
        const cy_prepare_options options = {.out = in_folder(name),
            .corpus = {.tokenizer = other, .paths = paths, .count = 1, .end_token = cases[i].end}};
        cy_prepare_result result;
        CY_CHECK_OK(cy_data_prepare(&result, &options));
        assert_int_equal(result.token_bytes, cases[i].token_bytes);
        assert_int_equal(result.tokens, cases[i].count);
        cy_token_source *source = NULL;
        int32_t ids[4];
        CY_CHECK_OK(cy_source_open(&source, in_folder(name), &(cy_source_options){0}));
        CY_CHECK_OK(cy_source_read(source, ids, 0, cases[i].count));
        assert_memory_equal(ids, cases[i].ids, (size_t)cases[i].count * sizeof(int32_t));
        cy_source_close(source);
        // Without a token that ends documents it must be told.
        const cy_prepare_options none = {.out = in_folder("endless"),
            .corpus = {.tokenizer = other, .paths = paths, .count = 1, .end_token = -1}};
        assert_int_equal(cy_data_prepare(&result, &none), CY_ERR_REQUEST);
        assert_string_equal(
            cy_error_text(), "the tokenizer has no end token to put between documents");
        assert_false(cy_path_exists(in_folder("endless")));
        cy_tokenizer_close(other);
    }
}

// A shard ends with the piece of text in which it got its tokens.
static void shards_end_where_they_are_full(void **state)
{
    (void)state;
    cy_prepare_result result;
    const char *paths[] = {in_folder("p1.txt"), in_folder("p2.txt")};
    CY_CHECK_OK(prepare(in_folder("two"), paths, 2, 1, 0, &result));
    const int64_t tokens = result.tokens;
    assert_int_equal(result.shards, 1);
    for (int64_t limit = tokens - 1; limit <= tokens + 1; limit++) {
        char name[40];
        snprintf(name, sizeof(name), "limit%d", (int)limit);
        CY_CHECK_OK(prepare(in_folder(name), paths, 2, 1, limit, &result));
        assert_int_equal(result.shards, 1);
        assert_int_equal(result.tokens, tokens);
    }
}

static void another_tokenizer_is_refused(void **state)
{
    (void)state;
    cy_tokenizer *other = NULL;
    const cy_tokenizer_text text = {.text = "abab", .bytes = 4};
    const cy_tokenizer_train_options options = {.vocab_size = 258};
    CY_CHECK_OK(cy_tokenizer_train(&other, &text, 1, &options));
    cy_token_source *source = NULL;
    const cy_source_options source_options = {.tokenizer = other};
    char wanted[600];
    snprintf(wanted, sizeof(wanted),
        "%s/one was prepared with another tokenizer (hash %016llx, this one has %016llx)", folder,
        (unsigned long long)cy_tokenizer_hash(tokenizer),
        (unsigned long long)cy_tokenizer_hash(other));
    assert_int_equal(cy_source_open(&source, in_folder("one"), &source_options), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(), wanted);
    cy_tokenizer_close(other);
}

// What a file is called does not tell what it holds.
static void a_shard_is_known_by_its_header(void **state)
{
    (void)state;
    static const char *const names[] = {"other.tokens", "other.bin", "other.txt", "other"};
    cy_prepare_result result;
    const char *paths[] = {in_folder("p1.txt")};
    CY_CHECK_OK(prepare(in_folder("renamed"), paths, 1, 1, 0, &result));
    cy_text text = {0};
    int32_t wanted[8], ids[8];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char shard[600], place[600];
        snprintf(shard, sizeof(shard), "%s", in_folder("renamed/shard-00000.tokens"));
        snprintf(place, sizeof(place), "%s", in_folder(names[i]));
        cy_token_source *source = NULL;
        CY_CHECK_OK(cy_source_open(&source, in_folder("renamed"), &(cy_source_options){0}));
        CY_CHECK_OK(cy_source_read(source, wanted, 0, 8));
        cy_source_close(source);
        assert_int_equal(rename(shard, place), 0);
        CY_CHECK_OK(cy_source_open(&source, place, &(cy_source_options){0}));
        assert_string_equal(source->ops->name, "shards");
        assert_int_equal(source->token_count, result.tokens);
        assert_true(source->tokenizer_hash == cy_tokenizer_hash(tokenizer));
        CY_CHECK_OK(cy_source_read(source, ids, 0, 8));
        assert_memory_equal(ids, wanted, sizeof(ids));
        cy_source_close(source);
        CY_CHECK_OK(cy_data_inspect(&text, place, 0));
        assert_non_null(strstr(text.bytes, "shards      1, 2 bytes a token"));
        cy_text_free(&text);
        assert_int_equal(rename(place, shard), 0);
    }
}

int main(void)
{
    cy_test_folder(folder, sizeof(folder));
    char *text = make_text(20000);
    const cy_tokenizer_text texts[1] = {{.text = text, .bytes = 20000}};
    const cy_tokenizer_train_options options = {.vocab_size = 320};
    CY_CHECK_OK(cy_tokenizer_train(&tokenizer, texts, 1, &options));
    free(text);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_shards_do_not_change_the_tokens),
        cmocka_unit_test(every_kind_of_file_is_read),
        cmocka_unit_test(damaged_files_are_named_and_leave_nothing),
        cmocka_unit_test(a_stop_leaves_nothing),
        cmocka_unit_test(what_is_there_is_not_written_over),
        cmocka_unit_test(only_what_dead_runs_left_is_swept),
        cmocka_unit_test(progress_counts_the_bytes_of_all_files),
        cmocka_unit_test(the_template_may_end_documents),
        cmocka_unit_test(shards_end_where_they_are_full),
        cmocka_unit_test(another_tokenizer_is_refused),
        cmocka_unit_test(a_shard_is_known_by_its_header),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cy_tokenizer_close(tokenizer);
    return failed;
}
