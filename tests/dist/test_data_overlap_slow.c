// Gradients travel under the backward pass: on a link that takes time and no core, bucketed
// reduction hides most of its traffic, and the naive way, which hides nothing, makes steps slower.

#include "dist/overlap.h"

static cy_config config_of(bool naive, int zero)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 8;
    config.shape.hidden = 128;
    config.shape.heads = 4;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 32;
    config.shape.ffn = 256;
    config.shape.tied = true;
    config.shape.max_positions = 256;
    config.training.seq_length = 256;
    config.training.micro_batch_size = 4;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.dp_size = 2;
    config.distributed.zero_stage = zero;
    config.distributed.dp_reduce = naive ? CY_CONFIG_DP_NAIVE : CY_CONFIG_DP_BUCKETED;
    config.distributed.bucket_mb = 0.5;
    return config;
}

static bool buckets_hide(void)
{
    const cy_config by_buckets = config_of(false, 0), one_by_one = config_of(true, 0);
    const overlap_step fast = overlap_measure(&by_buckets, 0);
    const double traffic_s = fast.step_s / 3; // half of the backward pass
    const overlap_step bucketed = overlap_measure(&by_buckets, fast.bytes / traffic_s);
    const overlap_step naive = overlap_measure(&one_by_one, fast.bytes / traffic_s);
    print_message("traffic %.1f ms; step %.1f ms without it, %.1f bucketed (%.1f exposed), %.1f "
                  "naive (%.1f exposed)\n",
        traffic_s * 1e3, fast.step_s * 1e3, bucketed.step_s * 1e3, bucketed.exposed_s * 1e3,
        naive.step_s * 1e3, naive.exposed_s * 1e3);
    return bucketed.exposed_s <= 0.3 * traffic_s + fast.exposed_s &&
        naive.exposed_s >= 0.9 * traffic_s && naive.exposed_s > 2.0 * bucketed.exposed_s &&
        naive.step_s > bucketed.step_s;
}

static bool gathers_hide(void)
{
    const cy_config config = config_of(false, 3);
    const overlap_step fast = overlap_measure(&config, 0);
    const double traffic_s = fast.step_s / 3;
    const overlap_step run = overlap_measure(&config, fast.bytes / traffic_s);
    print_message("traffic %.1f ms; step %.1f ms without it, %.1f with (%.1f exposed)\n",
        traffic_s * 1e3, fast.step_s * 1e3, run.step_s * 1e3, run.exposed_s * 1e3);
    return run.exposed_s <= 0.3 * traffic_s + fast.exposed_s;
}

static void expect_within_tries(bool (*hides)(void))
{
    for (int i = 0; i < OVERLAP_TRIES; i++) {
        if (hides() || !OVERLAP_TIMED) return;
    }
    fail_msg("in none of %d measurements", OVERLAP_TRIES);
}

static void buckets_hide_their_traffic(void **state)
{
    (void)state;
    expect_within_tries(buckets_hide);
}

static void weights_are_gathered_ahead(void **state)
{
    (void)state;
    expect_within_tries(gathers_hide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_hide_their_traffic),
        cmocka_unit_test(weights_are_gathered_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
