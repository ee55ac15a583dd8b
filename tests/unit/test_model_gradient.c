// The whole model against finite differences in fp64, and what a step must keep: the planned
// memory, the same bits with recomputation and with a split backward pass.

#include "support/engines.h"
#include "support/support.h"
#include "engine/engine_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_engine(cy_engine *engine, const cy_config *config)
{
    const cy_engine_options options = cy_test_engine_options(config, "ref");
    CY_CHECK_OK(cy_engine_open(engine, &options));
    CY_CHECK_OK(cy_engine_initialize(engine));
}

static double loss_of(cy_engine *engine, const cy_batch_source *source)
{
    double loss = 0;
    CY_CHECK_OK(cy_engine_evaluate(engine, source, 0, &loss));
    return loss;
}

// Forward and backward of all microbatches, after gradients were made ready.
static void run_pipeline(cy_engine *engine, const cy_batch_source *source)
{
    for (int64_t i = 0; i < engine->microbatches; i++) {
        CY_CHECK_OK(source->fill(source->context, 0, engine->inputs + i * engine->tokens,
            engine->targets + i * engine->tokens));
    }
    cy_fill(&engine->queue, engine->loss, 0.0);
    CY_CHECK_OK(cy_engine_run_pipeline(engine));
}

static void differentiate(cy_engine *engine, const cy_batch_source *source)
{
    for (int g = 0; g < engine->storage.group_count; g++)
        cy_reducer_zero(engine->storage.groups[g].reducer);
    run_pipeline(engine, source);
}

static double element_of(cy_view view, int64_t i)
{
    if (view.dtype == CY_F32) return (double)((const float *)view.data)[i];
    return ((const double *)view.data)[i];
}

static void set_element(cy_view view, int64_t i, double value)
{
    if (view.dtype == CY_F32) {
        ((float *)view.data)[i] = (float)value;
    } else {
        ((double *)view.data)[i] = value;
    }
}

// Every tensor at several elements, central differences. `norms` is the dtype of the norms.
static void check_gradients(cy_config *config, cy_dtype norms)
{
    static cy_engine engine;
    const cy_dtype_rule rules[] = {
        {CY_ROLE_NORM1, CY_EVERY_LAYER, norms},
        {CY_ROLE_NORM2, CY_EVERY_LAYER, norms},
        {CY_ROLE_Q_NORM, CY_EVERY_LAYER, norms},
        {CY_ROLE_FINAL_NORM, CY_EVERY_LAYER, norms},
    };
    config->training.gradient_accumulation_steps = 1;
    cy_engine_options options = cy_test_engine_options(config, "ref");
    options.dtype_rules = rules;
    options.dtype_rule_count = 4;
    CY_CHECK_OK(cy_engine_open(&engine, &options));
    CY_CHECK_OK(cy_engine_initialize(&engine));
    assert_int_equal(engine.storage.group_count, norms == config->model.dtype ? 1 : 2);
    const cy_batch_source source = cy_test_tokens(&engine);
    differentiate(&engine, &source);

    const double step = 0x1p-17; // which fp32 adds to a norm's first weights without rounding
    for (int t = 0; t < engine.storage.tensor_count; t++) {
        const cy_tensor *tensor = &engine.storage.tensors[t];
        const cy_view weights = cy_tensor_weight(&engine.storage, tensor, 0);
        const cy_view grads = cy_tensor_grad(&engine.storage, tensor, 0);
        assert_int_equal(weights.dtype, tensor->param->dtype);
        assert_int_equal(grads.dtype, tensor->param->dtype);
        const int64_t count = tensor->slice.rows * tensor->slice.cols;
        for (int64_t i = 0; i < count; i += count / 7 + 1) {
            const double kept = element_of(weights, i), grad = element_of(grads, i);
            set_element(weights, i, kept + step);
            const double above = loss_of(&engine, &source);
            set_element(weights, i, kept - step);
            const double below = loss_of(&engine, &source);
            set_element(weights, i, kept);
            const double measured = (above - below) / (2 * step);
            const double error = fabs(measured - grad);
            if (!(error <= 1e-6 * fmax(1.0, fabs(grad)))) {
                print_error("%s[%lld]: gradient %.12g, differences %.12g\n", tensor->param->name,
                    (long long)i, grad, measured);
                fail();
            }
        }
    }
    cy_engine_close(&engine);
}

static void gradients_of_an_untied_model(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F64);
    check_gradients(&config, CY_F64);
}

static void gradients_with_tied_embeddings_biases_and_window(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F64);
    config.shape.tied = true;
    config.shape.qkv_bias = true;
    config.shape.out_bias = true;
    config.shape.window = 5;
    check_gradients(&config, CY_F64);
}

static void gradients_with_norms_of_q_and_k(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F64);
    config.shape.qk_norm = true;
    check_gradients(&config, CY_F64);
}

// Weights, gradients and master copies of two dtypes in one model.
static void gradients_with_norms_of_another_dtype(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F64);
    config.shape.qk_norm = true;
    check_gradients(&config, CY_F32);
}

// Runs some steps and returns the hash of the parameters.
static uint64_t train_and_hash(const cy_config *config, const char *isa)
{
    static cy_engine engine;
    const cy_engine_options options = cy_test_engine_options(config, isa);
    CY_CHECK_OK(cy_engine_open(&engine, &options));
    CY_CHECK_OK(cy_engine_initialize(&engine));
    const cy_batch_source source = cy_test_tokens(&engine);
    cy_step_result result;
    for (int step = 1; step <= 5; step++) {
        const cy_adamw_spec adamw = {.learning_rate = 1e-2,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .eps = 1e-8,
            .weight_decay = 0.01,
            .step = step};
        CY_CHECK_OK(cy_engine_train_step(&engine, &source, &adamw, &result));
    }
    uint64_t hash = 0;
    CY_CHECK_OK(cy_engine_params_hash(&engine, &hash));
    cy_engine_close(&engine);
    return hash;
}

static void recomputation_changes_no_bit(void **state)
{
    (void)state;
    static const cy_dtype dtypes[] = {CY_F64, CY_F32, CY_BF16};
    for (int i = 0; i < 3; i++) {
        cy_config config;
        cy_test_config(&config, dtypes[i]);
        config.shape.qk_norm = i == 2;
        const uint64_t kept = train_and_hash(&config, "ref");
        config.training.recompute = CY_RECOMPUTE_SELECTIVE;
        assert_true(train_and_hash(&config, "ref") == kept);
        config.training.recompute = CY_RECOMPUTE_FULL;
        assert_true(train_and_hash(&config, "ref") == kept);
        config.training.seed = 43;
        assert_true(train_and_hash(&config, "ref") != kept);
    }
}

static void the_plan_is_the_peak(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_BF16);
    static cy_engine engine;
    open_engine(&engine, &config);
    const size_t run = engine.run.capacity, step = engine.step.capacity;
    const size_t scratch = engine.scratch.capacity;
    const cy_batch_source source = cy_test_tokens(&engine);
    cy_step_result result;
    const cy_adamw_spec adamw = {.step = 1, .eps = 1e-8};
    CY_CHECK_OK(cy_engine_train_step(&engine, &source, &adamw, &result));
    assert_int_equal(engine.run.peak, run);
    assert_int_equal(engine.step.peak, step);
    assert_int_equal(engine.scratch.peak, scratch);
    cy_engine_close(&engine);
}

static void a_model_learns_its_batch(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F32);
    static cy_engine engine;
    open_engine(&engine, &config);
    const cy_batch_source source = cy_test_tokens(&engine);
    cy_step_result result = {0};
    double first = 0;
    for (int step = 1; step <= 60; step++) {
        const cy_adamw_spec adamw = {
            .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = step};
        CY_CHECK_OK(cy_engine_train_step(&engine, &source, &adamw, &result));
        if (step == 1) first = result.loss;
    }
    assert_true(first > 3.5 && result.loss < 0.5 * first);
    cy_engine_close(&engine);
}

static void a_gradient_that_is_not_finite_is_named(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F32);
    static cy_engine engine;
    open_engine(&engine, &config);
    const cy_tensor *down =
        cy_storage_tensor(&engine.storage, cy_storage_unit(&engine.storage, 1), CY_ROLE_DOWN);
    *(float *)cy_tensor_weight(&engine.storage, down, 0).data = NAN;
    const cy_batch_source source = cy_test_tokens(&engine);
    cy_step_result result;
    const cy_adamw_spec adamw = {.step = 12, .eps = 1e-8};
    CY_CHECK_FAILS(cy_engine_train_step(&engine, &source, &adamw, &result), CY_ERR_NOT_FINITE,
        "step 12: loss nan");
    cy_engine_close(&engine);
}

// Gradients of products are written by the first of several microbatches: what the last step left
// there is never seen, and what is only added to begins at zero, in padding too.
static void cleared_gradients_are_those_of_zeros(void **state)
{
    (void)state;
    for (int biased = 0; biased < 2; biased++) {
        cy_config config;
        static cy_engine engine;
        cy_test_config(&config, CY_F64);
        config.shape.qkv_bias = biased == 1;
        config.shape.qk_norm = biased == 0;
        open_engine(&engine, &config);
        assert_int_equal(engine.microbatches, 2);
        const cy_batch_source source = cy_test_tokens(&engine);
        for (int i = 0; i < engine.storage.unit_count; i++)
            assert_false(engine.storage.units[i].grads_empty); // the dry run has filled them
        differentiate(&engine, &source);
        double *grads = cy_storage_part(&engine.storage, 0, 0)->grads; // one flat range
        const size_t bytes = (size_t)engine.storage.groups[0].count * sizeof(double);
        double *expected = malloc(bytes);
        assert_non_null(expected);
        memcpy(expected, grads, bytes);
        memset(grads, 0xff, bytes); // NaN
        cy_storage_clear_grads(&engine.storage, &engine.queue);
        int64_t left = 0;
        for (int64_t i = 0; i < engine.storage.groups[0].count; i++)
            left += isnan(grads[i]) ? 1 : 0;
        // 2 layers: q and out 32 x 32, k and v 16 x 32, gate, up and down 48 x 32.
        assert_int_equal(left, 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32));
        cy_reducer_begin(engine.storage.groups[0].reducer);
        run_pipeline(&engine, &source);
        for (int64_t i = 0; i < engine.storage.groups[0].count; i++)
            assert_true(grads[i] == expected[i]);
        free(expected);
        cy_engine_close(&engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_an_untied_model),
        cmocka_unit_test(gradients_with_tied_embeddings_biases_and_window),
        cmocka_unit_test(gradients_with_norms_of_q_and_k),
        cmocka_unit_test(gradients_with_norms_of_another_dtype),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(the_plan_is_the_peak),
        cmocka_unit_test(a_model_learns_its_batch),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_named),
        cmocka_unit_test(cleared_gradients_are_those_of_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
