// bf16 compute with fp32 master weights trains as fp32 does; bf16 weights without them stall.
//
// The text is a random walk with known entropy: the next token is one of four that follow from the
// last. A small learning rate is where a pure bf16 update is lost: a weight near 0.2 has neighbours
// 0.001 apart, so it never moves by steps of 0.0002.

#include "base/random.h"
#include "support/engines.h"
#include "support/support.h"

#include <math.h>

#define STEPS 1000
#define LAST  50 // steps whose mean loss is compared

typedef struct walk {
    const cy_engine *engine;
    int64_t step;
} walk;

static cy_status fill(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    const walk *self = context;
    const int64_t vocab = self->engine->options.config->shape.vocab;
    const uint64_t key =
        cy_random_key_at(cy_random_key(3, "walk"), (uint64_t)(2 * self->step + microbatch));
    int64_t token = (int64_t)(cy_random_bits(key, 0) % (uint64_t)vocab);
    for (int64_t i = 0; i < self->engine->tokens; i++) {
        inputs[i] = (int32_t)token;
        token = (5 * token + (int64_t)(cy_random_bits(key, (uint64_t)i + 1) % 4)) % vocab;
        targets[i] = (int32_t)token;
    }
    return CY_OK;
}

// As if there were no master copies: what bf16 cannot hold is lost after each step.
static void forget_masters(cy_engine *engine)
{
    for (int i = 0; i < cy_reducer_owned_count(engine->storage.groups[0].reducer); i++) {
        const cy_owned_range range = cy_reducer_owned(engine->storage.groups[0].reducer, i);
        cy_copy(&engine->queue, range.master, range.weight);
    }
}

// The mean loss of the first and last steps.
static void train(cy_dtype dtype, bool pure, double *first, double *last)
{
    static cy_engine engine;
    static cy_config config;
    cy_test_config(&config, dtype);
    const cy_engine_options options = cy_test_engine_options(&config, "auto");
    CY_CHECK_OK(cy_engine_open(&engine, &options));
    CY_CHECK_OK(cy_engine_initialize(&engine));
    walk text = {.engine = &engine};
    const cy_batch_source source = {.context = &text, .fill = fill};
    *first = *last = 0;
    for (int step = 1; step <= STEPS; step++) {
        const cy_adamw_spec adamw = {
            .learning_rate = 2e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = step};
        cy_step_result result;
        text.step = step;
        CY_CHECK_OK(cy_engine_train_step(&engine, &source, &adamw, &result));
        if (step <= 10) *first += result.loss / 10;
        if (step > STEPS - LAST) *last += result.loss / LAST;
        if (pure) forget_masters(&engine);
    }
    cy_engine_close(&engine);
}

static void bf16_with_masters_trains_as_fp32(void **state)
{
    (void)state;
    double first, wide, narrow, pure;
    train(CY_F32, false, &first, &wide);
    train(CY_BF16, false, &first, &narrow);
    const double start = first;
    train(CY_BF16, true, &first, &pure);
    print_message("loss %.4f at the start; after %d steps fp32 %.4f, bf16 %.4f, bf16 without "
                  "masters %.4f\n",
        start, STEPS, wide, narrow, pure);
    assert_true(fabs(narrow - wide) < 0.01 * wide);
    assert_true(start - wide > 0.5);                    // fp32 has learned
    assert_true(start - pure < 0.5 * (start - narrow)); // without masters it hardly has
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_with_masters_trains_as_fp32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
