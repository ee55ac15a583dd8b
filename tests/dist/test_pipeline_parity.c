// A pipeline of two to four stages under every schedule is at parity with one rank, and holds as
// many microbatches as its schedule says. test_pipeline_parity_slow.c has the whole product.

#include "dist/pipeline_parity.h"

#include "base/file.h"
#include "base/memory.h"
#include "parallel/pipeline/schedule.h"

static parity_reference reference;

static void every_engine_is_at_parity(void **state)
{
    (void)state;
    for (int microbatches = 1; microbatches <= 4; microbatches += 3) {
        for (int stages = 2; stages <= 4; stages++) {
            for (int e = 0; e < PARITY_ENGINES; e++) {
                const parity_case c = {.engine = parity_engines[e].engine,
                    .stages = stages,
                    .chunks = parity_engines[e].chunks,
                    .microbatches = microbatches,
                    .tied = stages != 3,
                    .steps = 3};
                parity_check(&reference, &c);
            }
        }
    }
}

static void with_replicas_and_zero(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        for (int e = 0; e < PARITY_ENGINES; e++) {
            const parity_case c = {.engine = parity_engines[e].engine,
                .stages = 2,
                .chunks = parity_engines[e].chunks,
                .microbatches = 6,
                .tied = true,
                .dp = 2,
                .zero_stage = zero,
                .steps = 3};
            parity_check(&reference, &c);
        }
    }
}

static void a_schedule_that_a_user_wrote(void **state)
{
    (void)state;
    static const char text[] = "# two waves\n"
                               "F0,F1,I0,I1,W1,W0,F2,F3,B2,B3\n"
                               "F0,F1,B0,B1,F2,F3,I2,W2,B3\n";
    char path[512];
    cy_test_folder(path, sizeof(path) - 16);
    snprintf(path + strlen(path), 16, "/waves.csv");
    CY_CHECK_OK(cy_file_write(path, text, sizeof(text) - 1));
    const parity_case c = {.engine = CY_PIPELINE_CSV,
        .stages = 2,
        .chunks = 1,
        .microbatches = 4,
        .csv = path,
        .steps = 3};
    parity_check(&reference, &c);
}

// ---- memory

typedef struct memory_run {
    size_t activations[4]; // of each stage
} memory_run;

static cy_status step_and_look(cy_engine *engine, const cy_rank *rank, void *context)
{
    memory_run *run = context;
    CY_TRY(cy_engine_initialize(engine));
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec adamw = {.step = 1, .eps = 1e-8};
    cy_step_result result;
    CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
    run->activations[rank->at.at[CY_AXIS_PP]] = engine->memory.activations;
    if (engine->step.peak != engine->step.capacity ||
        engine->scratch.peak != engine->scratch.capacity) {
        return CY_FAIL(
            CY_ERR_CORRUPT, "stage %d: the plan is not the peak", rank->at.at[CY_AXIS_PP]);
    }
    return CY_OK;
}

static memory_run memory_of(const parity_case *c)
{
    cy_config config;
    parity_config(&config, c);
    // The same layers in every segment, so that a stash is as large on every rank.
    config.shape.layers = 8;
    config.distributed.pp_layer_count = c->stages * c->chunks;
    for (int i = 0; i < config.distributed.pp_layer_count; i++)
        config.distributed.pp_layers[i] = 8 / config.distributed.pp_layer_count;
    memory_run run = {0};
    CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, step_and_look, &run));
    return run;
}

// A rank's stashes are those of one microbatch times what the checker counts.
static void stashes_are_as_many_as_the_checker_counts(void **state)
{
    (void)state;
    for (int e = 0; e < PARITY_ENGINES; e++) {
        parity_case c = {.engine = parity_engines[e].engine,
            .stages = 4,
            .chunks = parity_engines[e].chunks,
            .microbatches = 1};
        if (c.engine == CY_PIPELINE_ZERO_BUBBLE) continue; // two lifetimes: below
        const memory_run one = memory_of(&c);
        c.microbatches = 8;
        const memory_run eight = memory_of(&c);
        cy_schedule schedule;
        cy_schedule_cost cost;
        const cy_schedule_options options = {
            .engine = c.engine, .stages = 4, .chunks = c.chunks, .microbatches = 8};
        CY_CHECK_OK(cy_schedule_open(&schedule, &options));
        CY_CHECK_OK(cy_schedule_check(&cost, &schedule, NULL));
        for (int rank = 0; rank < 4; rank++) {
            const size_t places = (size_t)cost.ranks[rank].peak_stash;
            const size_t chunks = (size_t)c.chunks;
            assert_int_equal(chunks * eight.activations[rank], places * one.activations[rank]);
        }
        cy_schedule_cost_close(&cost);
        cy_schedule_close(&schedule);
    }
}

// The formulas of the chapter, in the arena: what a rank set aside, over what one microbatch
// takes.
static void stashes_are_what_the_formulas_say(void **state)
{
    (void)state;
    static const int microbatches[] = {2, 4, 8};
    for (int m = 0; m < 3; m++) {
        for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
            parity_case c = {.engine = one_by_one == 1 ? CY_PIPELINE_1F1B : CY_PIPELINE_AFAB,
                .stages = 4,
                .chunks = 1,
                .microbatches = 1};
            const memory_run one = memory_of(&c);
            c.microbatches = microbatches[m];
            const memory_run many = memory_of(&c);
            for (int rank = 0; rank < 4; rank++) {
                const int behind = 4 - rank;
                const int less = behind < c.microbatches ? behind : c.microbatches;
                const int places = one_by_one == 1 ? less : c.microbatches;
                assert_int_equal(many.activations[rank], (size_t)places * one.activations[rank]);
            }
        }
    }
}

// Without a pipeline more microbatches cost nothing, whatever the configuration calls its engine.
static void accumulation_takes_no_memory(void **state)
{
    (void)state;
    parity_case c = {.engine = CY_PIPELINE_AFAB, .stages = 1, .chunks = 1, .microbatches = 1};
    const size_t one = memory_of(&c).activations[0];
    c.microbatches = 8;
    assert_int_equal(memory_of(&c).activations[0], one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_engine_is_at_parity),
        cmocka_unit_test(with_replicas_and_zero),
        cmocka_unit_test(a_schedule_that_a_user_wrote),
        cmocka_unit_test(stashes_are_as_many_as_the_checker_counts),
        cmocka_unit_test(stashes_are_what_the_formulas_say),
        cmocka_unit_test(accumulation_takes_no_memory),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cy_test_training_close(&reference.training);
    return failed;
}
