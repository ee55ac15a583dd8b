// What tensor parallelism gives each rank of a parameter: together everything, in equal copies.

#include "support/support.h"

#include "model/manifest.h"

#include <string.h>

static const cy_model_shape shape = {.layers = 1,
    .hidden = 48,
    .ffn = 96,
    .heads = 12,
    .kv_heads = 4,
    .head_dim = 6,
    .vocab = 131,
    .norm_eps = 1e-5,
    .init_std = 0.02,
    .rope = {.theta = 1e4},
    .max_positions = 64,
    .architecture = "qwen3",
    .qkv_bias = true,
    .out_bias = true,
    .qk_norm = true};

static bool holds(cy_slice slice, int64_t row, int64_t col)
{
    return slice.row_first <= row && row < slice.row_first + slice.rows && slice.col_first <= col &&
        col < slice.col_first + slice.cols;
}

// Each element is in as many ranks' slices as each of them says that there are, and the ranks that
// share a slice have numbers of their own.
static void check_cover(const cy_param *param, int tp_size)
{
    for (int64_t row = 0; row < param->rows; row++) {
        for (int64_t col = 0; col < param->cols; col++) {
            int held = 0, owners = 0, copies = 0;
            for (int rank = 0; rank < tp_size; rank++) {
                const cy_slice slice = cy_param_slice(param, &shape, rank, tp_size);
                if (!holds(slice, row, col)) continue;
                assert_int_equal(slice.copy_index, held);
                held++;
                owners += slice.copy_index == 0;
                copies = slice.copies;
            }
            assert_int_equal(owners, 1);
            assert_int_equal(held, copies);
        }
    }
}

static void the_slices_of_all_ranks_cover_a_parameter(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 4, 12};
    cy_manifest manifest = {0};
    CY_CHECK_OK(cy_manifest_open(&manifest, &shape, cy_precision_of(CY_F32)));
    assert_true(manifest.count > 10);
    for (int i = 0; i < manifest.count; i++) {
        const cy_param *param = &manifest.params[i];
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            check_cover(param, sizes[k]);
            int64_t most = 0;
            for (int rank = 0; rank < sizes[k]; rank++) {
                const cy_slice slice = cy_param_slice(param, &shape, rank, sizes[k]);
                if (slice.rows * slice.cols > most) most = slice.rows * slice.cols;
            }
            assert_int_equal(cy_param_most_elements(param, &shape, sizes[k]), most);
        }
    }
    cy_manifest_close(&manifest);
}

// Four key heads for twelve ranks: three neighbours hold the same one.
static void ranks_share_a_key_head(void **state)
{
    (void)state;
    const cy_param k = {.dimensions = 2, .rows = 24, .cols = 48, .split = CY_SPLIT_KV_ROWS};
    for (int rank = 0; rank < 12; rank++) {
        const cy_slice slice = cy_param_slice(&k, &shape, rank, 12);
        assert_int_equal(slice.copies, 3);
        assert_int_equal(slice.copy_index, rank % 3);
        assert_int_equal(slice.row_first, rank / 3 * 6);
        assert_int_equal(slice.rows, 6);
        assert_int_equal(slice.cols, 48);
    }
}

static void a_vocabulary_is_cut_at_multiples_of_its_unit(void **state)
{
    (void)state;
    // A power of two, at most a 64th.
    static const int64_t units[][2] = {{1, 1}, {127, 1}, {128, 2}, {255, 2}, {256, 4}, {257, 4},
        {8191, 64}, {8192, 128}, {49152, 128}, {151936, 128}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        assert_int_equal(cy_vocab_unit(units[i][0]), units[i][1]);

    // 131 rows are 66 pieces of two, the last one short. 66 ranks have a piece each; 67 are too
    // many, and cut anywhere; 131 have a row each.
    const cy_param embed = {.dimensions = 2, .rows = 131, .cols = 48, .split = CY_SPLIT_VOCAB};
    for (int rank = 0; rank < 66; rank++) {
        const cy_slice slice = cy_param_slice(&embed, &shape, rank, 66);
        assert_int_equal(slice.row_first, 2 * rank);
        assert_int_equal(slice.rows, rank < 65 ? 2 : 1);
        assert_int_equal(slice.copies, 1);
    }
    for (int rank = 0; rank < 67; rank++) {
        const cy_slice slice = cy_param_slice(&embed, &shape, rank, 67);
        assert_int_equal(slice.row_first, 131 * rank / 67);
        assert_int_equal(slice.rows, 131 * (rank + 1) / 67 - 131 * rank / 67);
    }
    for (int rank = 0; rank < 131; rank++) {
        const cy_slice slice = cy_param_slice(&embed, &shape, rank, 131);
        assert_int_equal(slice.row_first, rank);
        assert_int_equal(slice.rows, 1);
    }
    // 79 pieces of 128, the last one of 16, for 3 ranks: 26, 26 and 27 of them.
    const cy_param head = {.dimensions = 2, .rows = 10000, .cols = 48, .split = CY_SPLIT_VOCAB};
    for (int rank = 0; rank < 3; rank++) {
        const cy_slice slice = cy_param_slice(&head, &shape, rank, 3);
        assert_int_equal(slice.row_first, 26 * 128 * rank);
        assert_int_equal(slice.rows, rank < 2 ? 26 * 128 : 26 * 128 + 16);
    }
    assert_int_equal(cy_param_most_elements(&head, &shape, 3), (26 * 128 + 16) * 48);
}

static void a_vector_is_cut_as_the_rows_are_that_it_belongs_to(void **state)
{
    (void)state;
    const cy_param bias = {.dimensions = 1, .rows = 1, .cols = 72, .split = CY_SPLIT_ROWS};
    for (int rank = 0; rank < 4; rank++) {
        const cy_slice slice = cy_param_slice(&bias, &shape, rank, 4);
        assert_int_equal(slice.row_first, 0);
        assert_int_equal(slice.rows, 1);
        assert_int_equal(slice.col_first, 18 * rank);
        assert_int_equal(slice.cols, 18);
    }
    const cy_param down = {.dimensions = 2, .rows = 48, .cols = 96, .split = CY_SPLIT_COLS};
    for (int rank = 0; rank < 4; rank++) {
        const cy_slice slice = cy_param_slice(&down, &shape, rank, 4);
        assert_int_equal(slice.rows, 48);
        assert_int_equal(slice.col_first, 24 * rank);
        assert_int_equal(slice.cols, 24);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slices_of_all_ranks_cover_a_parameter),
        cmocka_unit_test(ranks_share_a_key_head),
        cmocka_unit_test(a_vocabulary_is_cut_at_multiples_of_its_unit),
        cmocka_unit_test(a_vector_is_cut_as_the_rows_are_that_it_belongs_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
