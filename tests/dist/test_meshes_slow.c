// 50 steps of every mesh of tensor, context and data parallel ranks whose product is up to 8,
// against one rank, in fp64: losses, and each tensor of the weights.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <stdlib.h>

#define STEPS   50
#define SAMPLES 16 // of a step, whatever the mesh

static cy_config config_of(int tp, int cp, int dp)
{
    cy_config config;
    cy_test_config(&config, CY_F64);
    config.shape.heads = 8;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 4;
    config.training.micro_batch_size = 2;
    config.training.gradient_accumulation_steps = SAMPLES / 2 / dp;
    config.training.seq_length = 16;
    config.distributed.tp_size = tp;
    config.distributed.cp_size = cp;
    config.distributed.dp_size = dp;
    return config;
}

static void expect_same(const cy_config *config, const cy_test_training *dense)
{
    const cy_config_distributed *d = &config->distributed;
    cy_test_training split;
    cy_test_train(&split, config, STEPS, "ref");
    const double losses = cy_test_loss_difference(&split, dense);
    const double weights = cy_test_weight_difference(&split, dense, config);
    const double norms = cy_test_norm_difference(&split, dense);
    if (!(losses <= 1e-10 && weights <= 1e-9 && norms <= 1e-6) || split.copies_differ != 0) {
        fail_msg("tp %d cp %d dp %d style %d zero %d: losses differ by %g, weights by %g, norms by "
                 "%g, %lld copies differ",
            d->tp_size, d->cp_size, d->dp_size, (int)d->cp_style, d->zero_stage, losses, weights,
            norms, (long long)split.copies_differ);
    }
    cy_test_training_close(&split);
}

static void every_mesh_gives_the_training_of_one_rank(void **state)
{
    (void)state;
    const cy_config one = config_of(1, 1, 1);
    cy_test_training dense;
    cy_test_train(&dense, &one, STEPS, "ref");
    int count = 0;
    for (int tp = 1; tp <= 8; tp *= 2) {
        for (int cp = 1; cp * tp <= 8; cp *= 2) {
            for (int dp = 1; dp * cp * tp <= 8; dp *= 2) {
                cy_config config = config_of(tp, cp, dp);
                // The other settings take turns, so that all of them meet all sizes.
                config.distributed.sequence_parallel = count % 2 == 0;
                config.distributed.cp_style = (cy_config_cp_style)(count % 3);
                config.distributed.cp_layout = (cy_config_cp_layout)(count / 2 % 2);
                config.distributed.zero_stage = count % 4;
                expect_same(&config, &dense);
                count++;
            }
        }
    }
    cy_test_training_close(&dense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_gives_the_training_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
