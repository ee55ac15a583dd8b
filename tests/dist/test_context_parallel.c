// Training split over context-parallel ranks against the same training on one rank, by every style
// and layout, alone and with other dimensions; and what it sends and holds.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <math.h>

static cy_config config_of(int cp, cy_config_cp_style style, cy_config_cp_layout layout)
{
    cy_config config;
    cy_test_config(&config, CY_F64);
    config.shape.heads = 8;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 4;
    config.training.seq_length = 24;
    config.distributed.cp_size = cp;
    config.distributed.cp_style = style;
    config.distributed.cp_layout = layout;
    return config;
}

static void expect_parity(cy_config split, int steps)
{
    const cy_config dense = cy_test_dense(&split);
    cy_test_training a, b;
    for (int i = 0; i < 2; i++) {
        const int count = i == 0 ? 1 : steps;
        cy_test_train(&a, &split, count, "ref");
        cy_test_train(&b, &dense, count, "ref");
        const double gradients = count == 1 ? cy_test_gradient_difference(&a, &b, &split) : 0.0;
        const double losses = cy_test_loss_difference(&a, &b);
        const double norms = cy_test_norm_difference(&a, &b);
        if (!(gradients <= 1e-12 && losses <= 1e-10 && norms <= 1e-6) || a.copies_differ != 0) {
            const cy_config_distributed *d = &split.distributed;
            fail_msg("tp %d cp %d dp %d style %d layout %d: gradients differ by %g, losses by %g, "
                     "norms by %g in %d steps, %lld copies differ",
                d->tp_size, d->cp_size, d->dp_size, (int)d->cp_style, (int)d->cp_layout, gradients,
                losses, norms, count, (long long)a.copies_differ);
        }
        cy_test_training_close(&a);
        cy_test_training_close(&b);
    }
}

static const cy_config_cp_style styles[] = {
    CY_CONFIG_CP_RING, CY_CONFIG_CP_ALL_GATHER, CY_CONFIG_CP_ULYSSES};
static const cy_config_cp_layout layouts[] = {CY_CONFIG_CP_ZIGZAG, CY_CONFIG_CP_CONTIGUOUS};

static void every_style_and_layout_gives_the_training_of_one_rank(void **state)
{
    (void)state;
    for (int cp = 2; cp <= 4; cp += 2) {
        for (int style = 0; style < 3; style++) {
            for (int layout = 0; layout < 2; layout++) {
                expect_parity(config_of(cp, styles[style], layouts[layout]), 4);
            }
        }
    }
}

// 8 kv heads divide by the ranks; 2 and 1 do not, and are shared.
static void with_any_number_of_kv_heads_and_a_window(void **state)
{
    (void)state;
    static const int kv_heads[] = {8, 2, 1};
    for (int style = 0; style < 3; style++) {
        for (int i = 0; i < 3; i++) {
            cy_config config = config_of(4, styles[style], layouts[i % 2]);
            config.shape.kv_heads = kv_heads[i];
            config.shape.window = 7;
            config.training.recompute = (cy_config_recompute)i;
            expect_parity(config, 3);
        }
    }
}

static void with_tensor_and_data_parallel_ranks(void **state)
{
    (void)state;
    for (int style = 0; style < 3; style++) {
        cy_config config = config_of(2, styles[style], CY_CONFIG_CP_ZIGZAG);
        config.distributed.tp_size = 2;
        config.distributed.dp_size = 2;
        config.distributed.sequence_parallel = style != 1;
        expect_parity(config, 4);
        config.distributed.dp_size = 1;
        config.distributed.cp_size = 4;
        config.training.seq_length = 16;
        expect_parity(config, 3);
    }
}

// One step's traffic of one more layer.
static cy_traffic traffic_of_a_layer(cy_config config)
{
    cy_test_training few, more;
    config.training.gradient_accumulation_steps = 1;
    cy_test_train(&few, &config, 1, "ref");
    config.shape.layers++;
    cy_test_train(&more, &config, 1, "ref");
    const cy_traffic layer = {
        .bytes = more.cp.bytes - few.cp.bytes,
        .messages = more.cp.messages - few.cp.messages,
    };
    cy_test_training_close(&few);
    cy_test_training_close(&more);
    return layer;
}

// Keys and values travel at kv-head size: forward once around but for the last step, backward again
// and their gradients with them (the test's sums are as wide as its data).
static void the_ring_sends_keys_at_kv_head_size(void **state)
{
    (void)state;
    for (int cp = 2; cp <= 4; cp += 2) {
        const cy_config config = config_of(cp, CY_CONFIG_CP_RING, CY_CONFIG_CP_ZIGZAG);
        const cy_traffic layer = traffic_of_a_layer(config);
        const double tokens =
            (double)(config.training.micro_batch_size * config.training.seq_length) / cp;
        const double kv =
            tokens * 2 * (double)(config.shape.kv_heads * config.shape.head_dim) * sizeof(double);
        assert_int_equal(layer.messages, 3 * (cp - 1));
        assert_true(fabs(layer.bytes - 3 * (cp - 1) * kv) < 1e-6 * kv);
    }
}

static void the_other_styles_send_what_they_say(void **state)
{
    (void)state;
    cy_config config = config_of(4, CY_CONFIG_CP_ALL_GATHER, CY_CONFIG_CP_ZIGZAG);
    const double tokens =
        (double)(config.training.micro_batch_size * config.training.seq_length) / 4;
    const double kv =
        tokens * 2 * (double)(config.shape.kv_heads * config.shape.head_dim) * sizeof(double);
    const double q = tokens * (double)(config.shape.heads * config.shape.head_dim) * sizeof(double);
    const double delta = tokens * config.shape.heads * sizeof(double);
    cy_traffic layer = traffic_of_a_layer(config);
    assert_int_equal(layer.messages, 3); // gather, gather, reduce-scatter
    assert_true(fabs(layer.bytes - 3 * 3 * kv) < 1e-6 * kv);

    config.distributed.cp_style = CY_CONFIG_CP_ULYSSES;
    layer = traffic_of_a_layer(config);
    // q, k, v out and o back; q, k, v and do out, delta, and dq, dk, dv back: 3/4 of each leaves
    assert_int_equal(layer.messages, 5);
    const double bytes = 0.75 * ((q + kv) + q + (2 * q + kv) + delta + (q + kv));
    assert_true(fabs(layer.bytes - bytes) < 1e-6 * bytes);
}

// In bf16 gradients of heads that one rank has leave as bf16; those that several add to, wide.
static void sums_of_bf16_travel_wide_only_where_they_are_shared(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        cy_config config = config_of(4, CY_CONFIG_CP_ULYSSES, CY_CONFIG_CP_ZIGZAG);
        config.model.dtype = CY_BF16;
        const double tokens =
            (double)(config.training.micro_batch_size * config.training.seq_length) / 4;
        const double dim = (double)config.shape.head_dim;
        const double q = tokens * config.shape.heads * dim;
        // Four ranks need a key head each: of two, each goes to two ranks.
        const double kv = tokens * 2 * 4 * dim;
        const double delta = tokens * config.shape.heads;
        config.shape.kv_heads = shared ? 2 : 4;
        const cy_traffic layer = traffic_of_a_layer(config);
        const double back = (q + kv) * (shared ? sizeof(float) : 2);
        const double bytes =
            0.75 * (2 * (q + kv) + 2 * q + 2 * (2 * q + kv) + sizeof(float) * delta + back);
        if (!(fabs(layer.bytes - bytes) < 1e-6 * bytes)) {
            fail_msg("shared %d: %g bytes a layer, not %g", shared, layer.bytes, bytes);
        }
    }
}

// Twice the sequence takes twice the memory, not four times.
static void no_rank_holds_a_square(void **state)
{
    (void)state;
    for (int style = 0; style < 3; style++) {
        cy_config config = config_of(2, styles[style], CY_CONFIG_CP_ZIGZAG);
        config.model.dtype = CY_F32;
        cy_test_training once, twice;
        config.training.seq_length = 2048;
        config.training.micro_batch_size = 1;
        config.shape.max_positions = 4096;
        cy_test_train(&once, &config, 0, "auto");
        config.training.seq_length = 4096;
        cy_test_train(&twice, &config, 0, "auto");
        assert_true(once.scratch_bytes > 0);
        assert_true((double)twice.scratch_bytes < 2.2 * (double)once.scratch_bytes);
        cy_test_training_close(&once);
        cy_test_training_close(&twice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_style_and_layout_gives_the_training_of_one_rank),
        cmocka_unit_test(with_any_number_of_kv_heads_and_a_window),
        cmocka_unit_test(with_tensor_and_data_parallel_ranks),
        cmocka_unit_test(the_ring_sends_keys_at_kv_head_size),
        cmocka_unit_test(the_other_styles_send_what_they_say),
        cmocka_unit_test(sums_of_bf16_travel_wide_only_where_they_are_shared),
        cmocka_unit_test(no_rank_holds_a_square),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
