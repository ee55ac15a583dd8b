// A gradient that is not finite ends the run with the name of the first such tensor of the model:
// the same on every rank, whether or not it holds a part of that tensor.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

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
    if (!cy_view_is_none(norm)) ((float *)norm.data)[3] = INFINITY;
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_tensor_is_named_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
