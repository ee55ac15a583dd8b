// A gradient that is not finite ends the run with the name of the first such tensor of the model:
// the same on every rank, whether or not it holds a part of that tensor. A state that is not finite
// is not saved.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/folder.h"
#include "checkpoint/state_dict.h"
#include "train/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define RANKS 2

typedef struct broken_run {
    char text[RANKS][1024]; // what each rank failed with
} broken_run;

// Everything below the last norm gets a gradient that is not finite.
static void spoil(cy_engine *engine)
{
    const int unit = cy_storage_unit(&engine->storage, engine->context.shape.layers);
    if (unit < 0) return;
    const cy_view norm = cy_storage_weight(&engine->storage, unit, CY_ROLE_FINAL_NORM, 0);
    if (!cy_view_is_none(norm)) cy_fill(&engine->queue, cy_view_cols(norm, 3, 1), (double)INFINITY);
}

static cy_status train(cy_engine *engine, const cy_rank *rank, void *context)
{
    broken_run *run = context;
    CY_TRY(cy_engine_initialize(engine));
    spoil(engine);
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec adamw = {.step = 12, .eps = 1e-8};
    cy_step_result result;
    if (cy_engine_train_step(engine, &source, &adamw, &result) == CY_ERR_NOT_FINITE) {
        snprintf(run->text[rank->rank], sizeof(run->text[0]), "%s", cy_error_text());
    }
    return CY_OK;
}

static void expect_one_name(const cy_config *config)
{
    static broken_run run;
    memset(&run, 0, sizeof(run));
    CY_CHECK_OK(cy_test_on_mesh(config, "auto", NULL, train, &run));
    for (int i = 0; i < RANKS; i++) {
        if (strstr(run.text[i], "not finite: model.embed_tokens.weight") == NULL) {
            fail_msg("rank %d says \"%s\"", i, run.text[i]);
        }
        assert_string_equal(run.text[i], run.text[0]);
    }
}

static void the_first_tensor_is_named_by_all(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.distributed.pp_size = RANKS;
    config.distributed.pp_engine = CY_PIPELINE_1F1B;
    expect_one_name(&config);
    cy_test_config(&config, CY_F32);
    config.distributed.tp_size = RANKS;
    expect_one_name(&config);
    cy_test_config(&config, CY_F32);
    config.distributed.dp_size = RANKS;
    config.distributed.zero_stage = 2;
    expect_one_name(&config);
    config.distributed.device = CY_CONFIG_DEVICE_TEST;
    expect_one_name(&config);
}

// ---- the state that a save would write

typedef struct spoilt_state {
    const char *folder;
    cy_tensor_kind kind; // what the last rank spoils
    double value;
    char text[RANKS][1024]; // what each rank fails with
} spoilt_state;

// The first value of that kind that the rank alone holds.
static cy_status spoil_state(cy_engine *engine, cy_tensor_kind kind, double value)
{
    cy_state_dict parameters = {0};
    CY_TRY(cy_state_dict_of_training(&parameters, &engine->storage, true, true));
    size_t i = 0;
    while (
        i < parameters.piece_count && parameters.tensors[parameters.pieces[i].tensor].kind != kind)
        i++;
    CY_ASSERT(i < parameters.piece_count && parameters.pieces[i].dtype == CY_F32);
    const float spoilt = (float)value;
    cy_queue_upload(&engine->queue, parameters.pieces[i].data, &spoilt, sizeof(spoilt));
    cy_state_dict_close(&parameters);
    return cy_queue_synchronize(&engine->queue);
}

static cy_status save_and_spoil(cy_engine *engine, const cy_rank *rank, void *context)
{
    spoilt_state *run = context;
    cy_saver *saver = NULL;
    CY_TRY(cy_engine_initialize(engine));
    CY_TRY(
        cy_saver_open(&saver, run->folder, 1, engine->options.groups.world, &engine->queue, NULL));
    cy_status status = cy_state_save(engine, rank, saver, (cy_run_position){.step = 7}, NULL, NULL);
    if (status == CY_OK) status = cy_state_check_finite(engine, rank, 8);
    if (status == CY_OK) {
        if (rank->rank == RANKS - 1) status = spoil_state(engine, run->kind, run->value);
    }
    if (status == CY_OK &&
        cy_state_save(engine, rank, saver, (cy_run_position){.step = 8}, NULL, NULL) ==
            CY_ERR_NOT_FINITE) {
        snprintf(run->text[rank->rank], sizeof(run->text[0]), "%s", cy_error_text());
    }
    cy_saver_close(saver);
    return status;
}

// The good checkpoint of step 7 stands, and every rank knows what is wrong with step 8.
static void expect_refusal(const cy_config *config, cy_tensor_kind kind, double value)
{
    static spoilt_state run;
    char folder[200], wanted[100];
    cy_test_folder(folder, sizeof(folder));
    memset(&run, 0, sizeof(run));
    run = (spoilt_state){.folder = folder, .kind = kind, .value = value};
    CY_CHECK_OK(cy_test_on_mesh(config, "auto", NULL, save_and_spoil, &run));
    snprintf(wanted, sizeof(wanted), "step 8: %s ", cy_tensor_kind_name(kind));
    for (int i = 0; i < RANKS; i++) {
        if (strncmp(run.text[i], wanted, strlen(wanted)) != 0 ||
            strstr(run.text[i], " values are not finite in ") == NULL ||
            strstr(run.text[i], ": 1 of its ") == NULL) {
            fail_msg("rank %d says \"%s\"", i, run.text[i]);
        }
        assert_string_equal(run.text[i], run.text[0]);
    }
    int64_t *steps = NULL;
    int count = 0;
    CY_CHECK_OK(cy_folder_steps(&steps, &count, folder));
    assert_int_equal(count, 1);
    assert_int_equal(steps[0], 7);
    cy_memory_free(steps);
}

static void a_state_that_is_not_finite_is_not_saved(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.distributed.pp_size = RANKS;
    config.distributed.pp_engine = CY_PIPELINE_1F1B;
    expect_refusal(&config, CY_TENSOR_WEIGHT, (double)NAN);
    cy_test_config(&config, CY_F32);
    config.distributed.tp_size = RANKS;
    expect_refusal(&config, CY_TENSOR_ADAM_V, (double)INFINITY);
    cy_test_config(&config, CY_BF16);
    config.distributed.dp_size = RANKS;
    config.distributed.zero_stage = 3;
    expect_refusal(&config, CY_TENSOR_ADAM_M, -(double)INFINITY);
    expect_refusal(&config, CY_TENSOR_WEIGHT, 0x1.ffp127); // finite, but no bf16 number
    cy_test_config(&config, CY_F16);
    config.distributed.tp_size = RANKS;
    expect_refusal(&config, CY_TENSOR_WEIGHT, -65520);
    config.distributed.device = CY_CONFIG_DEVICE_TEST;
    expect_refusal(&config, CY_TENSOR_WEIGHT, -65520);
    expect_refusal(&config, CY_TENSOR_ADAM_V, (double)INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_tensor_is_named_by_all),
        cmocka_unit_test(a_state_that_is_not_finite_is_not_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
