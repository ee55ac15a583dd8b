// A manifest as a text: what it says is read and written back to the letter, and what it cannot
// mean is told in full.

#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/output.h"
#include "checkpoint/manifest.h"
#include "checkpoint/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// 10 bytes of head, two rows of 3 F32, and 13 BF16 in two parts.
static const char base[] =
    "{\n  \"format_version\": 1,\n  \"step\": 5,\n  \"tokens\": 70,\n"
    "  \"state\": {\n  \"a\": 1\n},\n  \"files\": [\n"
    "    {\"name\": \"w\", \"bytes\": 60, \"head_bytes\": 10, \"checksums\": "
    "\"0123456789abcde0\"}\n"
    "  ],\n"
    "  \"tensors\": [\n"
    "    {\"name\": \"t\", \"kind\": \"weight\", \"dtype\": \"F32\", \"shape\": [2, 3], "
    "\"pieces\": [\n"
    "      {\"file\": 0, \"offset\": 10, \"rows\": [0, 1], \"checksums\": \"0123456789abcde1\"},\n"
    "      {\"file\": 0, \"offset\": 22, \"rows\": [1, 1], \"checksums\": \"0123456789abcde2\"}\n"
    "    ]},\n"
    "    {\"name\": \"v\", \"kind\": \"adam_m\", \"dtype\": \"BF16\", \"shape\": [13], "
    "\"pieces\": [\n"
    "      {\"file\": 0, \"offset\": 34, \"columns\": [0, 6], \"checksums\": "
    "\"0123456789abcde3\"},\n"
    "      {\"file\": 0, \"offset\": 46, \"columns\": [6, 7], \"checksums\": "
    "\"0123456789abcde4\"}\n"
    "    ]}\n  ],\n  ";

// The text with `from` replaced, and its checksum behind it.
static size_t make_text(char *text, size_t room, const char *from, const char *to)
{
    const char *place = strstr(base, from);
    assert_non_null(place);
    const int head =
        snprintf(text, room, "%.*s%s%s", (int)(place - base), base, to, place + strlen(from));
    const int tail = snprintf(text + head, room - (size_t)head,
        "\"checksum\": \"%016" PRIx64 "\"\n}\n", cy_checksum(text, (size_t)head));
    assert_in_range(head + tail, 1, room - 1);
    return (size_t)head + (size_t)tail;
}

static cy_status read_edited(cy_checkpoint *checkpoint, const char *from, const char *to, bool part)
{
    char text[3000];
    const size_t length = make_text(text, sizeof(text), from, to);
    return cy_checkpoint_from_json(checkpoint, text, length, "m.json", part);
}

static void what_it_says_comes_back(void **state)
{
    (void)state;
    cy_checkpoint checkpoint;
    char text[3000];
    const size_t length = make_text(text, sizeof(text), "", "");
    CY_CHECK_OK(cy_checkpoint_from_json(&checkpoint, text, length, "m.json", false));
    assert_int_equal(checkpoint.step, 5);
    assert_int_equal(checkpoint.tokens, 70);
    assert_false(checkpoint.has_model);
    assert_null(checkpoint.config_json);
    assert_string_equal(checkpoint.state_json, "{\n  \"a\": 1\n}");
    assert_int_equal(checkpoint.file_count, 1);
    assert_int_equal(checkpoint.files[0].bytes, 60);
    assert_int_equal(checkpoint.files[0].head_bytes, 10);
    assert_true(checkpoint.files[0].checksums[0] == UINT64_C(0x0123456789abcde0));
    assert_int_equal(checkpoint.tensor_count, 2);
    assert_int_equal(checkpoint.piece_count, 4);
    const cy_stored_tensor *v = cy_checkpoint_find(&checkpoint, CY_TENSOR_ADAM_M, "v");
    assert_non_null(v);
    assert_null(cy_checkpoint_find(&checkpoint, CY_TENSOR_WEIGHT, "v"));
    assert_null(cy_checkpoint_find(&checkpoint, CY_TENSOR_ADAM_M, "w"));
    assert_int_equal(v->tensor.dimensions, 1);
    assert_int_equal(v->tensor.rows, 1);
    assert_int_equal(v->tensor.cols, 13);
    assert_int_equal(v->tensor.dtype, CY_BF16);
    assert_int_equal(v->piece_count, 2);
    assert_int_equal(v->pieces[1].offset, 46);
    assert_int_equal(v->pieces[1].piece.rectangle.col_first, 6);
    assert_int_equal(v->pieces[1].piece.count, 7);
    assert_int_equal(cy_stored_shard_bytes(&v->pieces[1]), 14);
    cy_text back = {0};
    CY_CHECK_OK(cy_checkpoint_to_json(&back, &checkpoint));
    assert_string_equal(back.bytes, text);
    cy_text_free(&back);
    cy_checkpoint_close(&checkpoint);
    const cy_checkpoint empty = {0};
    assert_null(cy_checkpoint_find(&empty, CY_TENSOR_WEIGHT, "v"));
}

// jansson's own printer goes on where it could not take the name of a field.
static void an_object_is_whole_or_memory_was_out(void **state)
{
    (void)state;
    cy_checkpoint checkpoint;
    const char *const object = "{\n  \"a_name_that_takes_some_room\": 1,\n"
                               "  \"another_name_that_takes_more_room\": 2\n}";
    char member[200], text[3000];
    snprintf(member, sizeof(member), "\"state\": %s", object);
    const size_t length = make_text(text, sizeof(text), "\"state\": {\n  \"a\": 1\n}", member);
    for (int at = cy_test_json_allocations(text, length) + 1;; at++) {
        cy_test_json_fails_at(at);
        const cy_status status =
            cy_checkpoint_from_json(&checkpoint, text, length, "m.json", false);
        const bool failed = cy_test_json_has_failed();
        cy_test_json_fails_at(0);
        if (status == CY_OK) {
            assert_string_equal(checkpoint.state_json, object);
            cy_checkpoint_close(&checkpoint);
        }
        if (!failed) {
            CY_CHECK_OK(status);
            return;
        }
    }
}

static void a_name_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    char name[] = "w\xff";
    cy_checkpoint_file file = {.name = name, .fd = -1};
    const cy_checkpoint checkpoint = {.files = &file, .file_count = 1};
    cy_text json = {0};
    CY_CHECK_FAILS(cy_checkpoint_to_json(&json, &checkpoint), CY_ERR_REQUEST,
        "a name in a checkpoint is not UTF-8");
    cy_text_free(&json);
}

#define COUNT_OF(what)          what " is missing or not a count"
#define NOT_ONE(n)              "tensor t: dimension " n " of its shape is not one"
#define NOT_WITHIN(what, total) what " is not a range within " total
#define OUTSIDE(name, range)    "tensor " name ": bytes " range " do not lie in the data of w"
#define GAP(byte)               "w: a gap or an overlap of tensors at byte " byte

// Of the checksums below, which differ in their last digit.
#define SUM(digit) "\"checksums\": \"0123456789abcde" digit "\""

static const struct {
    const char *from, *to, *text; // behind "m.json: "; NULL: it may be so
} meanings[] = {
    {"\"step\": 5", "\"step\": -1", COUNT_OF("step")},
    {"\"step\": 5", "\"step\": 5.5", COUNT_OF("step")},
    {"\"step\": 5", "\"step\": 0", NULL},
    {"\"tokens\": 70", "\"token\": 70", COUNT_OF("tokens")},
    {"\"state\": {\n  \"a\": 1\n}", "\"state\": [1]", "state is not an object"},
    {"\"state\": {\n  \"a\": 1\n}", "\"config\": 3", "config is not an object"},
    {"\"state\": {\n  \"a\": 1\n}", "\"model\": \"m\"", "model is not an object"},
    {"\"files\"", "\"file\"", "files or tensors is missing or not a list"},
    {"\"files\": [", "\"files\": {}, \"f\": [", "files or tensors is missing or not a list"},
    {"\"tensors\"", "\"tensor\"", "files or tensors is missing or not a list"},
    {"\"name\": \"w\"", "\"name\": \"\"", "a name is missing or not a text"},
    {"\"name\": \"t\"", "\"name\": 3", "a name is missing or not a text"},
    {"\"name\": \"w\"", "\"name\": \".w\"", ".w is not a name of a file here"},
    {"\"name\": \"w\"", "\"name\": \"a/w\"", "a/w is not a name of a file here"},
    {"\"name\": \"w\"", "\"name\": \"w.\"", NULL},
    {"\"bytes\": 60", "\"bytes\": -60", COUNT_OF("bytes")},
    {"\"bytes\": 60", "\"bytes\": 61", GAP("60")},
    {"\"bytes\": 60", "\"bytes\": 59", OUTSIDE("v", "46+14")},
    {"\"bytes\": 60", "\"bytes\": 45", OUTSIDE("v", "34+12")},
    {"\"head_bytes\": 10", "\"head_bytes\": 61", "w: 61 head bytes of 60"},
    {"\"head_bytes\": 10", "\"head_bytes\": 60", OUTSIDE("t", "10+12")},
    {"\"head_bytes\": 10", "\"head_bytes\": 11", OUTSIDE("t", "10+12")},
    {"\"head_bytes\": 10", "\"head_bytes\": 9", GAP("9")},
    {"\"head_bytes\": 10", "\"head_bytes\": 0", "not one checksum for each of 0 chunks"},
    {SUM("1"), "\"checksums\": \"0123456789abcde\"", "not one checksum for each of 1 chunks"},
    {SUM("1"), "\"checksums\": 3", "not one checksum for each of 1 chunks"},
    {SUM("1"), SUM("1\", \"x\": \""), NULL},
    {SUM("0"), SUM("g"), "checksum 0 is not hexadecimal"},
    {SUM("1"), SUM("/"), "checksum 0 is not hexadecimal"},
    {SUM("1"), SUM(":"), "checksum 0 is not hexadecimal"},
    {SUM("1"), SUM("`"), "checksum 0 is not hexadecimal"},
    {SUM("1"), SUM("A"), "checksum 0 is not hexadecimal"},
    {SUM("1"), SUM("9"), NULL},
    {SUM("1"), SUM("f"), NULL},
    {"\"kind\": \"weight\"", "\"kind\": \"weigh\"", "tensor t: kind weigh, dtype F32"},
    {"\"kind\": \"weight\"", "\"sort\": \"weight\"", "tensor t: kind missing, dtype F32"},
    {"\"kind\": \"weight\"", "\"kind\": \"abcdefghijklmnopqrstuvw\"",
        "tensor t: kind abcdefghijklmnopqrst, dtype F32"},
    {"\"kind\": \"weight\"", "\"kind\": \"unknown\"", "tensor t: kind unknown, dtype F32"},
    {"\"kind\": \"weight\"", "\"kind\": \"other\"", NULL},
    {"\"dtype\": \"F32\"", "\"dtype\": \"fp32\"", "tensor t: kind weight, dtype fp32"},
    {"\"dtype\": \"F32\"", "\"type\": \"F32\"", "tensor t: kind weight, dtype missing"},
    {"\"dtype\": \"F32\"", "\"dtype\": \"I32\"", NULL},
    {"[2, 3]", "[]", "tensor t: its shape has 0 dimensions"},
    {"[2, 3]", "[1, 2, 3]", "tensor t: its shape has 3 dimensions"},
    {"[2, 3]", "[0, 3]", NOT_ONE("0")},
    {"[2, 3]", "[2, 0]", NOT_ONE("1")},
    {"[2, 3]", "[2, -3]", NOT_ONE("1")},
    {"[2, 3]", "[\"2\", 3]", NOT_ONE("0")},
    {"[2, 3]", "[576460752303423488]", NOT_ONE("0")},
    {"[2, 3]", "[576460752303423487]", OUTSIDE("t", "10+2305843009213693948")},
    {"[2, 3]", "[2, 288230376151711744]", NOT_ONE("1")},
    {"[2, 3]", "[2, 288230376151711743]", OUTSIDE("t", "10+1152921504606846972")},
    {"[2, 3]", "[1, 3]", NOT_WITHIN("rows", "1")},
    {"[0, 1]", "[0, 3]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[0, 0]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[-1, 1]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[2, 1]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[3, 1]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[0]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[0, 1, 2]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[0, \"1\"]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[\"0\", 1]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[0.0, 1]", NOT_WITHIN("rows", "2")},
    {"[0, 1]", "[0, 9223372036854775807]", NOT_WITHIN("rows", "2")},
    {"[6, 7]", "[6, 8]", NOT_WITHIN("columns", "13")},
    {"[0, 1]", "[0, 1], \"elements\": [0, 4]", NOT_WITHIN("elements", "3")},
    {"[0, 1]", "[0, 1], \"elements\": [0, 3]", NULL},
    {"[0, 1]", "[0, 1], \"elements\": [0, 2]", GAP("18")},
    {"\"file\": 0", "\"file\": 1", "tensor t: file 1 of 1"},
    {"\"file\": 0", "\"file\": -1", COUNT_OF("file")},
    {"\"offset\": 10", "\"at\": 10", COUNT_OF("offset")},
    {"\"offset\": 10", "\"offset\": 9", OUTSIDE("t", "9+12")},
    {"\"offset\": 10", "\"offset\": 61", OUTSIDE("t", "61+12")},
    {"\"offset\": 10", "\"offset\": 9223372036854775807", OUTSIDE("t", "9223372036854775807+12")},
    {"\"offset\": 22", "\"offset\": 23", GAP("22")},
    {"\"offset\": 22", "\"offset\": 10", GAP("22")},
    {"\"offset\": 46", "\"offset\": 45", GAP("46")},
    {"\"offset\": 46", "\"offset\": 47", OUTSIDE("v", "47+14")},
    {"[1, 1]", "[0, 1]", "t: elements 0 to 3 of rows 0+1, columns 0+3 are there twice"},
    {"[6, 7]", "[5, 7]", "adam_m of v: rows 0+1, columns 5+7 are there twice"},
    {"\"v\", \"kind\": \"adam_m\"", "\"t\", \"kind\": \"weight\"", "tensor t is there twice"},
    {"\"v\", \"kind\": \"adam_m\"", "\"v\", \"kind\": \"weight\"", NULL},
    {"\"format_version\": 1", "\"format_version\": \"1\"", "no format_version: not a checkpoint"},
    {"\"step\": 5", "\"step\": 5, \"step\": 5",
        "line 3, column 19: duplicate object key near '\"step\"'"},
};

static void what_it_cannot_mean_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        char wanted[300];
        cy_checkpoint checkpoint;
        const cy_status status = read_edited(&checkpoint, meanings[i].from, meanings[i].to, false);
        if (meanings[i].text == NULL) {
            CY_CHECK_OK(status);
            cy_checkpoint_close(&checkpoint);
            continue;
        }
        snprintf(wanted, sizeof(wanted), "m.json: %s", meanings[i].text);
        if (status == CY_OK) fail_msg("not refused: %s", wanted);
        assert_string_equal(cy_error_text(), wanted);
        assert_int_equal(status, CY_ERR_CORRUPT);
    }
    // What one rank wrote need not cover its tensors, but must fill its file.
    cy_checkpoint checkpoint;
    CY_CHECK_OK(read_edited(&checkpoint, "[1, 1]", "[0, 1]", true));
    cy_checkpoint_close(&checkpoint);
    CY_CHECK_FAILS(read_edited(&checkpoint, "\"offset\": 22", "\"offset\": 23", true),
        CY_ERR_CORRUPT, "m.json: " GAP("22"));
}

static void other_versions_are_told_apart(void **state)
{
    (void)state;
    static const char *const versions[] = {"0", "2", "3"};
    for (int i = 0; i < 3; i++) {
        char text[80];
        cy_checkpoint checkpoint;
        snprintf(text, sizeof(text), "\"format_version\": %s", versions[i]);
        assert_int_equal(
            read_edited(&checkpoint, "\"format_version\": 1", text, false), CY_ERR_UNSUPPORTED);
        snprintf(text, sizeof(text), "m.json: format version %s, this program reads version 1",
            versions[i]);
        assert_string_equal(cy_error_text(), text);
        assert_string_equal(
            cy_error_hint(), i == 0 ? "" : "a newer cyclotron wrote it, and can read it");
    }
}

static void the_checksum_must_stand_at_the_end(void **state)
{
    (void)state;
    static const struct {
        const char *tail;
        bool whole; // it is read as a checksum
    } cases[] = {
        {"\"checksum\": \"0000000000000000\"\n}\n", true},
        {"\"checksum\": \"000000000000000g\"\n}\n", false},
        {"\"checksum\": \"000000000000000A\"\n}\n", false},
        {"\"checksum\": \"0000000000000000\"\n}\n\n", false},
        {"\"checksum\": \"0000000000000000\"\n} ", false},
        {"\"checksum\":  \"0000000000000000\"\n}", false},
        {"\"checksun\": \"0000000000000000\"\n}\n", false},
        {"\"checksum\": \"0000000000000000\" }\n", false},
    };
    char text[3000];
    cy_checkpoint checkpoint;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char wanted[200] = "m.json: does not end with its checksum: cut or changed";
        snprintf(text, sizeof(text), "%s%s", base, cases[i].tail);
        if (cases[i].whole) {
            snprintf(wanted, sizeof(wanted),
                "m.json: changed since it was written: checksum %016" PRIx64
                ", it says 0000000000000000",
                cy_checksum(base, strlen(base)));
        }
        assert_int_equal(cy_checkpoint_from_json(&checkpoint, text, strlen(text), "m.json", false),
            CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), wanted);
    }
    // Shorter than an end, and no longer than one.
    static const char *const small[] = {"{\"format_version\": 1}",
        "{\"format_version\": 1, \"checksum\": 00}",
        "{ \"format_version\" : 1,   \"aaaa\"  :   \"\"}"};
    for (int i = 0; i < 3; i++) {
        const cy_status status =
            cy_checkpoint_from_json(&checkpoint, small[i], strlen(small[i]), "m.json", false);
        assert_int_equal(status, CY_ERR_CORRUPT);
    }
}

// ---- names of folders

static void steps_have_names_of_8_to_18_digits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t step; // -1 is none
    } cases[] = {
        {"step-00000007", 7},
        {"step-0000007", -1},
        {"step-000000000000000014", 14},
        {"step-0000000000000000015", -1},
        {"step-00000016.tmp", -1},
        {"stop-00000013", -1},
        {"step-00000100", 100},
        {"step-0000000a", -1},
        {"step-00000001x", -1},
        {"step-123456789", 123456789},
        {"step-999999999999999999", INT64_C(999999999999999999)},
        {"step-1000000000000000000", -1},
        {"Step-00000003", -1},
        {"step00000003", -1},
        {".step-00000004", -1},
        {"step-", -1},
    };
    char folder[200], path[300];
    int64_t *steps = NULL;
    int count = -1;
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(cy_folder_steps(&steps, &count, folder));
    assert_int_equal(count, 0);
    cy_memory_free(steps);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, cases[i].name);
        CY_CHECK_OK(cy_folder_make(path));
        snprintf(path, sizeof(path), "%s/%s/manifest.json", folder, cases[i].name);
        CY_CHECK_OK(cy_file_write(path, "x", 1));
    }
    snprintf(path, sizeof(path), "%s/step-00000050", folder); // not finished
    CY_CHECK_OK(cy_folder_make(path));
    assert_int_equal(cy_folder_step_names(folder), 6);
    CY_CHECK_OK(cy_folder_steps(&steps, &count, folder));
    assert_int_equal(count, 5);
    assert_int_equal(steps[0], 7);
    assert_int_equal(steps[1], 14);
    assert_int_equal(steps[2], 100);
    assert_int_equal(steps[3], 123456789);
    assert_int_equal(steps[4], INT64_C(999999999999999999));
    cy_memory_free(steps);
    // Only what a save left behind is swept away.
    CY_CHECK_OK(cy_folder_sweep(&count, folder));
    assert_int_equal(count, 1);
    assert_false(cy_path_exists((snprintf(path, sizeof(path), "%s/.step-00000004", folder), path)));
    assert_int_equal(cy_folder_step_names(folder), 6);
    snprintf(path, sizeof(path), "%s/none", folder);
    assert_int_equal(cy_folder_step_names(path), 0);
    char wanted[400];
    snprintf(wanted, sizeof(wanted), "open folder %s: No such file or directory", path);
    assert_int_equal(cy_folder_steps(&steps, &count, path), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
    assert_int_equal(cy_folder_sweep(&count, path), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
    assert_int_equal(cy_folder_sync(path), CY_ERR_IO);
    assert_string_equal(cy_error_text(), wanted);
    CY_CHECK_OK(cy_folder_remove(path)); // it is gone
    snprintf(wanted, sizeof(wanted), "remove %s/%s", folder, "");
    CY_CHECK_FAILS(cy_folder_remove(folder), CY_ERR_IO, wanted); // folders in it stay
}

static void paths_are_put_together(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a", "a/b"}, {"a/", "a/b"}, {"/", "/b"}, {"", "/b"}, {"a//", "a//b"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *path = NULL;
        CY_CHECK_OK(cy_folder_join(&path, cases[i][0], "b"));
        assert_string_equal(path, cases[i][1]);
        cy_memory_free(path);
    }
    char *path = NULL;
    CY_CHECK_OK(cy_folder_step_path(&path, "a", ".", 42, ".tmp"));
    assert_string_equal(path, "a/.step-00000042.tmp");
    cy_memory_free(path);
}

static void a_place_is_made_by_one(void **state)
{
    (void)state;
    char folder[200], before[500];
    cy_pending_folder place;
    cy_test_folder(folder, sizeof(folder));
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    // Two at once have names of their own; the first that is whole is there, the other is refused
    // and leaves nothing.
    cy_pending_folder other;
    char file[400];
    CY_CHECK_OK(cy_pending_folder_open(&place, "both"));
    CY_CHECK_OK(cy_pending_folder_open(&other, "both"));
    CY_CHECK_OK(cy_pending_folder_make(&place));
    CY_CHECK_OK(cy_pending_folder_make(&other));
    assert_string_not_equal(place.making, other.making);
    snprintf(file, sizeof(file), "%s/file", place.making);
    CY_CHECK_OK(cy_file_write(file, "first", 5));
    snprintf(file, sizeof(file), "%s/file", other.making);
    CY_CHECK_OK(cy_file_write(file, "second", 6));
    CY_CHECK_OK(cy_pending_folder_close(&place, CY_OK));
    assert_int_equal(cy_pending_folder_close(&other, CY_OK), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(), "both is there by now: it is not written over");
    assert_string_equal(cy_error_hint(), "name a new folder, or remove that one");
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, "both/file", 10));
    assert_string_equal(text.bytes, "first");
    cy_text_free(&text);
    assert_false(cy_path_exists("both/.making"));
    // What cannot be removed is said.
    CY_CHECK_OK(cy_pending_folder_open(&place, "stays"));
    CY_CHECK_OK(cy_pending_folder_make(&place));
    snprintf(file, sizeof(file), "%s/folder", place.making);
    CY_CHECK_OK(cy_folder_make(file));
    (void)CY_FAIL(CY_ERR_CORRUPT, "what was wrong");
    assert_int_equal(cy_pending_folder_close(&place, CY_ERR_CORRUPT), CY_ERR_CORRUPT);
    assert_string_equal(
        cy_error_text(), "what was wrong (and what was written could not be removed)");
    assert_string_equal(cy_error_hint(), "");
    assert_int_equal(chdir(before), 0);
}

static void a_place_is_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *path, *place, *parent, *making; // in front of its number
    } cases[] = {
        {"new", "new", ".", "./.new."},
        {"new///", "new", ".", "./.new."},
        {"a/b/new/", "a/b/new", "a/b", "a/b/.new."},
        {"a//new", "a//new", "a/", "a//.new."},
        {"./new", "./new", ".", "./.new."},
        {"/no-such-place-here", "/no-such-place-here", "/", "//.no-such-place-here."},
    };
    char folder[200], before[500];
    cy_test_folder(folder, sizeof(folder));
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_pending_folder place;
        CY_CHECK_OK(cy_pending_folder_open(&place, cases[i].path));
        assert_string_equal(place.place, cases[i].place);
        assert_string_equal(place.parent, cases[i].parent);
        const size_t length = strlen(cases[i].making);
        assert_int_equal(strncmp(place.making, cases[i].making, length), 0);
        assert_int_equal(strspn(place.making + length, "0123456789abcdef"), 16);
        assert_string_equal(place.making + length + 16, ".tmp");
        // A failure keeps its words and its advice.
        (void)CY_FAIL(CY_ERR_CORRUPT, "what was wrong");
        cy_error_set_hint("what to do");
        assert_int_equal(cy_pending_folder_close(&place, CY_ERR_CORRUPT), CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), "what was wrong");
        assert_string_equal(cy_error_hint(), "what to do");
        assert_null(place.place);
    }
    cy_pending_folder place;
    // An empty folder is replaced, nothing else is.
    CY_CHECK_OK(cy_folder_make("empty"));
    CY_CHECK_OK(cy_pending_folder_open(&place, "empty"));
    CY_CHECK_OK(cy_pending_folder_make(&place));
    CY_CHECK_OK(cy_pending_folder_close(&place, CY_OK));
    assert_true(cy_path_is_folder("empty"));
    CY_CHECK_OK(cy_file_write("full", "x", 1));
    assert_int_equal(cy_pending_folder_open(&place, "full"), CY_ERR_REQUEST);
    assert_string_equal(cy_error_text(), "full is there already: it is not written over");
    assert_string_equal(cy_error_hint(), "name a new folder, or remove that one");
    static const char *const none[] = {"", "/", "//", "///"};
    for (int i = 0; i < 4; i++) {
        char wanted[60];
        snprintf(wanted, sizeof(wanted), "\"%s\" is not a place for a folder", none[i]);
        assert_int_equal(cy_pending_folder_open(&place, none[i]), CY_ERR_REQUEST);
        assert_string_equal(cy_error_text(), wanted);
    }
    assert_int_equal(chdir(before), 0);
}

// ---- what differs

static cy_status compare_names(const char *const *there, const char *const *here, int count)
{
    static cy_stored_tensor stored[400];
    static cy_global_tensor wanted[400];
    static cy_stored_shard pieces[1];
    cy_checkpoint_file file = {.name = cy_memory_writable("f")};
    cy_checkpoint checkpoint = {
        .path = cy_memory_writable("P"), .files = &file, .file_count = 1, .tensors = stored};
    int wanted_count = 0;
    for (int i = 0; i < count; i++) {
        if (there[i] != NULL) {
            stored[checkpoint.tensor_count++] = (cy_stored_tensor){
                .tensor = {.name = there[i], .rows = 2, .cols = 3}, .pieces = pieces};
        }
        if (here[i] != NULL) {
            wanted[wanted_count++] = (cy_global_tensor){.name = here[i], .rows = 2, .cols = 3};
        }
    }
    CY_CHECK_OK(cy_checkpoint_finalize(&checkpoint, "P", true));
    return cy_checkpoint_check_tensors(&checkpoint, wanted, wanted_count);
}

static void what_differs_is_listed(void **state)
{
    (void)state;
    const char *there[] = {"a", "b", NULL};
    const char *here[] = {"a", "b", "c"};
    CY_CHECK_OK(compare_names(there, here, 2));
    assert_int_equal(compare_names(there, here, 3), CY_ERR_CORRUPT);
    assert_string_equal(
        cy_error_text(), "P: 1 of its tensors differ from what its model has: c: missing there");
    here[0] = "d";
    assert_int_equal(compare_names(there, here, 3), CY_ERR_CORRUPT);
    assert_string_equal(cy_error_text(),
        "P: 3 of its tensors differ from what its model has:"
        "\n  - d: missing there\n  - c: missing there"
        "\n  - f: a: unknown here");
}

// More than fits an error: layers that follow each other become one line, and no others.
static void layers_that_follow_each_other_are_folded(void **state)
{
    (void)state;
    static char names[120][60];
    const char *there[120] = {NULL}, *here[120];
    int count = 0;
    // 0 to 4 and 6 to 7 of x, all of y, and what stands in no layer or in another stack.
    for (int layer = 0; layer < 8; layer++) {
        if (layer != 5) snprintf(names[count++], 60, "model.layers.%d.x.weight", layer);
        snprintf(names[count++], 60, "model.layers.%d.y.weight", layer);
    }
    snprintf(names[count++], 60, "other.layers.8.y.weight");
    snprintf(names[count++], 60, "model.layers.8.y.bias12");
    snprintf(names[count++], 60, "model.norm.weight");
    for (int i = 0; i < 80; i++)
        snprintf(names[count++], 60, "model.stack.layers.%d.a.long.name.of.a.weight", i);
    for (int i = 0; i < count; i++)
        here[i] = names[i];
    assert_int_equal(compare_names(there, here, count), CY_ERR_CORRUPT);
    assert_string_equal(cy_error_text(),
        "P: 98 of its tensors differ from what its model has:"
        "\n  - model.layers.{0..4}.x.weight: missing there"
        "\n  - model.layers.{0..7}.y.weight: missing there"
        "\n  - model.layers.{6..7}.x.weight: missing there"
        "\n  - other.layers.8.y.weight: missing there"
        "\n  - model.layers.8.y.bias12: missing there"
        "\n  - model.norm.weight: missing there"
        "\n  - model.stack.layers.{0..79}.a.long.name.of.a.weight: missing there");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_says_comes_back),
        cmocka_unit_test(an_object_is_whole_or_memory_was_out),
        cmocka_unit_test(a_name_that_is_not_utf8_is_refused),
        cmocka_unit_test(what_it_cannot_mean_is_told),
        cmocka_unit_test(other_versions_are_told_apart),
        cmocka_unit_test(the_checksum_must_stand_at_the_end),
        cmocka_unit_test(steps_have_names_of_8_to_18_digits),
        cmocka_unit_test(paths_are_put_together),
        cmocka_unit_test(a_place_is_taken_apart),
        cmocka_unit_test(a_place_is_made_by_one),
        cmocka_unit_test(what_differs_is_listed),
        cmocka_unit_test(layers_that_follow_each_other_are_folded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
