// Traffic inside a layer travels under its work: on links that take time and no core, set so that
// the traffic of a step takes half of its compute, tensor parallelism with sequence parallelism and
// ring attention expose less than a third of it; with overlap off tensor parallelism exposes all of
// it.

#include "dist/overlap.h"

// The feed-forward is four times as wide as the model, as in most models.
static cy_config tensor_config(bool overlap)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 8;
    config.shape.hidden = 256;
    config.shape.heads = 4;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 64;
    config.shape.ffn = 1024;
    config.shape.max_positions = 1024;
    config.training.seq_length = CY_TEST_SANITIZED ? 256 : 1024;
    config.training.micro_batch_size = 2;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.tp_size = 2;
    config.distributed.sequence_parallel = true;
    config.distributed.tp_overlap = overlap;
    return config;
}

// Sequences so long that attention is most of the work, which is what the ring is for.
static cy_config ring_config(void)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 2;
    config.shape.hidden = 64;
    config.shape.heads = 4;
    config.shape.kv_heads = 2;
    config.shape.head_dim = 32;
    config.shape.ffn = 64;
    config.shape.max_positions = 8192;
    config.training.seq_length = CY_TEST_SANITIZED ? 1024 : 8192;
    config.training.micro_batch_size = 1;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.cp_size = 2;
    return config;
}

static bool hides(const char *what, const cy_config *config, const cy_config *without)
{
    const overlap_step fast = overlap_measure(config, 0);
    const double traffic_s = fast.step_s / 2;
    const overlap_step slow = overlap_measure(config, fast.bytes / traffic_s);
    print_message("%s: traffic %.1f ms; step %.1f ms without it (%.1f exposed), %.1f with it (%.1f "
                  "exposed: %.0f %%)\n",
        what, traffic_s * 1e3, fast.step_s * 1e3, fast.exposed_s * 1e3, slow.step_s * 1e3,
        slow.exposed_s * 1e3, 100.0 * slow.exposed_s / traffic_s);
    bool hidden = slow.exposed_s <= 0.3 * traffic_s;
    if (without == NULL) return hidden;
    const overlap_step off = overlap_measure(without, fast.bytes / traffic_s);
    print_message("%s: overlap off: step %.1f ms (%.1f exposed)\n", what, off.step_s * 1e3,
        off.exposed_s * 1e3);
    return hidden && off.exposed_s >= 0.9 * traffic_s && off.step_s > slow.step_s;
}

static void tensor_parallel_traffic_travels_under_products(void **state)
{
    (void)state;
    const cy_config on = tensor_config(true), off = tensor_config(false);
    for (int i = 0; i < OVERLAP_TRIES; i++) {
        if (hides("tensor", &on, &off) || !OVERLAP_TIMED) return;
    }
    fail_msg("in none of %d measurements", OVERLAP_TRIES);
}

static void the_ring_travels_under_attention(void **state)
{
    (void)state;
    const cy_config config = ring_config();
    for (int i = 0; i < OVERLAP_TRIES; i++) {
        if (hides("ring", &config, NULL) || !OVERLAP_TIMED) return;
    }
    fail_msg("in none of %d measurements", OVERLAP_TRIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel_traffic_travels_under_products),
        cmocka_unit_test(the_ring_travels_under_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
