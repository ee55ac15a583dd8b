// The reference operators against figures worked out by other means.

#include "kernel/harness.h"

// ---- figures

static void products(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 2);
    const double a_values[] = {1, 2, 3, 4, 5, 6}, b_values[] = {7, 8, 9, 10, 11, 12};
    const cy_view a = bench_numbers(&at, CY_F32, 2, 3, a_values);
    const cy_view b = bench_numbers(&at, CY_F32, 3, 2, b_values);
    const cy_view c = bench_make(&at, CY_F32, 2, 2, 1);
    cy_matmul(&at.queue, c, a, b, (cy_matmul_spec){0});
    BENCH_EXPECT(c, 0.0, 58, 64, 139, 154);
    cy_matmul(&at.queue, c, a, b, (cy_matmul_spec){.accumulate = true});
    BENCH_EXPECT(c, 0.0, 116, 128, 278, 308);
    const cy_view d = bench_make(&at, CY_F32, 3, 3, 0);
    cy_matmul(&at.queue, d, a, b, (cy_matmul_spec){.transpose_a = true, .transpose_b = true});
    BENCH_EXPECT(d, 0.0, 39, 49, 59, 54, 68, 82, 69, 87, 105);
    // An empty sum writes zeros, or adds none.
    const cy_view a0 = cy_view_cols(a, 0, 0), b0 = cy_view_rows(b, 0, 0);
    cy_matmul(&at.queue, c, a0, b0, (cy_matmul_spec){.accumulate = true});
    BENCH_EXPECT(c, 0.0, 116, 128, 278, 308);
    cy_matmul(&at.queue, c, a0, b0, (cy_matmul_spec){0});
    BENCH_EXPECT(c, 0.0, 0, 0, 0, 0);
    bench_check(&at);
    bench_close(&at);
}

// Sizes beyond one tile, against the definition; integers, so the sums are exact.
static void products_of_many_tiles(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 2);
    const int64_t m = 70, n = 130, k = 150;
    for (int t = 0; t < 4; t++) {
        bench_clear(&at);
        const cy_matmul_spec spec = {.transpose_a = t & 1, .transpose_b = t & 2};
        const cy_view a =
            bench_make(&at, CY_F32, spec.transpose_a ? k : m, spec.transpose_a ? m : k, 3);
        const cy_view b =
            bench_make(&at, CY_F32, spec.transpose_b ? n : k, spec.transpose_b ? k : n, 1);
        const cy_view c = bench_make(&at, CY_F32, m, n, 2);
        for (int64_t i = 0; i < m * k; i++) {
            *(float *)cy_view_at(a, i / a.cols, i % a.cols) = (float)(i * 7 % 13 - 6);
        }
        for (int64_t i = 0; i < k * n; i++) {
            *(float *)cy_view_at(b, i / b.cols, i % b.cols) = (float)(i * 5 % 11 - 5);
        }
        cy_matmul(&at.queue, c, a, b, spec);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0.0;
                for (int64_t p = 0; p < k; p++) {
                    sum += (spec.transpose_a ? cy_ref_load(a, p, i) : cy_ref_load(a, i, p)) *
                        (spec.transpose_b ? cy_ref_load(b, j, p) : cy_ref_load(b, p, j));
                }
                assert_true(cy_ref_load(c, i, j) == sum);
            }
        }
        bench_check(&at);
    }
    bench_close(&at);
}

static void norm(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    const double values[] = {3, 4, 0, 0, 1, 1, 1, 1}, weights[] = {1, 2, 3, 4};
    const cy_view x = bench_numbers(&at, CY_F64, 2, 4, values);
    const cy_view weight = bench_numbers(&at, CY_F64, 1, 4, weights);
    const cy_view y = bench_make(&at, CY_F64, 2, 4, 0), inv = bench_make(&at, CY_F64, 1, 2, 0);
    cy_norm_forward(&at.queue, y, inv, x, cy_view_none(), weight, 0.0);
    BENCH_EXPECT(inv, 1e-15, 0.4, 1.0); // rms of (3, 4, 0, 0) is 2.5
    BENCH_EXPECT(y, 1e-15, 1.2, 3.2, 0, 0, 1, 2, 3, 4);
    const cy_view branch = bench_numbers(&at, CY_F64, 2, 4, values);
    cy_norm_forward(&at.queue, y, inv, x, branch, weight, 0.0);
    BENCH_EXPECT(x, 0.0, 6, 8, 0, 0, 2, 2, 2, 2); // the branch was added
    BENCH_EXPECT(inv, 1e-15, 0.2, 0.5);
    bench_check(&at);
    bench_close(&at);
}

// head_dim 8, theta 10000: angles p * (1, 0.1, 0.01, 0.001). Element i turns with element i + 4.
static void rope(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    const double inv_freq[] = {1.0, 0.1, 0.01, 0.001};
    const cy_view table = bench_make(&at, CY_F64, 1001, 8, 0);
    cy_rope_table(&at.queue, table, inv_freq, 1.0);
    const double five[] = {0.28366218546322625, 0.8775825618903728, 0.9987502603949663,
        0.9999875000260416, -0.9589242746631385, 0.479425538604203, 0.04997916927067833,
        0.0049999791666927075};
    bench_expect(cy_view_rows(table, 5, 1), five, 8, 1e-15);
    const double thousand[] = {0.5623790762907029, 0.862318872287684, -0.8390715290764524,
        0.5403023058681398, 0.8268795405320025, -0.5063656411097588, -0.5440211108893698,
        0.8414709848078965};
    bench_expect(cy_view_rows(table, 1000, 1), thousand, 8, 1e-15);
    const cy_view x = bench_numbers(&at, CY_F64, 1, 8, (const double[]){1, 1, 1, 1, 0, 0, 2, 0});
    const int32_t position = 5;
    cy_rope(&at.queue, x, table, &position, 1, false);
    const double turned[] = {five[0], five[1], five[2] - 2.0 * five[6], five[3], five[4], five[5],
        five[6] + 2.0 * five[2], five[7]};
    bench_expect(x, turned, 8, 1e-15);
    cy_rope(&at.queue, x, table, &position, 1, true);
    BENCH_EXPECT(x, 1e-15, 1, 1, 1, 1, 0, 0, 2, 0);
    bench_check(&at);
    bench_close(&at);
}

static void feed_forward_and_loss(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    const cy_view y = bench_make(&at, CY_F64, 1, 3, 0);
    cy_swiglu_forward(
        &at.queue, y, bench_numbers(&at, CY_F64, 1, 6, (const double[]){0, 1, -2, 5, 2, 3}));
    BENCH_EXPECT(y, 1e-15, 0.0, 1.4621171572600098, -0.7152175321327053);

    // Two tokens over a vocabulary of three that is split into columns 0, 1 and column 2.
    const cy_view left = bench_numbers(&at, CY_F64, 2, 2, (const double[]){1, 2, 0, 0});
    const cy_view right = bench_numbers(&at, CY_F64, 2, 1, (const double[]){3, 0});
    const int32_t targets[] = {2, 0};
    const cy_vocab_range low = {0, 3}, high = {2, 3};
    const cy_view max = bench_make(&at, CY_F64, 1, 2, 0), sum = bench_make(&at, CY_F64, 1, 2, 0);
    const cy_view other = bench_make(&at, CY_F64, 1, 2, 0);
    const cy_view target = bench_make(&at, CY_F64, 1, 2, 0);
    const cy_view loss = bench_numbers(&at, CY_F64, 1, 1, (const double[]){10});
    cy_softmax_max(&at.queue, max, left, low);
    BENCH_EXPECT(max, 0.0, 2, 0);
    cy_softmax_max(&at.queue, max, right, high);
    BENCH_EXPECT(max, 0.0, 3, 0);
    cy_softmax_sum(&at.queue, sum, target, left, max, targets, low);
    BENCH_EXPECT(target, 0.0, 0, 0);
    cy_softmax_sum(&at.queue, other, target, right, max, targets, high);
    BENCH_EXPECT(target, 0.0, 3, 0); // of the token whose target is here
    cy_add(&at.queue, sum, sum, other);
    cy_softmax_loss(&at.queue, loss, max, sum, target, targets);
    BENCH_EXPECT(loss, 1e-15, 10 + 0.4076059644443803 + 1.0986122886681098);
    cy_softmax_grad(&at.queue, left, left, max, sum, targets, low, 2.0);
    const double third = 1.0 / 3.0;
    BENCH_EXPECT(left, 1e-15, 0.18006114634076172, 0.4894569421095953, 2 * (third - 1), 2 * third);
    bench_check(&at);
    bench_close(&at);
}

// ---- attention against one that holds all scores

#define TOKENS   9
#define HEADS    4
#define KV_HEADS 2
#define DIM      INT64_C(6)
#define WINDOW   4

typedef struct heads {
    bench at;
    cy_view q, k, v, o, lse;
    const int32_t *positions;
    cy_attention_span all;
    cy_attention_spec spec;
} heads;

static void open_heads(heads *of)
{
    bench *at = &of->at;
    bench_open(at, cy_kernels_ref(), 2);
    of->q = bench_random(at, CY_F64, TOKENS, HEADS * DIM, 5, 1.0);
    of->k = bench_random(at, CY_F64, TOKENS, KV_HEADS * DIM, 3, 1.0);
    of->v = bench_random(at, CY_F64, TOKENS, KV_HEADS * DIM, 0, 1.0);
    of->o = bench_make(at, CY_F64, TOKENS, HEADS * DIM, 1);
    of->lse = bench_make(at, CY_F64, HEADS, TOKENS, 2);
    of->positions = bench_ascending(at, TOKENS, 0);
    of->all = (cy_attention_span){0, TOKENS, 0, TOKENS};
    of->spec = (cy_attention_spec){
        .heads = HEADS,
        .kv_heads = KV_HEADS,
        .head_dim = DIM,
        .window = WINDOW,
        .scale = 0.3,
        .spans = &of->all,
        .span_count = 1,
        .q_positions = of->positions,
        .k_positions = of->positions,
    };
    cy_attention_forward(&at->queue, of->o, of->lse, of->q, of->k, of->v, &of->spec);
}

static void attention_equals_all_scores(void **state)
{
    (void)state;
    static heads of;
    open_heads(&of);
    for (int64_t i = 0; i < TOKENS; i++) {
        for (int64_t h = 0; h < HEADS; h++) {
            const int64_t kv = h / (HEADS / KV_HEADS) * DIM;
            double weights[TOKENS], sum = 0.0;
            for (int64_t j = 0; j < TOKENS; j++) {
                double score = 0.0;
                for (int64_t d = 0; d < DIM; d++) {
                    score += cy_ref_load(of.q, i, h * DIM + d) * cy_ref_load(of.k, j, kv + d);
                }
                weights[j] = j <= i && i - j < WINDOW ? exp(0.3 * score) : 0.0;
                sum += weights[j];
            }
            assert_true(fabs(cy_ref_load(of.lse, h, i) - log(sum)) < 1e-14);
            for (int64_t d = 0; d < DIM; d++) {
                double want = 0.0;
                for (int64_t j = 0; j < TOKENS; j++) {
                    want += weights[j] / sum * cy_ref_load(of.v, j, kv + d);
                }
                assert_true(fabs(cy_ref_load(of.o, i, h * DIM + d) - want) < 1e-14);
            }
        }
    }
    bench_check(&of.at);
    bench_close(&of.at);
}

// Keys in two parts, merged: a query may see keys of one part only.
static void attention_merges(void **state)
{
    (void)state;
    static heads of;
    open_heads(&of);
    cy_queue *queue = &of.at.queue;
    const cy_view o1 = bench_twin(&of.at, of.o), lse1 = bench_twin(&of.at, of.lse);
    const cy_view o2 = bench_twin(&of.at, of.o), lse2 = bench_twin(&of.at, of.lse);
    const cy_attention_span late = {0, TOKENS, 5, TOKENS - 5}, early = {0, TOKENS, 0, 5};
    of.spec.spans = &late;
    cy_attention_forward(queue, o1, lse1, of.q, of.k, of.v, &of.spec);
    assert_true(isinf(cy_ref_load(lse1, 0, 0)) && cy_ref_load(o1, 0, 0) == 0.0);
    of.spec.spans = &early;
    cy_attention_forward(queue, o2, lse2, of.q, of.k, of.v, &of.spec);
    cy_attention_merge(queue, o1, lse1, o2, lse2, HEADS);
    expect_close("merged output", o1, of.o, 1e-14, 1e-15);
    expect_close("merged log of the sum", lse1, of.lse, 1e-14, 1e-15);
    bench_check(&of.at);
    bench_close(&of.at);
}

// The same keys and values from pages in another order.
static void attention_reads_pages(void **state)
{
    (void)state;
    static heads of;
    open_heads(&of);
    bench *at = &of.at;
    const int64_t page = 4;
    const cy_view keys = bench_random(at, CY_F64, 5 * page, KV_HEADS * DIM, 0, 9.0);
    const cy_view values = bench_random(at, CY_F64, 5 * page, KV_HEADS * DIM, 0, 9.0);
    const int32_t page_table[] = {3, 3, 3, 4, 0, 2}; // ours is sequence 1
    const cy_kv_pages pages = {keys, values, page_table, page, 3};
    for (int64_t i = 0; i < TOKENS; i++) {
        const int64_t row = page_table[3 + i / page] * page + i % page;
        cy_copy(&at->queue, cy_view_rows(keys, row, 1), cy_view_rows(of.k, i, 1));
        cy_copy(&at->queue, cy_view_rows(values, row, 1), cy_view_rows(of.v, i, 1));
    }
    const cy_view o = bench_twin(at, of.o);
    cy_fill(&at->queue, o, 0.0);
    const int32_t *sequences = bench_integers(at, TOKENS, 1, 2);
    cy_attention_paged(&at->queue, o, of.q, &pages, sequences, of.positions, &of.spec);
    expect_close("from pages", o, of.o, 1e-14, 1e-15);
    bench_check(at);
    bench_close(at);
}

// A NaN among queries or keys is not taken for a query that sees nothing.
static void attention_passes_nan(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    const cy_view q = bench_numbers(&at, CY_F32, 1, 2, (const double[]){(double)NAN, (double)NAN});
    const cy_view k = bench_numbers(&at, CY_F32, 1, 2, (const double[]){1, 1});
    const cy_view o = bench_make(&at, CY_F32, 1, 2, 0), lse = bench_make(&at, CY_F32, 1, 1, 0);
    const int32_t position = 0;
    const cy_attention_span span = {0, 1, 0, 1};
    const cy_attention_spec spec = {.heads = 1,
        .kv_heads = 1,
        .head_dim = 2,
        .scale = 1.0,
        .spans = &span,
        .span_count = 1,
        .q_positions = &position,
        .k_positions = &position};
    cy_attention_forward(&at.queue, o, lse, q, k, k, &spec);
    assert_true(isnan(cy_ref_load(o, 0, 0)));
    bench_close(&at);
}

// ---- the optimizer

static void optimizer(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    cy_queue *queue = &at.queue;
    const cy_view grad = bench_numbers(&at, CY_F64, 1, 2, (const double[]){3, 4});
    const cy_view sum = bench_numbers(&at, CY_F64, 1, 1, (const double[]){0});
    const cy_view scale = bench_make(&at, CY_F64, 1, 1, 0), norm = bench_twin(&at, scale);
    cy_sum_squares(queue, sum, grad);
    cy_clip_scale(queue, scale, norm, sum, 2.0, 0.0); // no limit
    BENCH_EXPECT(norm, 1e-15, 2.5);
    BENCH_EXPECT(scale, 1e-15, 0.5);
    cy_clip_scale(queue, scale, norm, sum, 2.0, 1.0);
    BENCH_EXPECT(norm, 1e-15, 2.5);
    BENCH_EXPECT(scale, 1e-15, 0.2);                  // to length 1
    cy_clip_scale(queue, scale, norm, sum, 2.0, 3.0); // within the limit
    BENCH_EXPECT(scale, 1e-15, 0.5);

    // One step from rest moves by the learning rate against the gradient's sign, after the decay.
    const cy_view master = bench_numbers(&at, CY_F64, 1, 2, (const double[]){1, -2});
    const cy_view m = bench_numbers(&at, CY_F64, 1, 2, (const double[]){0, 0}),
                  v = bench_twin(&at, m);
    const cy_view weight = bench_make(&at, CY_BF16, 1, 2, 0);
    cy_adamw_spec spec = {0.1, 0.9, 0.999, 0.0, 0.5, 1, {0}};
    cy_adamw(queue, weight, master, m, v, grad, scale, &spec);
    BENCH_EXPECT(master, 1e-14, 1 * 0.95 - 0.1, -2 * 0.95 - 0.1);
    BENCH_EXPECT(m, 1e-15, 0.15, 0.2);
    BENCH_EXPECT(v, 1e-15, 0.00225, 0.004);
    BENCH_EXPECT(weight, 0.0, 0.8515625, -2.0);

    // v is held from step 3 on, with the correction of two steps, but is not below (g / 4)^2.
    const cy_view late = bench_numbers(&at, CY_F64, 1, 2, (const double[]){1, -2});
    const cy_view kept_m = bench_numbers(&at, CY_F64, 1, 2, (const double[]){0, 0});
    const cy_view kept_v = bench_numbers(&at, CY_F64, 1, 2, (const double[]){1, 0});
    spec = (cy_adamw_spec){0.1, 0.0, 0.5, 0.0, 0.0, 9, {2, 0.25}};
    cy_adamw(queue, cy_view_none(), late, kept_m, kept_v, grad, scale, &spec);
    BENCH_EXPECT(kept_v, 1e-15, 1, 0.25); // g = 1.5, 2
    const double root = sqrt(0.75);       // of the correction, 1 - 0.5^2
    BENCH_EXPECT(late, 1e-14, 1 - 0.15 * root, -2 - 0.4 * root);

    // A broken gradient: the norm says so, and the step changes nothing.
    const cy_view broken = bench_numbers(&at, CY_F64, 1, 2, (const double[]){(double)INFINITY, 4});
    cy_fill(queue, sum, 0.0);
    cy_sum_squares(queue, sum, broken);
    cy_clip_scale(queue, scale, norm, sum, 2.0, 1.0);
    assert_true(isinf(cy_ref_load(norm, 0, 0)) && isnan(cy_ref_load(scale, 0, 0)));
    const cy_view before = bench_twin(&at, master);
    cy_adamw(queue, weight, master, m, v, broken, scale, &spec);
    expect_same_bits("master after a skipped step", master, before);
    bench_check(&at);
    bench_close(&at);
}

// A shard hashes to its share: the sum over shards is the hash of the whole.
static void hash_does_not_know_the_split(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    const cy_view x = bench_random(&at, CY_F32, 6, 10, 0, 1.0);
    const cy_view whole = bench_make(&at, CY_I64, 1, 1, 0),
                  parts = bench_make(&at, CY_I64, 1, 1, 0);
    *(int64_t *)whole.data = *(int64_t *)parts.data = 0;
    cy_hash(&at.queue, whole, x, 3, 100, 10);
    for (int64_t r = 0; r < 6; r += 2) {
        for (int64_t c = 0; c < 10; c += 5) {
            cy_hash(&at.queue, parts, cy_view_cols(cy_view_rows(x, r, 2), c, 5), 3,
                100 + (uint64_t)(r * 10 + c), 10);
        }
    }
    assert_true(*(int64_t *)whole.data == *(int64_t *)parts.data);
    *(float *)cy_view_at(x, 5, 9) *= 1.0000001f;
    cy_hash(&at.queue, parts, x, 3, 100, 10);
    assert_true(*(int64_t *)whole.data != *(int64_t *)parts.data - *(int64_t *)whole.data);
    bench_close(&at);
}

// fp64 rounds to 16 bits once: by way of fp32 this would round twice, to the other neighbour.
static void one_rounding(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    const double above = 1.0 + 0x1p-8 + 0x1p-40, below = 1.0 + 3 * 0x1p-8 - 0x1p-40;
    const cy_view x = bench_numbers(&at, CY_F64, 1, 2, (const double[]){above, below});
    const cy_view y = bench_make(&at, CY_BF16, 1, 2, 0);
    cy_copy(&at.queue, y, x);
    BENCH_EXPECT(y, 0.0, 1.0 + 0x1p-7, 1.0 + 0x1p-7);
    bench_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(products_of_many_tiles),
        cmocka_unit_test(norm),
        cmocka_unit_test(rope),
        cmocka_unit_test(feed_forward_and_loss),
        cmocka_unit_test(attention_equals_all_scores),
        cmocka_unit_test(attention_merges),
        cmocka_unit_test(attention_reads_pages),
        cmocka_unit_test(attention_passes_nan),
        cmocka_unit_test(optimizer),
        cmocka_unit_test(hash_does_not_know_the_split),
        cmocka_unit_test(one_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
