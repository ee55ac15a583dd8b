// What is damaged, cut, missing or too new is named; a save that fails leaves the earlier ones.
#define _GNU_SOURCE
#include "support/manifests.h"
#include "support/ranks.h"
#include "support/saves.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/manifest.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// The values of step N are those of run N.
static cy_test_state state_of(const char *folder, int64_t step, int scale)
{
    return (cy_test_state){
        .folder = folder, .mesh = {1, 1, 1}, .scale = scale, .run = (int)step, .step = step};
}

static cy_status save_at(const char *folder, int64_t step, int scale)
{
    const cy_test_state state = state_of(folder, step, scale);
    const cy_save also = {.config_json = "{}", .state_json = "{}"};
    return cy_test_save(&state, cy_group_self(), 0, also);
}

// Loads all tensors of a checkpoint with two threads, as a job would: into rows that lie side by
// side, so that chunks are checked where they belong, or apart, so that they pass through a buffer.
static cy_status load_whole(cy_checkpoint *checkpoint, int64_t step, int scale, int gap)
{
    cy_test_state state = state_of(NULL, step, scale);
    cy_checkpoint_traffic traffic = {0};
    state.gap = gap;
    CY_CHECK_OK(cy_thread_pool_open(&checkpoint->pool, 2, -1, false));
    const cy_status status = cy_test_load(checkpoint, &state, cy_group_self(), &traffic);
    cy_thread_pool_close(checkpoint->pool);
    checkpoint->pool = NULL;
    return status;
}

// Opens, verifies and loads: all three ways of looking at the bytes say the same.
static cy_status check_whole_of(const char *path, int64_t step, int scale)
{
    cy_checkpoint checkpoint = {0};
    cy_checkpoint_traffic traffic = {0};
    char text[1024];
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    cy_status status[3];
    for (int gap = 0; gap <= 1; gap++)
        status[gap] = load_whole(&checkpoint, step, scale, gap);
    snprintf(text, sizeof(text), "%s", status[1] != CY_OK ? cy_error_text() : "");
    status[2] = cy_checkpoint_verify(&checkpoint, CY_TENSOR_KINDS, cy_group_self(), &traffic);
    assert_int_equal(status[0], status[2]);
    assert_int_equal(status[1], status[2]);
    if (status[2] != CY_OK) assert_string_equal(text, cy_error_text());
    cy_checkpoint_close(&checkpoint);
    return status[2];
}

static cy_status check_whole(const char *path)
{
    return check_whole_of(path, 1, 1);
}

static const char *const names[] = {
    "manifest.json", "weights-00000.safetensors", "optimizer-00000.safetensors"};

static void a_flipped_bit_anywhere_is_named(void **state)
{
    (void)state;
    char folder[256], path[300], file[400];
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(save_at(folder, 1, 1));
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    CY_CHECK_OK(check_whole(path));
    for (int i = 0; i < 3; i++) {
        cy_text text = {0};
        snprintf(file, sizeof(file), "%s/%s", path, names[i]);
        CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
        for (size_t at = 0; at < text.length; at += 1 + text.length / 150) {
            text.bytes[at] ^= (char)(1 << at % 8);
            cy_test_put_file(file, text.bytes, text.length);
            const cy_status status = check_whole(path);
            // A manifest whose version is another number is of another version.
            if (status != CY_ERR_UNSUPPORTED) CY_CHECK_FAILS(status, CY_ERR_CORRUPT, names[i]);
            text.bytes[at] ^= (char)(1 << at % 8);
        }
        cy_test_put_file(file, text.bytes, text.length);
        cy_text_free(&text);
    }
    CY_CHECK_OK(check_whole(path));
}

static void flip_in_norm(const char *path)
{
    char file[400];
    cy_checkpoint checkpoint;
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    const cy_stored_tensor *stored =
        cy_checkpoint_find(&checkpoint, CY_TENSOR_ADAM_V, "model.norm.weight");
    assert_non_null(stored);
    const cy_stored_shard *piece = &stored->pieces[0];
    snprintf(file, sizeof(file), "%s/%s", path, checkpoint.files[piece->file].name);
    cy_test_flip(file, (long)piece->offset + 279L * 4, 4);
    cy_checkpoint_close(&checkpoint);
}

static void a_flipped_bit_names_its_tensor(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(save_at(folder, 1, 40));
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    flip_in_norm(path);
    CY_CHECK_FAILS(check_whole_of(path, 1, 40), CY_ERR_CORRUPT, "optimizer-00000.safetensors");
    CY_CHECK_FAILS(
        check_whole_of(path, 1, 40), CY_ERR_CORRUPT, "tensor adam_v of model.norm.weight");
}

typedef struct damaged_job {
    const char *path;
    atomic_int named; // ranks that met the damage
    atomic_int told;  // ranks that heard of it
} damaged_job;

static void load_damaged(void *context, cy_group *ranks)
{
    damaged_job *job = context;
    cy_checkpoint checkpoint;
    cy_checkpoint_traffic traffic = {0};
    cy_test_state state = state_of(NULL, 1, 40);
    state.mesh = (cy_test_mesh){1, 3, 1};
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, job->path));
    const cy_status status = cy_test_load(&checkpoint, &state, ranks, &traffic);
    const char *text = cy_error_text();
    if (status == CY_ERR_CORRUPT && strstr(text, "tensor adam_v of model.norm.weight") != NULL) {
        atomic_fetch_add(&job->named, 1);
    }
    if (status == CY_ERR_PEER && strstr(text, "another rank could not read") != NULL) {
        atomic_fetch_add(&job->told, 1);
    }
    cy_checkpoint_close(&checkpoint);
}

// The rank that checks the chunk names it, and no rank goes on.
static void all_ranks_learn_of_a_flipped_bit(void **state)
{
    (void)state;
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(save_at(folder, 1, 40));
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    flip_in_norm(path);
    damaged_job job = {.path = path};
    cy_test_ranks(3, load_damaged, &job);
    assert_int_equal(atomic_load(&job.named), 1);
    assert_int_equal(atomic_load(&job.told), 2);
}

static void every_file_cut_at_every_tenth_is_named(void **state)
{
    (void)state;
    char folder[256], path[300], file[400];
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(save_at(folder, 1, 1));
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    for (int i = 0; i < 3; i++) {
        cy_text text = {0};
        snprintf(file, sizeof(file), "%s/%s", path, names[i]);
        CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
        for (size_t tenth = 0; tenth < 10; tenth++) {
            cy_test_put_file(file, text.bytes, text.length * tenth / 10);
            CY_CHECK_FAILS(check_whole(path), CY_ERR_CORRUPT, names[i]);
        }
        assert_int_equal(unlink(file), 0);
        if (i == 0) {
            CY_CHECK_FAILS(check_whole(path), CY_ERR_REQUEST, "is no checkpoint");
        } else {
            CY_CHECK_FAILS(check_whole(path), CY_ERR_CORRUPT, "is missing");
            CY_CHECK_FAILS(check_whole(path), CY_ERR_CORRUPT, names[i]);
        }
        cy_test_put_file(file, text.bytes, text.length);
        cy_text_free(&text);
    }
    CY_CHECK_OK(check_whole(path));
}

static void manifests_that_lie_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *words;
        cy_status status;
        bool sealed;
    } cases[] = {
        {"\"format_version\": 1", "\"format_version\": 2",
            "format version 2, this program reads version 1", CY_ERR_UNSUPPORTED, false},
        {"\"format_version\"", "\"version\"", "not a checkpoint", CY_ERR_CORRUPT, true},
        {"\"step\": 1", "\"step\": 3", "changed since it was written", CY_ERR_CORRUPT, false},
        {"\"step\": 1", "\"step\": -3", "step is missing or not a count", CY_ERR_CORRUPT, true},
        {"\"shape\": [11, 6]", "\"shape\": [11, 7]", "a gap or an overlap", CY_ERR_CORRUPT, true},
        {"\"shape\": [11, 6]", "\"shape\": [4611686018427387904, 6]", "dimension 0", CY_ERR_CORRUPT,
            true},
        {"\"shape\": [11, 6]", "\"shape\": [0, 6]", "dimension 0", CY_ERR_CORRUPT, true},
        {"\"dtype\": \"F32\"", "\"dtype\": \"F8\"", "dtype F8", CY_ERR_CORRUPT, true},
        {"\"kind\": \"adam_m\"", "\"kind\": \"weight\"", "is there twice", CY_ERR_CORRUPT, true},
        {"{\"file\": 0, ", "{\"file\": 9, ", "file 9 of 2", CY_ERR_CORRUPT, true},
        {"\"offset\": ", "\"offset\": 99", "do not lie in the data", CY_ERR_CORRUPT, true},
        {"\"checksums\": \"", "\"checksums\": \"0", "one checksum for each", CY_ERR_CORRUPT, true},
        {"weights-00000", "../weights-0", "is not a name of a file here", CY_ERR_CORRUPT, true},
        {"\"offset\"", "\"rows\": [0, 1], \"offset\"", "a gap or an overlap", CY_ERR_CORRUPT, true},
        {"\"offset\"", "\"elements\": [3, 99], \"offset\"", "not a range within", CY_ERR_CORRUPT,
            true},
    };
    char folder[256], path[300], file[400];
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(save_at(folder, 1, 1));
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    snprintf(file, sizeof(file), "%s/manifest.json", path);
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_test_edit_manifest(path, cases[i].from, cases[i].to, cases[i].sealed);
        CY_CHECK_FAILS(check_whole(path), cases[i].status, cases[i].words);
        CY_CHECK_FAILS(check_whole(path), cases[i].status, "manifest.json");
        cy_test_put_file(file, text.bytes, text.length);
    }
    cy_test_edit_manifest(path, "\"step\": 1", "\"step\": 4", true); // the seal itself is right
    CY_CHECK_OK(check_whole(path));
    cy_text_free(&text);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    while (readdir(entries) != NULL)
        count++;
    closedir(entries);
    return count - 2;
}

// A limit on the size of files refuses in the middle of a save, as a full disk does.
static void a_full_disk_leaves_the_earlier_checkpoint(void **state)
{
    (void)state;
    char folder[256], path[300];
    struct rlimit before;
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(save_at(folder, 1, 30));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    static const rlim_t limits[] = {0, 100, 5000, 500000};
    for (int i = 0; i < 4; i++) {
        const struct rlimit limit = {.rlim_cur = limits[i], .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        CY_CHECK_FAILS(save_at(folder, 2, 30), CY_ERR_IO, "safetensors: File too large");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(count_entries(folder), 2); // the lock and step 1
        snprintf(path, sizeof(path), "%s/step-00000001", folder);
        CY_CHECK_OK(check_whole_of(path, 1, 30));
    }
    CY_CHECK_OK(save_at(folder, 2, 30));
    snprintf(path, sizeof(path), "%s/step-00000002", folder);
    CY_CHECK_OK(check_whole_of(path, 2, 30));
}

static void a_folder_that_holds_none_is_said(void **state)
{
    (void)state;
    char folder[256], path[300], *found = NULL;
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_FAILS(cy_checkpoint_locate(&found, folder), CY_ERR_REQUEST,
        "holds no checkpoint: no manifest.json, no step-N folder, no config.json");
    snprintf(path, sizeof(path), "%s/none", folder);
    CY_CHECK_FAILS(cy_checkpoint_locate(&found, path), CY_ERR_REQUEST, "is not a folder");
    // Without a manifest a folder of that name is none of ours.
    snprintf(path, sizeof(path), "%s/step-00000009", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    CY_CHECK_FAILS(cy_checkpoint_locate(&found, folder), CY_ERR_REQUEST,
        "holds no checkpoint: its 1 step-N folder has no manifest.json");
    CY_CHECK_OK(save_at(folder, 3, 1));
    CY_CHECK_OK(cy_checkpoint_locate(&found, folder));
    assert_non_null(strstr(found, "step-00000003"));
    cy_memory_free(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_anywhere_is_named),
        cmocka_unit_test(a_flipped_bit_names_its_tensor),
        cmocka_unit_test(all_ranks_learn_of_a_flipped_bit),
        cmocka_unit_test(every_file_cut_at_every_tenth_is_named),
        cmocka_unit_test(manifests_that_lie_are_refused),
        cmocka_unit_test(a_full_disk_leaves_the_earlier_checkpoint),
        cmocka_unit_test(a_folder_that_holds_none_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
