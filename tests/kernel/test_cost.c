// What operators are said to cost, against sums done by hand: operations of the definition, and
// bytes of each operand as often as it is read or written.
#include "support/support.h"

#include "kernel/cost.h"

static char nothing;

static cy_view of(cy_dtype dtype, int64_t rows, int64_t cols)
{
    return cy_view_of(&nothing, dtype, rows, cols);
}

static cy_view fp32(int64_t rows, int64_t cols)
{
    return of(CY_F32, rows, cols);
}

static cy_view bf16(int64_t rows, int64_t cols)
{
    return of(CY_BF16, rows, cols);
}

static void check(cy_cost cost, double flops, double bytes)
{
    if (cost.flops == flops && cost.bytes == bytes) return;
    fail_msg(
        "%g operations and %g bytes instead of %g and %g", cost.flops, cost.bytes, flops, bytes);
}

static void products(void **state)
{
    (void)state;
    const cy_matmul_spec plain = {0}, adds = {.accumulate = true};
    const cy_matmul_spec turned = {.transpose_a = true};
    check(cy_cost_matmul(fp32(3, 5), bf16(3, 7), bf16(7, 5), plain), 210, 42 + 70 + 60);
    check(cy_cost_matmul(fp32(3, 5), bf16(3, 7), bf16(7, 5), adds), 210, 42 + 70 + 120);
    check(cy_cost_matmul(fp32(3, 5), bf16(7, 3), bf16(7, 5), turned), 210, 42 + 70 + 60);
    check(cy_cost_sum((cy_cost){1, 2}, (cy_cost){10, 20}), 11, 22);
}

static void norms_and_positions(void **state)
{
    (void)state;
    const cy_view x = bf16(3, 8), y = bf16(3, 8), rms = fp32(1, 3), weight = bf16(1, 8);
    const cy_view none = cy_view_none(), dweight = fp32(1, 8);
    check(cy_cost_norm_forward(y, rms, x, none, weight), 4 * 24, 48 + 12 + 48 + 16);
    check(cy_cost_norm_forward(y, rms, x, y, weight), 5 * 24, 48 + 12 + 2 * 48 + 48 + 16);
    check(cy_cost_norm_apply(y, x, rms, weight), 2 * 24, 48 + 48 + 12 + 16);
    check(cy_cost_norm_backward(x, dweight, y, x, rms, weight), 8 * 24 + 3 * 24,
        2 * (48 + 32) + 48 + 48 + 12 + 16);
    check(cy_cost_norm_backward(x, none, y, x, rms, weight), 8 * 24, 2 * 48 + 48 + 48 + 12 + 16);
    check(cy_cost_rope_table(fp32(10, 4)), 100, 160);
    // Two heads of four elements; a row of the table and a position for each row.
    check(cy_cost_rope(bf16(3, 12), fp32(10, 4), 2), 3 * 24, 2 * 24 * 2 + 3 * (16 + 4));
}

// Five queries, the last of seven keys, and two of two; a window of three.
static const cy_attention_span spans[] = {
    {.q_count = 5, .k_count = 7}, {.q_count = 2, .k_count = 2}};

static cy_attention_spec spec_of(int64_t window)
{
    return (cy_attention_spec){.heads = 4,
        .kv_heads = 2,
        .head_dim = 8,
        .window = window,
        .spans = spans,
        .span_count = 2};
}

static void pairs_that_see_each_other(void **state)
{
    (void)state;
    cy_attention_spec spec = spec_of(0);
    assert_true(cy_attention_pairs(&spec) == 3 + 4 + 5 + 6 + 7 + 1 + 2);
    spec = spec_of(3);
    assert_true(cy_attention_pairs(&spec) == 5 * 3 + 1 + 2);
    spec.pairs = 11; // known
    assert_true(cy_attention_pairs(&spec) == 11);
    const cy_attention_span early = {.q_count = 4, .k_count = 2}; // the first two see nothing
    spec = (cy_attention_spec){.spans = &early, .span_count = 1};
    assert_true(cy_attention_pairs(&spec) == 0 + 0 + 1 + 2);
}

static void attention(void **state)
{
    (void)state;
    cy_attention_spec spec = spec_of(0);
    const cy_view q = bf16(7, 32), k = bf16(9, 16), row = fp32(4, 7), wide = fp32(9, 16);
    const double pair = 28 * 4 * 8, large = 448, small = 288, line = 112;
    check(cy_cost_attention_forward(q, row, q, k, k, &spec), 4 * pair,
        large + line + large + small + small);
    check(cy_cost_attention_merge(q, row, q, row), 3 * 224 + 6 * 28,
        2 * (large + line) + large + line);
    check(cy_cost_attention_delta(row, q, q), 2 * 224, line + large + large);
    const double read = large + line + line + large + small + small;
    check(cy_cost_attention_backward(q, wide, wide, q, row, row, q, k, k, &spec), 10 * pair,
        large + 2 * 576 + read);
    spec.accumulate = true;
    check(cy_cost_attention_backward(q, wide, wide, q, row, row, q, k, k, &spec), 10 * pair,
        2 * (large + 2 * 576) + read);
}

static void attention_in_pages(void **state)
{
    (void)state;
    const cy_kv_pages pages = {
        .keys = bf16(100, 16), .values = fp32(100, 16), .page_size = 16, .pages_per_sequence = 3};
    const cy_view q = bf16(2, 32);
    cy_attention_spec spec = {.heads = 4, .kv_heads = 2, .head_dim = 8};
    const double key = 2 * 8 * (2 + 4);
    check(cy_cost_attention_paged(q, q, &pages, &spec), 4 * 2 * 48 * 32, 128 + 128 + 96 * key);
    spec.window = 10;
    check(cy_cost_attention_paged(q, q, &pages, &spec), 4 * 2 * 10 * 32, 128 + 128 + 20 * key);
    spec.window = 1000;
    check(cy_cost_attention_paged(q, q, &pages, &spec), 4 * 2 * 48 * 32, 128 + 128 + 96 * key);
    spec.pairs = 5;
    check(cy_cost_attention_paged(q, q, &pages, &spec), 4 * 5 * 32, 128 + 128 + 5 * key);
    const cy_view parts = fp32(6, 20);
    const double keys = 6 * CY_ATTENTION_PART;
    check(cy_cost_attention_split(parts, q, &pages, &spec), 4 * keys / 2 * 32,
        480 + 128 + keys * 8 * 6);
    check(cy_cost_attention_combine(q, parts), 2 * 120, 128 + 480);
}

static void feed_forward_and_both_ends(void **state)
{
    (void)state;
    const cy_view y = bf16(3, 5), both = bf16(3, 10), logits = bf16(4, 6), row = fp32(1, 4);
    check(cy_cost_swiglu_forward(y, both), 5 * 15, 30 + 60);
    check(cy_cost_swiglu_backward(both, y, y, both), 11 * 15, 60 + 30 + 30 + 60);
    check(cy_cost_swiglu_backward(both, cy_view_none(), y, both), 10 * 15, 60 + 30 + 60);
    check(cy_cost_embedding_forward(y, fp32(100, 5)), 0, 30 + 60 + 12);
    check(cy_cost_embedding_backward(fp32(100, 5), y), 15, 2 * 60 + 30 + 12);
    check(cy_cost_softmax_max(row, logits), 24, 16 + 48);
    check(cy_cost_softmax_sum(row, fp32(1, 4), logits, row), 72, 16 + 16 + 48 + 16 + 16);
    check(cy_cost_softmax_loss(row, row, row), 16, 16 + 16 + 16 + 16);
    check(cy_cost_softmax_grad(logits, logits, row, row), 72, 48 + 48 + 16 + 16 + 16);
}

static void element_by_element(void **state)
{
    (void)state;
    const cy_view x = bf16(3, 5), y = fp32(3, 5), bias = bf16(1, 5), sum = fp32(1, 5);
    check(cy_cost_fill(y), 0, 60);
    check(cy_cost_copy(y, x), 0, 90);
    check(cy_cost_add(y, x, x), 15, 60 + 30 + 30);
    check(cy_cost_add_bias(x, bias), 15, 2 * 30 + 10);
    check(cy_cost_sum_rows(sum, x), 15, 2 * 20 + 30);
    check(cy_cost_random_fill(x), 300, 30);
    check(cy_cost_hash(y), 0, 60);
}

static void optimizer_and_compression(void **state)
{
    (void)state;
    const cy_view weight = bf16(1, 10), wide = fp32(1, 10), code = of(CY_U8, 1, 10);
    const cy_view values = fp32(1, 3), indices = of(CY_I32, 1, 3), scale = fp32(1, 2);
    check(cy_cost_sum_squares(wide), 20, 40);
    check(cy_cost_clip_scale(), 4, 24);
    check(cy_cost_adamw(weight, wide, wide, wide, wide), 150, 20 + 2 * 120 + 40);
    check(cy_cost_step_ahead(wide, wide, wide, wide), 80, 4 * 40);
    check(cy_cost_topk(values, indices, wide, wide), 20, 40 + 80 + 12 + 12);
    check(cy_cost_scatter_add(weight, indices, values), 3, 2 * 6 + 12 + 12);
    check(cy_cost_quantize(code, scale, wide), 20, 10 + 8 + 40);
    check(cy_cost_dequantize(wide, code, scale, false), 10, 40 + 10 + 8);
    check(cy_cost_dequantize(wide, code, scale, true), 20, 80 + 10 + 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(norms_and_positions),
        cmocka_unit_test(pairs_that_see_each_other),
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_in_pages),
        cmocka_unit_test(feed_forward_and_both_ends),
        cmocka_unit_test(element_by_element),
        cmocka_unit_test(optimizer_and_compression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
