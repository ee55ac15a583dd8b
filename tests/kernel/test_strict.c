// Strict mode's products, sums and cross-entropy: exact equality between tables, between a whole
// and its splits, and with the definition written out; against the reference within a tolerance.

#include "kernel/strict.h"

#include "base/half.h"
#include "device/fixed.h"

typedef struct product {
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
    cy_dtype dtype, c_dtype;
    int64_t block_k;
} product;

static cy_view operand(bench *at, const product *p, bool of_a)
{
    const int64_t outer = of_a ? p->m : p->n;
    const bool across = of_a ? p->transpose_a : !p->transpose_b;
    return bench_random(at, p->dtype, across ? p->k : outer, across ? outer : p->k, 3, 1.0);
}

static cy_matmul_spec spec_of(const product *p)
{
    return (cy_matmul_spec){.transpose_a = p->transpose_a,
        .transpose_b = p->transpose_b,
        .accumulate = p->accumulate,
        .block_k = p->block_k};
}

static float at_of(cy_view view, bool across, int64_t outer, int64_t k)
{
    return (float)(across ? cy_ref_load(view, k, outer) : cy_ref_load(view, outer, k));
}

// The definition: a chain in ascending k, from `start`, over [first, end).
static float chain(const product *p, cy_view a, cy_view b, int64_t i, int64_t j, int64_t first,
    int64_t end, float start)
{
    for (int64_t k = first; k < end; k++)
        start = fmaf(at_of(a, p->transpose_a, i, k), at_of(b, !p->transpose_b, j, k), start);
    return start;
}

static int run_product(bench *at, cy_view *outs, const void *setting)
{
    const product *p = setting;
    const cy_view a = operand(at, p, true), b = operand(at, p, false);
    cy_view c;
    if (p->c_dtype == CY_FX64) {
        c = make_fixed(at, p->m, p->n, 5, -30);
        for (int64_t i = 0; i < p->m; i++)
            ((int64_t *)cy_view_at(c, i, 0))[i % p->n] = 1000 + i;
    } else {
        c = bench_random(at, p->c_dtype, p->m, p->n, 5, 1.0);
    }
    const cy_view old = bench_twin(at, c);
    cy_matmul(&at->queue, c, a, b, spec_of(p));
    assert_false(at->queue.fixed_overflow);
    for (int64_t i = 0; i < p->m; i += 7) {
        for (int64_t j = 0; j < p->n; j++) {
            if (p->c_dtype == CY_FX64) {
                int64_t sum = p->accumulate ? *(int64_t *)cy_view_at(old, i, j) : 0;
                const int64_t block = p->block_k > 0 ? p->block_k : 32;
                for (int64_t k = 0; k < p->k; k += block) {
                    const int64_t end = k + block < p->k ? k + block : p->k;
                    sum += llrint((double)chain(p, a, b, i, j, k, end, 0.0f) * 0x1p30);
                }
                assert_int_equal(*(int64_t *)cy_view_at(c, i, j), sum);
                continue;
            }
            const float start = p->accumulate ? (float)cy_ref_load(old, i, j) : 0.0f;
            float want = chain(p, a, b, i, j, 0, p->k, start);
            if (p->c_dtype == CY_BF16) want = cy_bf16_to_f32(cy_bf16_from_f32(want));
            if ((float)cy_ref_load(c, i, j) != want) {
                fail_msg("c[%d, %d]: %.9g, wanted %.9g", (int)i, (int)j, cy_ref_load(c, i, j),
                    (double)want);
            }
        }
    }
    outs[0] = c;
    return 1;
}

static void test_products_are_chains(void **state)
{
    (void)state;
    static const product shapes[] = {
        {1, 5, 40, false, true, false, CY_F32, CY_F32, 0},
        {70, 50, 67, false, true, true, CY_F32, CY_F32, 0},
        {150, 40, 33, false, false, false, CY_BF16, CY_F32, 0},
        {40, 100, 70, true, false, true, CY_F32, CY_F32, 0},
        {3, 64, 600, false, true, true, CY_BF16, CY_BF16, 0},
        {70, 50, 67, false, true, true, CY_F32, CY_FX64, 0},
        {131, 70, 300, true, false, false, CY_BF16, CY_FX64, 0},
        {20, 33, 300, false, false, true, CY_F32, CY_FX64, 48},
        {2, 15, 31, false, true, false, CY_F32, CY_FX64, 1},
        {30, 17, 64, true, true, false, CY_F32, CY_FX64, 128},
    };
    strict_tables all;
    tables_open(&all);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        expect_one_result(&all, "product", run_product, &shapes[i]);
    tables_close(&all);
}

// Outputs: the whole, then the sum of parts in descending order.
static int run_split_product(bench *at, cy_view *outs, const void *setting)
{
    const product *p = setting;
    const cy_view a = operand(at, p, true), b = operand(at, p, false);
    outs[0] = make_fixed(at, p->m, p->n, 0, -28);
    outs[1] = make_fixed(at, p->m, p->n, 0, -28);
    cy_matmul_spec spec = spec_of(p);
    cy_matmul(&at->queue, outs[0], a, b, spec);
    spec.accumulate = true;
    const int64_t block = p->block_k > 0 ? p->block_k : 32;
    for (int64_t k = (p->k - 1) / block * block; k >= 0; k -= block) {
        const int64_t depth = p->k - k < block ? p->k - k : block;
        const cy_view a_part =
            p->transpose_a ? cy_view_rows(a, k, depth) : cy_view_cols(a, k, depth);
        const cy_view b_part =
            p->transpose_b ? cy_view_cols(b, k, depth) : cy_view_rows(b, k, depth);
        for (int64_t half = 0; half < 2; half++) { // and the rows of c in two calls
            const int64_t row = half == 0 ? 0 : p->m / 3;
            const int64_t rows = half == 0 ? p->m / 3 : p->m - p->m / 3;
            const cy_view some =
                p->transpose_a ? cy_view_cols(a_part, row, rows) : cy_view_rows(a_part, row, rows);
            cy_matmul(&at->queue, cy_view_rows(outs[1], row, rows), some, b_part, spec);
        }
    }
    expect_same_bits("sum of parts over k", outs[1], outs[0]);
    return 2;
}

static void test_products_split_over_k(void **state)
{
    (void)state;
    static const product shapes[] = {
        {33, 70, 200, true, false, false, CY_F32, CY_FX64, 0},
        {40, 21, 384, false, true, false, CY_BF16, CY_FX64, 64},
    };
    strict_tables all;
    tables_open(&all);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        expect_one_result(&all, "split product", run_split_product, &shapes[i]);
    tables_close(&all);
}

// A product of 1 x 1 whose one term is `units` units.
static bool overflows(bench *at, float units)
{
    bench_clear(at);
    const cy_view a = bench_make(at, CY_F32, 1, 1, 0), b = bench_make(at, CY_F32, 1, 1, 0);
    *(float *)a.data = units;
    *(float *)b.data = 0x1p-20f;
    at->queue.fixed_overflow = false;
    cy_matmul(
        &at->queue, make_fixed(at, 1, 1, 0, -20), a, b, (cy_matmul_spec){.transpose_b = true});
    return at->queue.fixed_overflow;
}

static void test_overflow_is_flagged(void **state)
{
    (void)state;
    strict_tables all;
    tables_open(&all);
    for (int i = 0; i < all.count; i++) {
        bench *at = &all.benches[i];
        assert_false(overflows(at, 0x1.fffffep39f));
        assert_true(overflows(at, 0x1p40f));
        assert_false(overflows(at, -0x1.fffffep39f));
        assert_true(overflows(at, -0x1p40f));
        assert_true(overflows(at, NAN));
        assert_true(overflows(at, INFINITY));

        // A sum that has reached 2^62 is seen when it is read, or added to another.
        bench_clear(at);
        cy_view sum = make_fixed(at, 1, 40, 0, 0), y = bench_make(at, CY_F32, 1, 40, 0);
        ((int64_t *)sum.data)[37] = ((int64_t)1 << 62) - 1;
        at->queue.fixed_overflow = false;
        cy_copy(&at->queue, y, sum);
        assert_false(at->queue.fixed_overflow);
        cy_add(&at->queue, sum, sum, sum);
        assert_true(at->queue.fixed_overflow);
        ((int64_t *)sum.data)[37] = -((int64_t)1 << 62);
        at->queue.fixed_overflow = false;
        cy_copy(&at->queue, y, sum);
        assert_true(at->queue.fixed_overflow);
    }
    tables_close(&all);
}

// The size of the largest term, also where the sum is made in parts, and blocks as the sum has
// them.
static void test_the_largest_term_is_noted(void **state)
{
    (void)state;
    static const product p = {40, 70, 96, false, true, true, CY_F32, CY_FX64, 0};
    strict_tables all;
    tables_open(&all);
    for (int t = 0; t < all.count; t++) {
        bench *at = &all.benches[t];
        bench_clear(at);
        const cy_view a = operand(at, &p, true), b = operand(at, &p, false);
        cy_fixed sum = {.exponent = -20, .block_k = 24};
        const cy_view c = cy_fixed_view(&sum, make_fixed(at, p.m, p.n, 0, 0));
        cy_matmul(&at->queue, cy_view_rows(c, 0, 13), cy_view_rows(a, 0, 13), b, spec_of(&p));
        cy_matmul(&at->queue, cy_view_rows(c, 13, p.m - 13), cy_view_rows(a, 13, p.m - 13), b,
            spec_of(&p));
        float largest = 0.0f;
        for (int64_t i = 0; i < p.m; i++) {
            for (int64_t j = 0; j < p.n; j++) {
                for (int64_t k = 0; k < p.k; k += sum.block_k) {
                    const float term = chain(&p, a, b, i, j, k, k + sum.block_k, 0.0f);
                    largest = fmaxf(largest, fabsf(term) * 0x1p20f);
                }
            }
        }
        assert_int_equal(sum.largest, cy_f32_bits(largest));
        ((float *)a.data)[0] = -3.0f * largest * 0x1p-20f;
        cy_add(&at->queue, cy_view_rows(c, 0, 1), cy_view_rows(c, 0, 1),
            cy_view_cols(cy_view_rows(a, 0, 1), 0, p.n));
        assert_int_equal(sum.largest, cy_f32_bits(3.0f * largest));
    }
    tables_close(&all);
}

// ---- sums over tokens: the whole, then pieces in descending order

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
    const cy_adamw_spec spec = {1e-3, 0.9, 0.999, 1e-8, 0.1, 3, 0, 0};
    cy_adamw(&at->queue, weight, master, m, v, grad, outs[2], &spec);
    cy_ref_adamw(
        &at->queue, cy_view_none(), want, want_m, want_v, fixed ? grad : drawn, outs[2], &spec);
    expect_close("master", master, want, 1e-6, 1e-6);
    expect_close("v", v, want_v, 1e-5, 1e-12);
    assert_false(at->queue.fixed_overflow);
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
    const cy_view gate_up = bench_random(at, dtype, 33, 2 * 75, 1, 3.0);
    const cy_view dy = bench_random(at, dtype, 33, 75, 0, 1.0);
    const cy_view x = bench_random(at, dtype, 33, 75, 1, 2.0);
    const cy_view weight = bench_random(at, dtype, 1, 75, 0, 1.0);
    const cy_view inv_rms = bench_make(at, CY_F32, 1, 33, 0);
    outs[0] = bench_make(at, dtype, 33, 75, 0);
    cy_norm_forward(&at->queue, outs[0], inv_rms, x, dy, weight, 1e-5);
    outs[1] = bench_make(at, dtype, 33, 75, 2);
    outs[2] = bench_make(at, dtype, 33, 2 * 75, 2);
    cy_swiglu_forward(&at->queue, outs[1], gate_up);
    cy_swiglu_backward(&at->queue, outs[2], cy_view_none(), dy, gate_up);
    outs[3] = bench_twin(at, x);
    cy_norm_backward(&at->queue, outs[3], cy_view_none(), dy, x, inv_rms, weight);
    outs[4] = bench_make(at, CY_F32, 40, 24, 0);
    double inv_freq[12];
    for (int i = 0; i < 12; i++)
        inv_freq[i] = pow(10000.0, -(double)i / 12.0);
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
    assert_true(units_off(cy_strict_power(0.999, 1000), pow(0.999, 1000.0)) < 100.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_chains),
        cmocka_unit_test(test_products_split_over_k),
        cmocka_unit_test(test_the_largest_term_is_noted),
        cmocka_unit_test(test_overflow_is_flagged),
        cmocka_unit_test(test_sums_over_tokens),
        cmocka_unit_test(test_split_vocabulary),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
