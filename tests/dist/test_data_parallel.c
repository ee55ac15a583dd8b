// Data parallelism and ZeRO: whatever is kept as shards, the training is that of one rank.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#define STEPS 3

typedef struct grid_case {
    int dp, zero, accumulation;
    bool tied;
    double bucket_mb;
} grid_case;

static cy_config config_of(const grid_case *grid, cy_dtype dtype)
{
    cy_config config;
    cy_test_config(&config, dtype);
    config.distributed.dp_size = grid->dp;
    config.distributed.zero_stage = grid->zero;
    config.distributed.bucket_mb = grid->bucket_mb;
    config.training.micro_batch_size = 1;
    config.training.gradient_accumulation_steps = grid->accumulation;
    config.shape.tied = grid->tied;
    return config;
}

// The same global batch on one rank.
static cy_config alone(const grid_case *grid, cy_dtype dtype)
{
    cy_config config = config_of(grid, dtype);
    config.distributed.dp_size = 1;
    config.distributed.zero_stage = 0;
    config.training.gradient_accumulation_steps = (int64_t)grid->accumulation * grid->dp;
    return config;
}

static double largest_weight_difference(const cy_test_training *a, const cy_test_training *b)
{
    double most = 0;
    assert_int_equal(a->elements, b->elements);
    for (int64_t i = 0; i < a->elements; i++) {
        const double difference = fabs(a->weights[i] - b->weights[i]);
        if (!(difference <= most)) most = difference;
    }
    return most;
}

static void check_parity(const grid_case *grid)
{
    const cy_config split = config_of(grid, CY_F64);
    const cy_config dense = alone(grid, CY_F64);
    cy_test_training a, b;
    cy_test_train(&a, &split, STEPS, "ref");
    cy_test_train(&b, &dense, STEPS, "ref");
    const double loss = cy_test_loss_difference(&a, &b);
    const double weights = largest_weight_difference(&a, &b);
    double norm = 0;
    for (int i = 0; i < STEPS; i++)
        norm = fmax(norm, fabs(a.norm[i] / b.norm[i] - 1.0));
    if (!(loss <= 1e-11 && weights <= 1e-9 && norm <= 1e-12) || a.copies_differ != 0) {
        fail_msg("dp %d zero %d accumulation %d tied %d: loss %g, weights %g, norm %g, %lld copies",
            grid->dp, grid->zero, grid->accumulation, grid->tied, loss, weights, norm,
            (long long)a.copies_differ);
    }
    cy_test_training_close(&a);
    cy_test_training_close(&b);
}

static void every_stage_trains_as_one_rank(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        check_parity(&(grid_case){.dp = 2, .zero = zero, .accumulation = 2, .bucket_mb = 0.01});
        check_parity(
            &(grid_case){.dp = 3, .zero = zero, .accumulation = 1, .tied = true, .bucket_mb = 25});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_trains_as_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
