// Fixed point in the reference operators: sums without order, rounding, the flag of an overflow.

#include "kernel/harness.h"

static cy_view fixed(bench *at, int64_t rows, int64_t cols, int exponent)
{
    cy_view view = bench_make(at, CY_FX64, rows, cols, 0);
    view.exponent = exponent;
    memset(view.data, 0, cy_view_bytes(view));
    return view;
}

static void fixed_sums_have_no_order(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 2);
    cy_queue *queue = &at.queue;
    const int64_t t = 12, h = 5;
    const cy_view x = bench_random(&at, CY_F32, t, h, 0, 1.0);
    const cy_view dy = bench_random(&at, CY_F32, t, h, 0, 1e3);
    const cy_view inv = bench_random(&at, CY_F32, 1, t, 0, 1.0);
    const cy_view weight = bench_random(&at, CY_F32, 1, h, 0, 1.0);
    const int32_t *tokens = bench_integers(&at, t, 0, 3);
    cy_view sums[2][4]; // whole; by halves, the second first
    for (int way = 0; way < 2; way++) {
        sums[way][0] = fixed(&at, 1, h, -40);
        sums[way][1] = fixed(&at, 3, h, -40);
        sums[way][2] = fixed(&at, 1, h, -40);
        sums[way][3] = fixed(&at, 1, 1, -30);
        for (int part = way; part >= 0; part--) {
            const int64_t rows = way == 0 ? t : t / 2, first = part * (t / 2);
            const cy_view dy_part = cy_view_rows(dy, first, rows);
            cy_norm_backward(queue, cy_view_none(), sums[way][0], dy_part,
                cy_view_rows(x, first, rows), cy_view_cols(inv, first, rows), weight);
            cy_embedding_backward(queue, sums[way][1], dy_part, tokens + first, 0);
            cy_sum_rows(queue, sums[way][2], dy_part);
            cy_sum_squares(queue, sums[way][3], dy_part);
        }
    }
    for (int i = 0; i < 4; i++)
        expect_same_bits("fixed sum", sums[1][i], sums[0][i]);
    assert_false(at.overflow);
    // And they are the sums: against fp64.
    const cy_view wide = bench_random(&at, CY_F64, 1, h, 0, 0.0);
    cy_sum_rows(queue, wide, dy);
    expect_close("fixed against fp64", sums[0][2], wide, 0.0, (double)t * 0x1p-41);
    const cy_view back = bench_make(&at, CY_F64, 1, h, 0);
    cy_copy(queue, back, sums[0][2]);
    expect_close("copied from fixed", back, wide, 0.0, (double)t * 0x1p-41);
    bench_check(&at);
    bench_close(&at);
}

static void fixed_rounds_and_warns(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    cy_queue *queue = &at.queue;
    const cy_view sum = fixed(&at, 1, 4, -2); // quarters
    const cy_view x = bench_numbers(&at, CY_F64, 1, 4, (const double[]){0.3, 0.375, -0.375, 0.625});
    cy_add(queue, sum, sum, x); // ties to even: 1.5 -> 2, -1.5 -> -2, 2.5 -> 2
    const int64_t want[] = {1, 2, -2, 2};
    assert_memory_equal(sum.data, want, sizeof(want));
    // More than 53 bits survive a copy and a sum between views of one unit.
    ((int64_t *)sum.data)[0] = ((int64_t)1 << 60) + 1;
    const cy_view twin = bench_twin(&at, sum);
    cy_copy(queue, twin, sum);
    cy_add(queue, twin, twin, sum);
    assert_true(((int64_t *)twin.data)[0] == ((int64_t)1 << 61) + 2);
    assert_false(at.overflow);
    cy_add(queue, twin, twin, twin); // 2^62 is beyond
    assert_true(at.overflow);
    const double bad[] = {0x1p60, (double)NAN, (double)INFINITY, -0x1p60};
    for (int i = 0; i < 4; i++) {
        at.overflow = 0;
        cy_fill(queue, sum, bad[i]);
        assert_true(at.overflow);
    }
    at.overflow = 0;
    cy_fill(queue, sum, 0x1.fffffffffffffp59); // the last that fits
    assert_false(at.overflow);
    bench_check(&at);
    bench_close(&at);
}

// Attention's gradients into fixed point: those of fp64, rounded. Heads of the greatest width have
// no room behind them.
static void fixed_attention(int64_t dim)
{
    bench at;
    bench_open(&at, cy_kernels_ref(), 2);
    cy_queue *queue = &at.queue;
    const int64_t t = 7, wide = 2 * dim;
    const cy_view q = bench_random(&at, CY_F64, t, wide, 0, 1.0);
    const cy_view k = bench_random(&at, CY_F64, t, dim, 0, 1.0);
    const cy_view v = bench_random(&at, CY_F64, t, dim, 0, 1.0);
    const cy_view d_o = bench_random(&at, CY_F64, t, wide, 0, 1.0), o = bench_twin(&at, d_o);
    const cy_view lse = bench_make(&at, CY_F64, 2, t, 0), delta = bench_make(&at, CY_F64, 2, t, 0);
    const int32_t *positions = bench_ascending(&at, t, 0);
    const cy_attention_span span = {0, t, 0, t};
    const cy_attention_spec spec = {.heads = 2,
        .kv_heads = 1,
        .head_dim = (int)dim,
        .scale = 1.0 / (double)dim,
        .spans = &span,
        .span_count = 1,
        .q_positions = positions,
        .k_positions = positions};
    cy_attention_forward(queue, o, lse, q, k, v, &spec);
    cy_attention_delta(queue, delta, d_o, o, 2);
    const cy_view dq = bench_make(&at, CY_F64, t, wide, 0), dk = bench_make(&at, CY_F64, t, dim, 0);
    const cy_view dv = bench_make(&at, CY_F64, t, dim, 0);
    const cy_view fq = fixed(&at, t, wide, -40), fk = fixed(&at, t, dim, -40);
    const cy_view fv = fixed(&at, t, dim, -40);
    cy_fill(queue, fq, 5.0); // overwritten
    cy_attention_backward(queue, dq, dk, dv, d_o, lse, delta, q, k, v, &spec);
    cy_attention_backward(queue, fq, fk, fv, d_o, lse, delta, q, k, v, &spec);
    expect_close("fixed dq", fq, dq, 0.0, 0x1p-37);
    expect_close("fixed dk", fk, dk, 0.0, 0x1p-37);
    expect_close("fixed dv", fv, dv, 0.0, 0x1p-37);
    bench_check(&at);
    bench_close(&at);
}

static void fixed_attentions(void **state)
{
    (void)state;
    fixed_attention(4);
    fixed_attention(CY_HEAD_DIM_MAX);
}

static void fixed_products(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 2);
    cy_queue *queue = &at.queue;
    const cy_view a = bench_random(&at, CY_F64, 7, 8, 0, 1.0);
    const cy_view b = bench_random(&at, CY_F64, 7, 4, 0, 1.0);
    const cy_view c = bench_make(&at, CY_F64, 8, 4, 0), fc = fixed(&at, 8, 4, -40);
    const cy_matmul_spec product = {.transpose_a = true};
    cy_matmul(queue, c, a, b, product);
    cy_matmul(queue, fc, a, b, product);
    expect_close("fixed product", fc, c, 0.0, 0x1p-41);
    bench_check(&at);
    bench_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_sums_have_no_order),
        cmocka_unit_test(fixed_rounds_and_warns),
        cmocka_unit_test(fixed_attentions),
        cmocka_unit_test(fixed_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
