// A sequence of 32768 tokens over 8 context-parallel ranks: it trains, and the memory that a rank
// takes is what its plan says.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "base/clock.h"
#include "observe/memory.h"
#include "train/ranks.h"

enum { RANKS = 8, STEPS = 4, LENGTH = 32768 };

typedef struct long_run {
    const cy_config *config;
    double loss[STEPS];
    double step_s;                    // the last
    double planned[RANKS];            // bytes of each rank
    double before_bytes, after_bytes; // resident, of all ranks
} long_run;

static cy_config config_of(void)
{
    cy_config config;
    cy_test_config(&config, CY_BF16);
    config.shape.layers = 2;
    config.shape.hidden = 128;
    config.shape.heads = 2;
    config.shape.kv_heads = 1;
    config.shape.head_dim = 64;
    config.shape.ffn = 384;
    config.shape.vocab = 512;
    config.shape.init_std = 0.02;
    config.shape.max_positions = LENGTH;
    config.training.seq_length = LENGTH;
    config.training.micro_batch_size = 1;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.cp_size = RANKS;
    return config;
}

// A count that goes round: each token tells the next one.
static cy_status fill(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    (void)microbatch;
    const cy_engine *engine = context;
    const int32_t vocab = (int32_t)engine->options.config->shape.vocab;
    for (int64_t i = 0; i < engine->tokens; i++) {
        inputs[i] = engine->positions[i] % vocab;
        targets[i] = (engine->positions[i] + 1) % vocab;
    }
    return CY_OK;
}

static cy_status train(cy_engine *engine, const cy_rank *rank, void *context)
{
    long_run *run = context;
    const cy_batch_source source = {.context = engine, .fill = fill};
    run->planned[rank->rank] = (double)engine->memory.total;
    CY_TRY(cy_engine_initialize(engine));
    for (int step = 1; step <= STEPS; step++) {
        const cy_adamw_spec adamw = {
            .learning_rate = 2e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = step};
        cy_step_result result;
        const double start = cy_clock_s();
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        if (rank->rank == 0) run->loss[step - 1] = result.loss;
        if (rank->rank == 0) run->step_s = cy_clock_s() - start;
    }
    cy_rss resident;
    CY_TRY(cy_group_barrier(rank->groups.world));
    CY_TRY(cy_rss_read(&resident));
    if (rank->rank == 0) run->after_bytes = (double)resident.now_bytes;
    return cy_group_barrier(rank->groups.world);
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    long_run *run = context;
    cy_rss resident;
    CY_TRY(cy_group_barrier(rank->groups.world));
    CY_TRY(cy_rss_read(&resident));
    if (rank->rank == 0) run->before_bytes = (double)resident.now_bytes;
    CY_TRY(cy_group_barrier(rank->groups.world)); // nobody opens before
    return cy_test_with_engine(rank, run->config, "auto", train, run);
}

static void eight_ranks_hold_a_long_sequence(void **state)
{
    (void)state;
    const cy_config config = config_of();
    const cy_config_machine machine = {.cores = 2};
    long_run run = {.config = &config};
    CY_CHECK_OK(cy_ranks_run(&config, &machine, run_rank, &run));
    double planned = 0;
    for (int i = 0; i < RANKS; i++)
        planned += run.planned[i];
    const double taken = run.after_bytes - run.before_bytes;
    print_message(
        "losses %.4f %.4f %.4f %.4f; last step %.1f s; a rank took %.1f MiB, planned %.1f: "
        "%.3f\n",
        run.loss[0], run.loss[1], run.loss[2], run.loss[3], run.step_s, taken / RANKS * 0x1p-20,
        planned / RANKS * 0x1p-20, taken / planned);
    assert_true(run.loss[STEPS - 1] < run.loss[0] - 0.1);
    for (int i = 1; i < RANKS; i++)
        assert_true(run.planned[i] == run.planned[0]);
    assert_true(taken <= 1.1 * planned && taken >= 0.9 * planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_ranks_hold_a_long_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
