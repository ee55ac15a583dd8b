// Training split over tensor-parallel ranks against the same training on one rank, and what it
// sends.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "model/head.h"

#include <math.h>
#include <stdio.h>

// Sizes that 2, 3 and 4 divide, but for the vocabulary: 61.
static cy_config config_of(int tp)
{
    cy_config config;
    cy_test_config(&config, CY_F64);
    config.shape.hidden = 24;
    config.shape.heads = 12;
    config.shape.kv_heads = 12;
    config.shape.head_dim = 4;
    config.shape.ffn = 36;
    config.distributed.tp_size = tp;
    return config;
}

// One step's gradients and some steps' losses.
static void expect_parity(cy_config split, int steps, double gradient_bound, double loss_bound)
{
    const cy_config dense = cy_test_dense(&split);
    cy_test_training a, b;
    cy_test_train(&a, &split, 1, "ref");
    cy_test_train(&b, &dense, 1, "ref");
    const double gradients = cy_test_gradient_difference(&a, &b, &split);
    if (!(gradients <= gradient_bound) || !(fabs(a.loss[0] - b.loss[0]) <= 1e-13) ||
        a.copies_differ != 0) {
        fail_msg("tp %d: gradients differ by %g, losses by %g, %lld copies differ",
            split.distributed.tp_size, gradients, a.loss[0] - b.loss[0],
            (long long)a.copies_differ);
    }
    cy_test_training_close(&a);
    cy_test_training_close(&b);
    if (steps == 0) return;
    cy_test_train(&a, &split, steps, "ref");
    cy_test_train(&b, &dense, steps, "ref");
    const double losses = cy_test_loss_difference(&a, &b);
    const double norms = cy_test_norm_difference(&a, &b);
    if (!(losses <= loss_bound && norms <= 1e-6) || a.copies_differ != 0) {
        fail_msg("tp %d: losses differ by %g within %d steps, norms by %g, %lld copies differ",
            split.distributed.tp_size, losses, steps, norms, (long long)a.copies_differ);
    }
    cy_test_training_close(&a);
    cy_test_training_close(&b);
}

static void every_size_gives_the_training_of_one_rank(void **state)
{
    (void)state;
    for (int tp = 2; tp <= 4; tp++)
        expect_parity(config_of(tp), 20, 1e-12, 1e-10);
}

static void sequence_parallelism_too(void **state)
{
    (void)state;
    for (int tp = 2; tp <= 4; tp++) {
        cy_config config = config_of(tp);
        config.distributed.sequence_parallel = true;
        config.training.seq_length = 12;
        expect_parity(config, 50, 1e-12, 1e-10);
    }
}

static void gathered_inputs_may_be_kept(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 3; recompute++) {
        cy_config config = config_of(2);
        config.distributed.sequence_parallel = true;
        config.distributed.sequence_keep_inputs = true;
        config.training.recompute = (cy_config_recompute)recompute;
        expect_parity(config, 5, 1e-12, 1e-10);
    }
}

// Tied embeddings, biases, a window and norms of q and k; with kv heads that several ranks share.
static void shared_kv_heads_biases_and_tied_embeddings(void **state)
{
    (void)state;
    static const int kv_heads[] = {4, 2, 1};
    for (int i = 0; i < 3; i++) {
        for (int sequence = 0; sequence < 2; sequence++) {
            cy_config config = config_of(4);
            config.shape.kv_heads = kv_heads[i];
            config.shape.tied = true;
            config.shape.qkv_bias = true;
            config.shape.out_bias = true;
            config.shape.window = 7;
            config.shape.qk_norm = kv_heads[i] != 4;
            config.distributed.sequence_parallel = sequence == 1;
            expect_parity(config, 5, 1e-12, 1e-10);
        }
    }
}

static void with_data_parallel_ranks_and_recomputation(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 3; recompute++) {
        cy_config config = config_of(2);
        config.shape.kv_heads = 1;
        config.shape.heads = 4;
        config.distributed.dp_size = 2;
        config.distributed.sequence_parallel = true;
        config.training.recompute = (cy_config_recompute)recompute;
        expect_parity(config, 5, 1e-12, 1e-10);
    }
}

// So many rows that sums go in `pieces` pieces, which cut sequences.
static cy_config long_config(int tp, int pieces)
{
    cy_config config = config_of(tp);
    config.training.seq_length = 60;
    config.training.micro_batch_size = pieces * CY_TENSOR_CHUNK_ROWS / 60 + 1;
    config.training.gradient_accumulation_steps = 1;
    config.shape.max_positions = 60;
    return config;
}

static void sums_in_pieces_give_the_training_of_one_rank(void **state)
{
    (void)state;
    for (int tp = 2; tp <= 4; tp++)
        expect_parity(long_config(tp, 2), 0, 1e-12, 1e-10);
    for (int recompute = 0; recompute < 3; recompute++) {
        cy_config config = long_config(4, 2);
        config.shape.kv_heads = 2;
        config.shape.tied = true;
        config.shape.qkv_bias = true;
        config.shape.out_bias = true;
        config.shape.qk_norm = recompute != 0;
        config.shape.window = 7;
        config.training.recompute = (cy_config_recompute)recompute;
        expect_parity(config, 0, 1e-12, 1e-10);
    }
}

// With context parallelism attention is not cut, and a pipeline ends sums before it sends.
static void in_pieces_beside_other_splits(void **state)
{
    (void)state;
    cy_config config = long_config(2, 2);
    config.distributed.cp_size = 2;
    config.training.seq_length = 120;
    config.shape.max_positions = 120;
    expect_parity(config, 0, 1e-12, 1e-10);
    config = long_config(2, 2);
    config.distributed.pp_size = 2;
    expect_parity(config, 0, 1e-12, 1e-10);
    config = long_config(2, 2);
    config.distributed.dp_size = 2;
    config.distributed.zero_stage = 3;
    expect_parity(config, 0, 1e-12, 1e-10);
}

static void sums_in_flight_change_no_bit(void **state)
{
    (void)state;
    cy_test_training a, b;
    for (int kind = 0; kind < 3; kind++) {
        cy_config config = kind == 2 ? long_config(3, 2) : config_of(3);
        const int steps = kind == 2 ? 2 : 5;
        config.distributed.sequence_parallel = kind == 1;
        if (kind < 2) config.training.seq_length = 12;
        config.training.seed = 42;
        config.distributed.tp_overlap = true;
        cy_test_train(&a, &config, steps, "ref");
        config.distributed.tp_overlap = false;
        cy_test_train(&b, &config, steps, "ref");
        assert_true(a.hash == b.hash);
        config.training.seed = 43;
        cy_test_training_close(&b);
        cy_test_train(&b, &config, steps, "ref");
        assert_true(a.hash != b.hash);
        cy_test_training_close(&a);
        cy_test_training_close(&b);
    }
}

// What one more layer sends in a step of one microbatch, by difference.
static cy_traffic traffic_of_a_layer(cy_config config)
{
    cy_test_training few, more;
    config.training.gradient_accumulation_steps = 1;
    cy_test_train(&few, &config, 1, "ref");
    config.shape.layers++;
    cy_test_train(&more, &config, 1, "ref");
    const cy_traffic layer = {
        .bytes = more.tp.bytes - few.tp.bytes,
        .messages = more.tp.messages - few.tp.messages,
    };
    cy_test_training_close(&few);
    cy_test_training_close(&more);
    return layer;
}

// A sum in pieces is one all-reduce for each of them, of the same bytes.
static void a_layer_sends_four_sums(void **state)
{
    (void)state;
    static const struct {
        int tp, pieces; // 0: few rows
    } cases[] = {{2, 0}, {4, 0}, {2, 2}, {4, 2}};
    for (int i = 0; i < 4; i++) {
        const int tp = cases[i].tp, pieces = cases[i].pieces;
        const cy_config config = pieces > 0 ? long_config(tp, pieces) : config_of(tp);
        const cy_traffic layer = traffic_of_a_layer(config);
        const double tokens =
            (double)(config.training.micro_batch_size * config.training.seq_length);
        const double matrix = tokens * (double)config.shape.hidden * sizeof(double);
        const int each = pieces > 0 ? pieces : 1;
        assert_int_equal(layer.messages, 4 * each); // two forward, two backward
        const double bytes = 4 * matrix * 2 * (tp - 1) / tp;
        assert_true(fabs(layer.bytes - bytes) < 1e-6 * bytes);
    }
}

// An all-gather and a reduce-scatter move what an all-reduce moves; two more gathers bring back the
// inputs of the weight gradients, unless they are kept, and the norms' gradients are summed once a
// step. In pieces there is one message for each other rank in place of a collective.
static void sequence_parallelism_sends_five_quarters(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        for (int overlap = 0; overlap < 2; overlap++) {
            cy_config config = config_of(4);
            config.distributed.sequence_parallel = true;
            config.distributed.sequence_keep_inputs = kept == 1;
            config.distributed.tp_overlap = overlap == 1;
            const cy_traffic layer = traffic_of_a_layer(config);
            const double hidden = (double)config.shape.hidden;
            const double tokens =
                (double)(config.training.micro_batch_size * config.training.seq_length);
            const double one = tokens * hidden * sizeof(double) * 3 / 4;
            const double norms = 2 * 2 * hidden * sizeof(double) * 3 / 4;
            const int moves = kept == 1 ? 8 : 10;
            assert_int_equal(layer.messages, moves * (overlap == 1 ? 3 : 1) + 2);
            assert_true(fabs(layer.bytes - (moves * one + norms)) < 1e-6 * one);
        }
    }
}

// Ranks that share kv heads add one message a step and layer, among themselves.
static void shared_kv_heads_send_one_more(void **state)
{
    (void)state;
    cy_config config = config_of(4);
    config.shape.kv_heads = 2;
    config.training.gradient_accumulation_steps = 1;
    cy_test_training training;
    cy_test_train(&training, &config, 1, "ref");
    assert_int_equal(training.kv.messages, config.shape.layers);
    cy_test_training_close(&training);
    config.shape.kv_heads = 4;
    cy_test_train(&training, &config, 1, "ref");
    assert_int_equal(training.kv.messages, 0);
    cy_test_training_close(&training);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_gives_the_training_of_one_rank),
        cmocka_unit_test(sequence_parallelism_too),
        cmocka_unit_test(gathered_inputs_may_be_kept),
        cmocka_unit_test(shared_kv_heads_biases_and_tied_embeddings),
        cmocka_unit_test(with_data_parallel_ranks_and_recomputation),
        cmocka_unit_test(sums_in_pieces_give_the_training_of_one_rank),
        cmocka_unit_test(in_pieces_beside_other_splits),
        cmocka_unit_test(sums_in_flight_change_no_bit),
        cmocka_unit_test(a_layer_sends_four_sums),
        cmocka_unit_test(sequence_parallelism_sends_five_quarters),
        cmocka_unit_test(shared_kv_heads_send_one_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
