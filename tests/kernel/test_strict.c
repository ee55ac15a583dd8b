// Strict mode's sums, cross-entropy, optimizer and functions: exact equality between tables and
// between a whole and its splits; against the reference within a tolerance. Products have a test of
// their own.

#include "kernel/strict.h"

// ---- sums over tokens: the whole, then chunks in descending order

#define TOKENS 160
#define WIDTH  75

static int run_token_sums(bench *at, cy_view *outs, const void *setting)
{
    const cy_dtype dtype = *(const cy_dtype *)setting;
    const cy_view x = bench_random(at, dtype, TOKENS, WIDTH, 3, 1.0);
    const cy_view dy = bench_random(at, dtype, TOKENS, WIDTH, 0, 1.0);
    const cy_view weight = bench_random(at, dtype, 1, WIDTH, 0, 1.0);
    const cy_view y = bench_make(at, dtype, TOKENS, WIDTH, 0);
    const cy_view inv_rms = bench_make(at, CY_F32, 1, TOKENS, 0);
    int32_t *tokens = bench_integers(at, TOKENS, 0, 20);
    cy_norm_forward(&at->queue, y, inv_rms, x, cy_view_none(), weight, 1e-5);
    outs[0] = bench_random(at, dtype, TOKENS, WIDTH, 0, 1.0);
    for (int part = 0; part < 2; part++) {
        const int64_t step = part == 0 ? TOKENS : 32;
        const cy_view dweight = make_fixed(at, 1, WIDTH, 0, -30);
        const cy_view d_table = make_fixed(at, 12, WIDTH, 2, -30);
        const cy_view sum = make_fixed(at, 1, WIDTH, 0, -25);
        for (int64_t t = TOKENS - step; t >= 0; t -= step) {
            const cy_view dy_part = cy_view_rows(dy, t, step);
            cy_norm_backward(&at->queue,
                part == 0 ? cy_view_rows(outs[0], t, step) : cy_view_none(), dweight, dy_part,
                cy_view_rows(x, t, step), cy_view_cols(inv_rms, t, step), weight);
            cy_embedding_backward(&at->queue, d_table, dy_part, tokens + t, 5);
            cy_sum_rows(&at->queue, sum, dy_part);
        }
        outs[1 + 3 * part] = dweight;
        outs[2 + 3 * part] = d_table;
        outs[3 + 3 * part] = sum;
    }
    for (int i = 1; i <= 3; i++)
        expect_same_bits("sum over tokens in parts", outs[3 + i], outs[i]);

    const cy_view want = bench_make(at, CY_F64, 1, WIDTH, 0);
    const cy_view want_table = bench_make(at, CY_F64, 12, WIDTH, 0);
    cy_ref_fill(&at->queue, want, 0.0);
    cy_ref_norm_backward(&at->queue, cy_view_none(), want, dy, x, inv_rms, weight);
    expect_close("dweight", outs[1], want, 1e-5, 1e-5);
    cy_ref_fill(&at->queue, want_table, 0.0);
    cy_ref_embedding_backward(&at->queue, want_table, dy, tokens, 5);
    expect_close("d_table", outs[2], want_table, 1e-6, 1e-7);
    cy_ref_fill(&at->queue, want, 0.0);
    cy_ref_sum_rows(&at->queue, want, dy);
    expect_close("sum", outs[3], want, 1e-6, 1e-6);
    return 7;
}

static void test_sums_over_tokens(void **state)
{
    (void)state;
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16};
    strict_tables all;
    tables_open(&all);
    for (int i = 0; i < 2; i++)
        expect_one_result(&all, "sums over tokens", run_token_sums, &dtypes[i]);
    tables_close(&all);
}

// ---- cross-entropy over a vocabulary cut in two

#define VOCABULARY 203
#define ROWS       37

static int run_head(bench *at, cy_view *outs, const void *setting)
{
    const int64_t cut = *(const int64_t *)setting;
    const cy_view logits = bench_random(at, CY_F32, ROWS, VOCABULARY, 2, 4.0);
    int32_t *targets = bench_integers(at, ROWS, 0, VOCABULARY - 10);
    targets[3] = -1;
    cy_view max[3], sum[3], target[3], grad[2];
    const int64_t first[] = {0, 0, cut}, width[] = {VOCABULARY, cut, VOCABULARY - cut};
    for (int i = 0; i < 3; i++) {
        max[i] = bench_make(at, CY_F32, 1, ROWS, 0);
        target[i] = bench_make(at, CY_F32, 1, ROWS, 0);
        sum[i] = make_fixed(at, 1, ROWS, 0, -39);
        const cy_vocab_range range = {first[i], VOCABULARY - 8};
        cy_softmax_max(&at->queue, max[i], cy_view_cols(logits, first[i], width[i]), range);
    }
    for (int t = 0; t < ROWS; t++) {
        float *a = (float *)max[1].data + t, *b = (float *)max[2].data + t;
        *a = *b = *a > *b ? *a : *b;
    }
    expect_same_bits("maximum", max[1], max[0]);
    for (int i = 0; i < 3; i++) {
        const cy_vocab_range range = {first[i], VOCABULARY - 8};
        cy_softmax_sum(&at->queue, sum[i], target[i], cy_view_cols(logits, first[i], width[i]),
            max[i], targets, range);
    }
    cy_add(&at->queue, sum[1], sum[1], sum[2]);
    cy_add(&at->queue, target[1], target[1], target[2]);
    expect_same_bits("sum of exponentials", sum[1], sum[0]);
    expect_same_bits("logit of the target", target[1], target[0]);

    // The loss in two parts, and the gradient of both.
    outs[0] = make_fixed(at, 1, 1, 0, -30);
    outs[1] = make_fixed(at, 1, 1, 0, -30);
    cy_softmax_loss(&at->queue, outs[0], max[0], sum[0], target[0], targets);
    for (int64_t t = 32; t >= 0; t -= 32) {
        const int64_t rows = t == 0 ? 32 : ROWS - 32;
        cy_softmax_loss(&at->queue, outs[1], cy_view_cols(max[0], t, rows),
            cy_view_cols(sum[0], t, rows), cy_view_cols(target[0], t, rows), targets + t);
    }
    expect_same_bits("loss", outs[1], outs[0]);
    grad[0] = bench_make(at, CY_F32, ROWS, VOCABULARY, 0);
    grad[1] = bench_make(at, CY_F32, ROWS, VOCABULARY, 0);
    for (int i = 0; i < 3; i++) {
        cy_softmax_grad(&at->queue, cy_view_cols(grad[i > 0], first[i], width[i]),
            cy_view_cols(logits, first[i], width[i]), max[0], sum[0], targets,
            (cy_vocab_range){first[i], VOCABULARY - 8}, 0.5);
    }
    expect_same_bits("gradient of the logits", grad[1], grad[0]);

    // Against the reference in double.
    const cy_vocab_range whole = {0, VOCABULARY - 8};
    const cy_view wide = bench_make(at, CY_F64, 1, ROWS, 0);
    const cy_view wide_target = bench_make(at, CY_F64, 1, ROWS, 0);
    const cy_view loss = bench_make(at, CY_F64, 1, 1, 0);
    const cy_view want = bench_make(at, CY_F32, ROWS, VOCABULARY, 0);
    *(double *)loss.data = 0.0;
    cy_ref_softmax_sum(&at->queue, wide, wide_target, logits, max[0], targets, whole);
    cy_ref_softmax_loss(&at->queue, loss, max[0], wide, wide_target, targets);
    cy_ref_softmax_grad(&at->queue, want, logits, max[0], wide, targets, whole, 0.5);
    expect_close("loss", outs[0], loss, 1e-6, 0.0);
    expect_close("gradient", grad[0], want, 1e-6, 1e-9);
    outs[2] = sum[0];
    outs[3] = grad[0];
    return 4;
}

static void test_split_vocabulary(void **state)
{
    (void)state;
    static const int64_t cuts[] = {1, 16, 101, 196, 202};
    strict_tables all;
    tables_open(&all);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
        expect_one_result(&all, "cross-entropy", run_head, &cuts[i]);
    tables_close(&all);
}

// ---- the optimizer

static int run_step(bench *at, cy_view *outs, const void *setting)
{
    const bool fixed = *(const bool *)setting;
    const int64_t n = 40007;
    const cy_view drawn = bench_random(at, CY_F32, 1, n, 0, 30.0);
    ((float *)drawn.data)[5] = 1e-12f;
    ((float *)drawn.data)[n - 1] = -9e4f;
    cy_view grad = drawn;
    if (fixed) {
        grad = make_fixed(at, 1, n, 0, -20);
        cy_copy(&at->queue, grad, drawn);
    }
    outs[0] = make_fixed(at, 1, CY_STRICT_SQUARE_CELLS, 0, -72);
    outs[1] = make_fixed(at, 1, CY_STRICT_SQUARE_CELLS, 0, -72);
    cy_sum_squares(&at->queue, outs[0], grad);
    static const int64_t cuts[] = {40007, 40006, 30001, 7, 0}; // descending
    for (int i = 0; i < 4; i++) {
        const cy_view part = cy_view_cols(grad, cuts[i + 1], cuts[i] - cuts[i + 1]);
        cy_sum_squares(&at->queue, outs[1], part);
    }
    expect_same_bits("squares in parts", outs[1], outs[0]);
    outs[2] = bench_make(at, CY_F64, 1, 1, 0);
    const cy_view norm = bench_make(at, CY_F64, 1, 1, 0);
    cy_clip_scale(&at->queue, outs[2], norm, outs[0], 8.0, 1.0);
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += cy_ref_load(grad, 0, i) * cy_ref_load(grad, 0, i);
    assert_true(fabs(*(double *)norm.data - sqrt(squares) / 8.0) < 1e-9 * sqrt(squares));

    const cy_view master = bench_random(at, CY_F32, 1, n, 0, 1.0);
    const cy_view m = bench_random(at, CY_F32, 1, n, 0, 0.1);
    const cy_view v = bench_random(at, CY_F32, 1, n, 0, 0.0);
    const cy_view weight = bench_make(at, CY_BF16, 1, n, 0);
    const cy_view want = bench_twin(at, master), want_m = bench_twin(at, m);
    const cy_view want_v = bench_twin(at, v);
    const cy_adamw_spec spec = {1e-3, 0.9, 0.999, 1e-8, 0.1, 3, {0}};
    cy_adamw(&at->queue, weight, master, m, v, grad, outs[2], &spec);
    cy_ref_adamw(
        &at->queue, cy_view_none(), want, want_m, want_v, fixed ? grad : drawn, outs[2], &spec);
    expect_close("master", master, want, 1e-6, 1e-6);
    expect_close("v", v, want_v, 1e-5, 1e-12);
    assert_false(at->overflow);
    outs[3] = master;
    outs[4] = weight;
    outs[5] = m;
    return 6;
}

static void test_step(void **state)
{
    (void)state;
    static const bool fixed[] = {false, true};
    strict_tables all;
    tables_open(&all);
    for (int i = 0; i < 2; i++)
        expect_one_result(&all, "optimizer", run_step, &fixed[i]);
    tables_close(&all);
}

// ---- element by element, and rows: whatever the table

static int run_elements(bench *at, cy_view *outs, const void *setting)
{
    const cy_dtype dtype = *(const cy_dtype *)setting;
    const cy_view gate_up = bench_random(at, dtype, 33, 150, 1, 3.0);
    const cy_view dy = bench_random(at, dtype, 33, 75, 0, 1.0);
    const cy_view x = bench_random(at, dtype, 33, 75, 1, 2.0);
    const cy_view weight = bench_random(at, dtype, 1, 75, 0, 1.0);
    const cy_view inv_rms = bench_make(at, CY_F32, 1, 33, 0);
    outs[0] = bench_make(at, dtype, 33, 75, 0);
    cy_norm_forward(&at->queue, outs[0], inv_rms, x, dy, weight, 1e-5);
    outs[1] = bench_make(at, dtype, 33, 75, 2);
    outs[2] = bench_make(at, dtype, 33, 150, 2);
    cy_swiglu_forward(&at->queue, outs[1], gate_up);
    cy_swiglu_backward(&at->queue, outs[2], cy_view_none(), dy, gate_up);
    outs[3] = bench_twin(at, x);
    cy_norm_backward(&at->queue, outs[3], cy_view_none(), dy, x, inv_rms, weight);
    outs[4] = bench_make(at, CY_F32, 40, 24, 0);
    const double *inv_freq = bench_frequencies(at, 12, pow(10000.0, -1.0 / 12.0));
    cy_rope_table(&at->queue, outs[4], inv_freq, 1.0);
    cy_rope(&at->queue, outs[1], outs[4], bench_integers(at, 33, 0, 40), 3, false);
    outs[5] = make_fixed(at, 33, 75, 1, -16);
    cy_fill(&at->queue, outs[5], 2.5);
    cy_add(&at->queue, outs[5], outs[5], dy);
    outs[6] = bench_make(at, dtype, 33, 75, 0);
    cy_copy(&at->queue, outs[6], outs[5]);
    outs[7] = inv_rms;
    return 8;
}

static void test_elements(void **state)
{
    (void)state;
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16};
    strict_tables all;
    tables_open(&all);
    for (int i = 0; i < 2; i++)
        expect_one_result(&all, "elements", run_elements, &dtypes[i]);
    tables_close(&all);
}

static double units_off(double got, double want)
{
    return fabs(got - want) / (fabs(want) * 0x1p-53 + 1e-300);
}

static void test_functions(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const double unit = cy_random_uniform(11, (uint64_t)i);
        const double x = -700.0 + 1400.0 * unit, y = exp(x);
        assert_true(units_off(cy_strict_exp(x), y) < 4.0);
        const double near = 0.5 + 2.0 * unit; // about 1, where digits of a logarithm are lost
        assert_true(units_off(cy_strict_log(y), log(y)) < 4.0);
        assert_true(units_off(cy_strict_log(near), log(near)) < 4.0);
        const double angle = floor(unit * 0x1p24) * (i % 2 == 0 ? 1.0 : 0.7071067811865476);
        double sine, cosine;
        cy_strict_sine_cosine(&sine, &cosine, angle);
        assert_true(fabs(sine - sin(angle)) < 4e-16 && fabs(cosine - cos(angle)) < 4e-16);
    }
    assert_true(cy_strict_exp(0.0) == 1.0 && cy_strict_log(1.0) == 0.0);
    assert_true(cy_strict_exp(-(double)INFINITY) == 0.0 && isinf(cy_strict_log(0.0)));
    assert_true(isnan(cy_strict_exp((double)NAN)) && isnan(cy_strict_log(-1.0)));
    // The ends of the range are within it.
    assert_true(units_off(cy_strict_exp(709.0), exp(709.0)) < 4.0);
    assert_true(units_off(cy_strict_exp(-708.0), exp(-708.0)) < 4.0);
    assert_true(isinf(cy_strict_exp(709.5)) && cy_strict_exp(-708.5) == 0.0);
    assert_true(units_off(cy_strict_power(0.999, 1000), pow(0.999, 1000.0)) < 100.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_over_tokens),
        cmocka_unit_test(test_split_vocabulary),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
