// How much of a bucket is sent: counts, bytes, and the steps at which less of it is.

#include "support/support.h"

#include "parallel/data/compress.h"

static void counts_are_even_and_at_most_all(void **state)
{
    (void)state;
    static const struct {
        double ratio;
        int64_t n, count;
    } cases[] = {{0.01, 100, 2}, {0.01, 200, 2}, {0.01, 201, 4}, {0.01, 400, 4}, {0.01, 401, 6},
        {0.5, 7, 4}, {0.5, 9, 6}, {1.0, 7, 7}, {1.0, 8, 8}, {0.9, 3, 3}, {0.001, 1, 1},
        {0.001, 2, 2}, {0.001, 3, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(cy_topk_count(cases[i].ratio, cases[i].n), cases[i].count);
}

// A quarter at first, a quarter of that after a third of the warm-up's steps, and never less than
// the ratio.
static void less_is_sent_step_by_step(void **state)
{
    (void)state;
    static const struct {
        int64_t step;
        double ratio;
    } cases[] = {{1, 0.25}, {10, 0.25}, {11, 0.0625}, {20, 0.0625}, {21, 0.015625}, {30, 0.015625},
        {31, 0.01}, {32, 0.01}, {1000000000, 0.01}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(cy_topk_ratio_at(0.01, 30, cases[i].step) == cases[i].ratio);
    assert_true(cy_topk_ratio_at(0.25, 10, 1) == 0.25);
    assert_true(cy_topk_ratio_at(0.5, 10, 1) == 0.5);
    assert_true(cy_topk_ratio_at(0.01, 0, 1) == 0.01); // from the first step on
}

// The stages follow each other without a gap and are as long as each other, up to one step; fewer
// steps than stages have a stage each. The ratios of the paper: 75 % are left out, 93.75 %, 98.4375
// %, 99.6 %, then 99.9 %.
static void stages_fill_the_warm_up(void **state)
{
    (void)state;
    static const double paper[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.001};
    assert_int_equal(cy_topk_stages(0.001, 100), 4);
    for (int stage = 0; stage < 5; stage++)
        assert_true(cy_topk_stage_ratio(0.001, 100, stage) == paper[stage]);
    assert_int_equal(cy_topk_stages(1e-12, 100), CY_TOPK_STAGES);
    assert_int_equal(cy_topk_stages(0.001, 2), 2);
    assert_int_equal(cy_topk_stages(0.001, 0), 0);
    for (int64_t steps = 0; steps < 40; steps++) {
        const int stages = cy_topk_stages(0.001, steps);
        assert_int_equal(cy_topk_stage_first(0.001, steps, 0), 1);
        assert_int_equal(cy_topk_stage_first(0.001, steps, stages), steps + 1);
        for (int stage = 0; stage < stages; stage++) {
            const int64_t length = cy_topk_stage_first(0.001, steps, stage + 1) -
                cy_topk_stage_first(0.001, steps, stage);
            assert_true(steps / stages <= length && length <= steps / stages + 1);
        }
        assert_true(cy_topk_ratio_at(0.001, steps, steps + 1) == 0.001);
        if (steps > 0) assert_true(cy_topk_ratio_at(0.001, steps, steps) > 0.001);
    }
}

static void what_is_sent_has_its_bytes(void **state)
{
    (void)state;
    const cy_compression_spec some = {.kind = CY_COMPRESSION_TOPK, .ratio = 0.01};
    // A value and its index each.
    assert_int_equal(cy_compressed_bytes(&some, CY_F32, 1000, 4), 10 * (4 + 4));
    assert_int_equal(cy_compressed_bytes(&some, CY_F64, 1000, 4), 10 * (8 + 4));
    // A byte an element of this rank's part, and a factor a block of it.
    const cy_compression_spec bytes = {.kind = CY_COMPRESSION_INT8};
    const int64_t part = 1000 / 4;
    assert_int_equal(cy_compressed_bytes(&bytes, CY_F32, 1000, 4),
        (size_t)part + 4 * (size_t)cy_quantize_blocks(part));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_even_and_at_most_all),
        cmocka_unit_test(less_is_sent_step_by_step),
        cmocka_unit_test(stages_fill_the_warm_up),
        cmocka_unit_test(what_is_sent_has_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
