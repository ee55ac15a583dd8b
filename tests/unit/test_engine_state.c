// What a checkpoint keeps of a run beside its tensors: the loss scale and strict mode's exponents
// come back as they were, and what is damaged is refused.

#include "support/engines.h"
#include "support/manifests.h"
#include "support/meshes.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "train/state.h"

#include <stdio.h>
#include <string.h>

typedef struct job {
    const char *folder; // of checkpoints
    bool saves;
    cy_loss_scaler scaler; // before the save, or after the load
    int exponents[256];
    int64_t exponent_count;
    cy_run_position position;
} job;

static cy_status save(cy_engine *engine, const cy_rank *rank, job *j)
{
    CY_TRY(cy_engine_initialize(engine));
    engine->scaler = j->scaler;
    for (int64_t i = 0; i < j->exponent_count; i++)
        engine->sums.table[i].exponent = j->exponents[i];
    return cy_test_save_engine(engine, rank, j->folder, j->position);
}

static cy_status use(cy_engine *engine, const cy_rank *rank, void *context)
{
    job *j = context;
    if (j->saves) return save(engine, rank, j);
    char path[400];
    cy_checkpoint_traffic traffic = {0};
    snprintf(path, sizeof(path), "%s/step-00000007", j->folder);
    CY_TRY(cy_state_load(engine, rank, path, false, &j->position, &traffic));
    j->scaler = engine->scaler;
    j->exponent_count = engine->sums.count;
    for (int64_t i = 0; i < engine->sums.count && i < 256; i++)
        j->exponents[i] = engine->sums.table[i].exponent;
    return CY_OK;
}

static cy_config configured(cy_dtype dtype, bool strict)
{
    cy_config config;
    cy_test_config(&config, dtype);
    config.training.strict = strict;
    config.shape.rope.factor = 0; // without scaling, as a resolved configuration has it
    return config;
}

// A run at step 7 whose state is like no other's.
static job saved(const char *folder, const cy_config *config)
{
    job j = {.folder = folder,
        .saves = true,
        .scaler = {.scale = 1024, .clean_steps = 11, .skipped_steps = 12, .stuck_steps = 13},
        .position = {.step = 7, .tokens = 70}};
    if (config->training.strict) {
        j.exponent_count = ((int64_t)config->shape.layers + 2) * CY_SUM_SITES;
        assert_true(j.exponent_count <= 256);
        for (int i = 0; i < (int)j.exponent_count; i++)
            j.exponents[i] = i % (2 * CY_SUM_EXPONENT_MOST + 1) - CY_SUM_EXPONENT_MOST;
    }
    CY_CHECK_OK(cy_test_on_mesh(config, "auto", NULL, use, &j));
    return j;
}

static void exponents_come_back(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    const cy_config config = configured(CY_BF16, true);
    const job before = saved(folder, &config);
    job after = {.folder = folder};
    CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, use, &after));
    assert_int_equal(after.position.step, 7);
    assert_int_equal(after.position.tokens, 70);
    assert_int_equal(after.exponent_count, before.exponent_count);
    assert_memory_equal(after.exponents, before.exponents,
        (size_t)before.exponent_count * sizeof(before.exponents[0]));
    assert_true(after.scaler.scale != 1024); // that is fp16's

    // A run that is not strict has none.
    const cy_config fast = configured(CY_BF16, false);
    job other = {.folder = folder};
    CY_CHECK_OK(cy_test_on_mesh(&fast, "auto", NULL, use, &other));
    assert_int_equal(other.exponent_count, 0);
}

// The scale of a run in fp16 goes on in another one; that of a run in another dtype does not.
static void scales_are_of_fp16(void **state)
{
    (void)state;
    char folder[2][256];
    const cy_config half = configured(CY_F16, false), brain = configured(CY_BF16, false);
    for (int i = 0; i < 2; i++) {
        cy_test_folder(folder[i], sizeof(folder[i]));
        saved(folder[i], i == 0 ? &half : &brain);
    }
    job from_brain = {.folder = folder[1]};
    CY_CHECK_OK(cy_test_on_mesh(&half, "auto", NULL, use, &from_brain));
    assert_int_equal(from_brain.position.step, 7);
    assert_true(from_brain.scaler.scale == 65536); // as a fresh run's
    assert_int_equal(from_brain.scaler.clean_steps, 0);

    job other = {.folder = folder[0]};
    CY_CHECK_OK(cy_test_on_mesh(&half, "auto", NULL, use, &other));
    assert_true(other.scaler.scale == 1024);
    assert_int_equal(other.scaler.clean_steps, 11);
    assert_int_equal(other.scaler.skipped_steps, 12);
    assert_int_equal(other.scaler.stuck_steps, 13);
}

static void a_strict_run_goes_on_from_a_fast_one(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    const cy_config fast = configured(CY_BF16, false), strict = configured(CY_BF16, true);
    saved(folder, &fast);
    job after = {.folder = folder};
    CY_CHECK_OK(cy_test_on_mesh(&strict, "auto", NULL, use, &after));
    cy_sums fresh;
    CY_CHECK_OK(cy_sums_open(&fresh, &strict.shape, strict.training.seq_length));
    assert_int_equal(after.exponent_count, fresh.count);
    for (int64_t i = 0; i < fresh.count; i++)
        assert_int_equal(after.exponents[i], fresh.table[i].exponent);
    cy_sums_close(&fresh);
}

static void a_damaged_state_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"exponents\":[-80,", "\"exponents\":[", "this model has"},
        {"\"exponents\":[", "\"exponents\":[0,", "this model has"},
        {"\"exponents\":[", "\"exponent\":[", "0 exponents of strict sums, this model has"},
        {"[-80,-79,", "[-80,-81,", "exponent 1 of strict sums is no integer of at most 80"},
        {"[-80,-79,", "[81,-79,", "exponent 0 of strict sums is no integer"},
        {"[-80,-79,-78,", "[-80,-79,1.0,", "exponent 2 of strict sums is no integer"},
        {"\"clean_steps\"", "\"unclean_steps\"", "no scaler in the saved state"},
        {"\"scale\":1024", "\"scale\":\"1\"", "no scaler in the saved state"},
        {"\"scale\":1024", "\"scale\":0", "a scaler that no run has: scale 0"},
        {"\"scale\":1024", "\"scale\":-2", "a scaler that no run has: scale -2"},
        {"\"clean_steps\":11", "\"clean_steps\":-1", "a scaler that no run has: scale 1024"},
        {"\"skipped_steps\":12", "\"skipped_steps\":-1", "a scaler that no run has"},
        {"\"stuck_steps\":13", "\"stuck_steps\":-1", "a scaler that no run has"},
        {"\"step\": 7", "\"step\": 281474976710657",
            "step 281474976710657, 70 tokens: more than a run has"},
        {"\"tokens\": 70", "\"tokens\": 1152921504606846977",
            "step 7, 1152921504606846977 tokens: more than a run has"},
    };
    char folder[256], path[300], file[400];
    cy_test_folder(folder, sizeof(folder));
    const cy_config config = configured(CY_BF16, true);
    saved(folder, &config);
    snprintf(path, sizeof(path), "%s/step-00000007", folder);
    snprintf(file, sizeof(file), "%s/manifest.json", path);
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        job after = {.folder = folder};
        cy_test_edit_manifest(path, cases[i].from, cases[i].to, true);
        CY_CHECK_FAILS(
            cy_test_on_mesh(&config, "auto", NULL, use, &after), CY_ERR_CORRUPT, cases[i].words);
        cy_test_put_file(file, text.bytes, text.length);
    }
    cy_text_free(&text);
    cy_test_edit_manifest(path, "[-80,-79,", "[80,-80,", true); // the bounds are within
    job after = {.folder = folder};
    CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, use, &after));
    assert_int_equal(after.exponents[0], 80);
    assert_int_equal(after.exponents[1], -80);
    assert_int_equal(after.exponents[2], -78);
}

// Where a run starts: resume goes before load_path, which is asked where there is nothing yet.
static void where_a_run_starts(void **state)
{
    (void)state;
    char full[256], empty[256], step[300];
    cy_test_folder(full, sizeof(full));
    cy_test_folder(empty, sizeof(empty));
    cy_config config = configured(CY_BF16, false);
    saved(full, &config);
    snprintf(step, sizeof(step), "%s/step-00000007", full);
    const struct {
        bool resume, weights, weights_only;
        const char *save_dir, *load_path;
        const char *path; // NULL: afresh
    } cases[] = {
        {false, false, false, "", "", NULL},
        {false, false, false, full, "", NULL},
        {true, false, false, full, "", step},
        {true, true, false, full, empty, step}, // resuming takes all, and nothing else is looked at
        {true, false, false, empty, "", NULL},
        {true, true, false, "/no/such/folder", "", NULL},
        {true, false, false, empty, full, step},
        {true, true, true, empty, full, step},
        {false, true, true, "", step, step},
        {false, false, false, "", step, step},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *path = NULL;
        bool weights_only = true;
        cy_config_checkpoint *checkpoint = &config.checkpoint;
        checkpoint->resume = cases[i].resume ? CY_CONFIG_RESUME_AUTO : CY_CONFIG_RESUME_NO;
        checkpoint->load = cases[i].weights ? CY_CONFIG_LOAD_WEIGHTS : CY_CONFIG_LOAD_ALL;
        snprintf(checkpoint->save_dir, sizeof(checkpoint->save_dir), "%s", cases[i].save_dir);
        snprintf(checkpoint->load_path, sizeof(checkpoint->load_path), "%s", cases[i].load_path);
        CY_CHECK_OK(cy_state_locate(&path, &weights_only, &config));
        if (cases[i].path == NULL) {
            assert_null(path);
        } else {
            assert_non_null(path);
            assert_string_equal(path, cases[i].path);
        }
        assert_int_equal(weights_only, cases[i].weights_only);
        cy_memory_free(path);
    }
    char *path = NULL;
    bool weights_only;
    config.checkpoint.resume = CY_CONFIG_RESUME_NO;
    snprintf(config.checkpoint.load_path, sizeof(config.checkpoint.load_path), "%s", empty);
    CY_CHECK_FAILS(cy_state_locate(&path, &weights_only, &config), CY_ERR_REQUEST, empty);
    assert_null(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponents_come_back),
        cmocka_unit_test(scales_are_of_fp16),
        cmocka_unit_test(a_strict_run_goes_on_from_a_fast_one),
        cmocka_unit_test(a_damaged_state_is_refused),
        cmocka_unit_test(where_a_run_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
