// Strict mode trains to the same bits on every mesh, with every table of operators, and when a step
// must be done again.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEPS 4

static cy_config strict_config(cy_dtype dtype)
{
    cy_config config;
    cy_test_config(&config, dtype);
    config.training.strict = true;
    config.training.seq_length = 128;
    config.training.micro_batch_size = 1;
    config.training.gradient_accumulation_steps = 4;
    config.shape.max_positions = 128;
    config.shape.vocab = 197; // no multiple of anything: blocks of 2, and one of 1
    config.shape.ffn = 128;
    return config;
}

static void expect_same(
    const cy_test_training *one, const cy_config *config, int steps, const char *isa)
{
    cy_test_training other;
    cy_test_train(&other, config, steps, isa);
    const cy_config_distributed *d = &config->distributed;
    const size_t bytes = (size_t)steps * sizeof(double);
    if (memcmp(other.loss, one->loss, bytes) != 0 || memcmp(other.norm, one->norm, bytes) != 0 ||
        other.hash != one->hash || other.copies_differ != 0) {
        fail_msg("tp %d cp %d pp %d dp %d zero %d, kernels %s: loss %.17g not %.17g, norm %.17g "
                 "not %.17g, hash %llx not %llx, %lld copies differ",
            d->tp_size, d->cp_size, d->pp_size, d->dp_size, d->zero_stage, isa,
            other.loss[steps - 1], one->loss[steps - 1], other.norm[steps - 1],
            one->norm[steps - 1], (unsigned long long)other.hash, (unsigned long long)one->hash,
            (long long)other.copies_differ);
    }
    cy_test_training_close(&other);
}

typedef struct mesh {
    int tp, cp, pp, dp, zero;
    bool sequence;
    cy_context_style style;
} mesh;

static void apply(cy_config *config, const mesh *m)
{
    config->distributed.tp_size = m->tp;
    config->distributed.cp_size = m->cp;
    config->distributed.pp_size = m->pp;
    config->distributed.dp_size = m->dp;
    config->distributed.zero_stage = m->zero;
    config->distributed.sequence_parallel = m->sequence;
    config->distributed.cp_style = m->style;
    config->training.gradient_accumulation_steps = 4 / m->dp;
}

static void every_mesh(cy_dtype dtype, bool variant)
{
    static const mesh meshes[] = {
        {2, 1, 1, 1, 0, false, CY_CONTEXT_RING},
        {4, 1, 1, 1, 0, true, CY_CONTEXT_RING}, // two ranks hold each kv head
        {1, 2, 1, 1, 0, false, CY_CONTEXT_RING},
        {1, 2, 1, 1, 1, false, CY_CONTEXT_ALL_GATHER},
        {1, 4, 1, 1, 0, false, CY_CONTEXT_ULYSSES}, // likewise
        {1, 1, 2, 1, 0, false, CY_CONTEXT_RING},
        {1, 1, 1, 2, 2, false, CY_CONTEXT_RING},
        {2, 1, 1, 2, 3, true, CY_CONTEXT_RING},
        {1, 2, 2, 2, 1, false, CY_CONTEXT_RING},
    };
    cy_config config = strict_config(dtype);
    if (variant) {
        config.shape.qkv_bias = config.shape.out_bias = config.shape.qk_norm = true;
        config.shape.tied = true;
    }
    cy_test_training one;
    cy_test_train(&one, &config, STEPS, "auto");
    for (size_t i = 0; i < sizeof(meshes) / sizeof(*meshes); i++) {
        apply(&config, &meshes[i]);
        expect_same(&one, &config, STEPS, "auto");
    }
    cy_test_training_close(&one);
}

static void meshes_in_fp32(void **state)
{
    (void)state;
    every_mesh(CY_F32, false);
}

static void meshes_in_bf16(void **state)
{
    (void)state;
    every_mesh(CY_BF16, true);
}

static void microbatches_and_tables(void **state)
{
    (void)state;
    cy_config config = strict_config(CY_F32);
    cy_test_training one;
    cy_test_train(&one, &config, STEPS, "auto");
    expect_same(&one, &config, STEPS, "strict_portable");
#if defined(__x86_64__)
    expect_same(&one, &config, STEPS, "strict_avx2");
#endif
    config.training.micro_batch_size = 2;
    config.training.gradient_accumulation_steps = 2;
    expect_same(&one, &config, STEPS, "auto");
    config.training.recompute = CY_RECOMPUTE_FULL;
    config.training.micro_batch_size = 4;
    config.training.gradient_accumulation_steps = 1;
    expect_same(&one, &config, STEPS, "auto");
    cy_test_training_close(&one);
}

// So many rows that the sums of tensor parallelism go in two pieces.
static void sums_in_pieces(void **state)
{
    (void)state;
    cy_config config = strict_config(CY_F32);
    config.shape.out_bias = true;
    config.training.micro_batch_size = 9;
    config.training.gradient_accumulation_steps = 1;
    cy_test_training one;
    cy_test_train(&one, &config, 2, "auto");
    for (int recompute = 0; recompute < 3; recompute++) {
        config.training.recompute = (cy_recompute)recompute;
        config.distributed.tp_size = recompute == 0 ? 4 : 2;
        expect_same(&one, &config, 2, "auto");
        snprintf(config.distributed.algorithm, sizeof(config.distributed.algorithm), "ring");
    }
    cy_test_training_close(&one);
}

// ---- a step that does not fit

// Weights so large that no constant holds the first step's terms: every mesh does it again, and
// agrees on the exponents that follow.
static void wild_weights(void **state)
{
    (void)state;
    static const mesh meshes[] = {
        {2, 1, 1, 2, 3, true, CY_CONTEXT_RING},
        {1, 2, 2, 1, 0, false, CY_CONTEXT_RING},
        {1, 1, 1, 2, 2, false, CY_CONTEXT_RING},
    };
    cy_config config = strict_config(CY_F32);
    config.shape.init_std = 100;
    cy_test_training one;
    cy_test_train(&one, &config, STEPS, "auto");
    for (size_t i = 0; i < sizeof(meshes) / sizeof(*meshes); i++) {
        apply(&config, &meshes[i]);
        expect_same(&one, &config, STEPS, "auto");
    }
    cy_test_training_close(&one);
}

typedef struct one_step {
    cy_step_result result;
    uint64_t hash;
} one_step;

static cy_status step_with(cy_engine *engine, const cy_config *config, int lowered, one_step *step)
{
    const cy_engine_options options = cy_test_engine_options(config, "auto");
    CY_TRY(cy_engine_open(engine, &options));
    CY_TRY(cy_engine_initialize(engine));
    cy_sums_raise(&engine->sums, -lowered);
    cy_test_batch batch = {.config = config, .columns = config->training.seq_length};
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec adamw = cy_test_adamw(1e-2, 1);
    CY_TRY(cy_engine_train_step(engine, &source, &adamw, &step->result));
    return cy_engine_params_hash(engine, &step->hash);
}

// With exponents 20 lower no loss of a token fits, so the step is done three times over; what it
// then leaves is the same for every split, and near what it is without.
static void a_step_that_does_not_fit_is_done_again(void **state)
{
    (void)state;
    static cy_engine engine;
    cy_config config = strict_config(CY_F32);
    one_step plain = {0}, whole = {0}, split = {0};
    CY_CHECK_OK(step_with(&engine, &config, 0, &plain));
    cy_engine_close(&engine);
    CY_CHECK_OK(step_with(&engine, &config, 20, &split));
    const int loss_exponent = engine.sums.loss.exponent;
    cy_engine_close(&engine);
    assert_int_equal(loss_exponent, -24 - 20); // the raises ended with the step
    assert_int_equal(plain.result.repeats, 0);
    assert_int_equal(split.result.repeats, 2);
    config.training.micro_batch_size = 4;
    config.training.gradient_accumulation_steps = 1;
    CY_CHECK_OK(step_with(&engine, &config, 20, &whole));
    cy_engine_close(&engine);
    assert_true(whole.result.loss == split.result.loss && whole.hash == split.hash);
    assert_true(whole.result.grad_norm == split.result.grad_norm);
    assert_int_equal(whole.result.repeats, 2);
    assert_true(fabs(split.result.loss / plain.result.loss - 1.0) < 1e-6);
    assert_true(fabs(split.result.grad_norm / plain.result.grad_norm - 1.0) < 1e-5);
}

static void what_is_no_number_is_reported(void **state)
{
    (void)state;
    static cy_engine engine;
    const cy_config config = strict_config(CY_F32);
    one_step step;
    CY_CHECK_OK(step_with(&engine, &config, 0, &step));
    const int exponent = cy_sums_at(&engine.sums, 0, CY_SUM_OUT)->exponent;
    const cy_owned_range range = cy_reducer_owned(engine.storage.groups[0].reducer, 0);
    ((float *)range.master.data)[0] = NAN; // the final norm's first weight
    uint64_t before, after;
    CY_CHECK_OK(cy_engine_params_hash(&engine, &before));
    cy_test_batch batch = {.config = &config, .columns = config.training.seq_length};
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec adamw = cy_test_adamw(1e-2, 2);
    assert_int_equal(
        cy_engine_train_step(&engine, &source, &adamw, &step.result), CY_ERR_NOT_FINITE);
    assert_non_null(strstr(cy_error_text(), "step 2: no number"));
    CY_CHECK_OK(cy_engine_params_hash(&engine, &after));
    assert_true(before == after);
    assert_int_equal(cy_sums_at(&engine.sums, 0, CY_SUM_OUT)->exponent, exponent);
    cy_engine_close(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_in_fp32),
        cmocka_unit_test(meshes_in_bf16),
        cmocka_unit_test(microbatches_and_tables),
        cmocka_unit_test(sums_in_pieces),
        cmocka_unit_test(wild_weights),
        cmocka_unit_test(a_step_that_does_not_fit_is_done_again),
        cmocka_unit_test(what_is_no_number_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
