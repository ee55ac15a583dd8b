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

// All of it at first, a quarter of that after each ten steps, and never less than the ratio.
static void less_is_sent_step_by_step(void **state)
{
    (void)state;
    static const struct {
        int64_t step;
        double ratio;
    } cases[] = {{1, 1.0}, {10, 1.0}, {11, 0.25}, {20, 0.25}, {21, 0.0625}, {30, 0.0625},
        {31, 0.015625}, {40, 0.015625}, {41, 0.01}, {50, 0.01}, {1000000000, 0.01}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(cy_topk_ratio_at(0.01, 10, cases[i].step) == cases[i].ratio);
    assert_true(cy_topk_ratio_at(0.25, 10, 11) == 0.25);
    assert_true(cy_topk_ratio_at(0.25, 10, 21) == 0.25);
    assert_true(cy_topk_ratio_at(0.5, 10, 11) == 0.5);
    assert_true(cy_topk_ratio_at(0.01, 0, 1) == 0.01); // from the first step on
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
        cmocka_unit_test(what_is_sent_has_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
