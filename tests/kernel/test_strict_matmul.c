// Strict mode's products: exact equality between tables, between a whole and its splits, and with
// the definition written out; what they say of terms that are too large.

#include "kernel/strict.h"

#include "base/numbers.h"
#include "device/view.h"

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
    assert_false(at->overflow);
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
    at->overflow = 0;
    cy_matmul(
        &at->queue, make_fixed(at, 1, 1, 0, -20), a, b, (cy_matmul_spec){.transpose_b = true});
    return at->overflow != 0;
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
        at->overflow = 0;
        cy_copy(&at->queue, y, sum);
        assert_false(at->overflow);
        cy_add(&at->queue, sum, sum, sum);
        assert_true(at->overflow);
        ((int64_t *)sum.data)[37] = -((int64_t)1 << 62);
        at->overflow = 0;
        cy_copy(&at->queue, y, sum);
        assert_true(at->overflow);
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
        _Atomic uint32_t noted = 0;
        const cy_fixed sum = {.exponent = -20, .block_k = 24, .largest = &noted};
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
        assert_int_equal(noted, cy_f32_bits(largest));
        ((float *)a.data)[0] = -3.0f * largest * 0x1p-20f;
        cy_add(&at->queue, cy_view_rows(c, 0, 1), cy_view_rows(c, 0, 1),
            cy_view_cols(cy_view_rows(a, 0, 1), 0, p.n));
        assert_int_equal(noted, cy_f32_bits(3.0f * largest));
    }
    tables_close(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_chains),
        cmocka_unit_test(test_products_split_over_k),
        cmocka_unit_test(test_the_largest_term_is_noted),
        cmocka_unit_test(test_overflow_is_flagged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
