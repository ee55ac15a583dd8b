// The tuned operators (all but products and attention) against the reference, for every instruction
// set that this processor has: sizes of 1, odd ones, ones that no vector divides, ones that fill
// several chunks; matrices with gaps; accumulators that start at non-zero. Results must not depend
// on the number of threads nor on the device, nothing outside the views may change, and a dry queue
// must touch no data.
//
// Tolerances. fp32: a few units in the last place, as each case says; bf16: one unit (2^-7),
// because the fp32 result may lie on the other side of the middle between two numbers.

#include "kernel/dispatch.h"
#include "kernel/harness.h"
#include "kernel/mirror.h"

#include <math.h>
#include <stdio.h>

// ---- the reference, and the operators of an instruction set on one thread and on three

static cy_view vector(bench *at, cy_dtype dtype, int64_t cols)
{
    return bench_random(at, dtype, 1, cols, 0, 1.0);
}

static cy_view scalar(bench *at, cy_dtype dtype, double value)
{
    const cy_view view = bench_make(at, dtype, 1, 1, 0);
    if (!at->queue.dry) cy_ref_fill(&at->queue, view, value);
    return view;
}

typedef struct runner {
    bench ref, one, three; // one and three threads
    bench later;           // behind the test device
    mirror device;
    cy_kernels tables[3];
    bool has_later;
} runner;

// False where this processor has not got the instruction set.
static bool open_runner(runner *on, const char *isa)
{
    bench_open(&on->ref, cy_kernels_ref(), 2);
    bench_open(&on->one, NULL, 1);
    bench_open(&on->three, NULL, 3);
    on->has_later = false;
    isa = cy_test_isa(isa);
    if (isa == NULL) return false;
    const cy_status status = cy_kernels_open(&on->one.queue, &on->tables[0], isa);
    if (status == CY_ERR_UNSUPPORTED) return false;
    CY_CHECK_OK(status);
    CY_CHECK_OK(cy_kernels_open(&on->three.queue, &on->tables[1], isa));
    CY_CHECK_OK(bench_open_mirror(&on->later, &on->device, &on->tables[2], isa, 2));
    on->has_later = true;
    return true;
}

static void close_runner(runner *on)
{
    cy_kernels_close(&on->one.queue);
    cy_kernels_close(&on->three.queue);
    bench_close(&on->ref);
    bench_close(&on->one);
    bench_close(&on->three);
    if (on->has_later) bench_close_mirror(&on->later, &on->device);
}

// ---- every operator

typedef struct size {
    int64_t rows, cols, gap;
} size;

static const size sizes[] = {{1, 1, 0}, {3, 7, 2}, {5, 8, 0}, {2, 16, 5}, {67, 33, 0},
    {130, 100, 3}, {9, 576, 0}, {300, 64, 0}, {2, 20011, 0}};

// What a case made, and how close it must be to the reference.
typedef struct result {
    cy_view out[4];
    double relative[4], absolute[4];
    int count;
} result;

typedef void (*operator_case)(bench *at, size of, cy_dtype dtype, result *made);

static void give(result *made, cy_view out, double relative, double absolute)
{
    const double unit = out.dtype == CY_BF16 ? 0x1p-7 : 0.0;
    made->out[made->count] = out;
    made->relative[made->count] = unit > relative ? unit : relative;
    made->absolute[made->count++] = absolute;
}

static cy_view data(bench *at, size of, cy_dtype dtype)
{
    return bench_random(at, dtype, of.rows, of.cols, of.gap, 1.0);
}

// Of a sum of squares over a row in fp32: it grows with the row.
static double of_row(size of)
{
    return of.cols > 10000 ? 4e-6 : 1e-6;
}

// ---- the cases

static void norm_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_view x = data(at, of, dtype), branch = data(at, of, dtype);
    const cy_view y = data(at, of, dtype), again = data(at, of, dtype);
    const cy_view weight = vector(at, dtype, of.cols), inv = vector(at, CY_F32, of.rows);
    const cy_view dx = data(at, of, dtype), dy = data(at, of, dtype);
    const cy_view dweight = vector(at, CY_F32, of.cols);
    cy_norm_forward(queue, y, inv, x, branch, weight, 1e-5);
    cy_norm_apply(queue, again, x, inv, weight);
    if (!queue->dry) expect_same_bits("norm applied again", again, y);
    give(made, y, 2.0 * of_row(of), 0.0);
    give(made, inv, of_row(of), 0.0);
    cy_norm_backward(queue, dx, dweight, dy, x, inv, weight);
    give(made, dx, 2e-6, dtype == CY_BF16 ? 0.01 : 1e-5);
    give(made, dweight, 2e-6, dtype == CY_BF16 ? 1e-4 : 1e-5);
}

// No branch, and one of the two gradients at a time.
static void norm_parts_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_view x = data(at, of, dtype), y = data(at, of, dtype);
    const cy_view weight = vector(at, CY_F32, of.cols), inv = vector(at, CY_F32, of.rows);
    const cy_view dx = data(at, of, CY_F32), dy = data(at, of, CY_F32);
    const cy_view dweight = vector(at, CY_F32, of.cols);
    cy_norm_forward(queue, y, inv, x, cy_view_none(), weight, 1e-5);
    cy_norm_backward(queue, dx, cy_view_none(), dy, x, inv, weight);
    cy_norm_backward(queue, cy_view_none(), dweight, dy, x, inv, weight);
    give(made, y, 2.0 * of_row(of), 0.0);
    give(made, dx, 2e-6, 1e-5);
    give(made, dweight, 2e-6, 1e-5);
    give(made, x, 0.0, 0.0); // without a branch it stays as it is
    made->relative[3] = 0.0;
}

static void rope_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const int64_t dim = of.cols < 128 ? 2 * of.cols : 64; // of odd halves too
    const double *inv_freq = bench_frequencies(at, 128, 0.9);
    const cy_view table = bench_make(at, CY_F32, 50, dim, 0);
    cy_rope_table(queue, table, inv_freq, 1.0);
    const int32_t *positions = bench_integers(at, of.rows, 0, 50);
    const cy_view x = bench_random(at, dtype, of.rows, 3 * dim + 1, of.gap, 1.0);
    const cy_view back = bench_random(at, dtype, of.rows, 3 * dim, of.gap, 1.0);
    cy_rope(queue, x, table, positions, 3, false);
    cy_rope(queue, back, table, positions, 2, true); // the third head is left alone
    give(made, x, 1e-6, 1e-6);
    give(made, back, 1e-6, 1e-6);
}

static void swiglu_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_view gate_up = bench_random(at, dtype, of.rows, 2 * of.cols, of.gap, 3.0);
    const cy_view y = data(at, of, dtype), again = data(at, of, dtype), dy = data(at, of, dtype);
    const cy_view apart = bench_random(at, CY_F32, of.rows, 2 * of.cols, 0, 1.0);
    cy_swiglu_forward(queue, y, gate_up);
    cy_swiglu_backward(queue, apart, cy_view_none(), dy, gate_up);
    cy_swiglu_backward(queue, gate_up, again, dy, gate_up); // in place
    if (!queue->dry) expect_same_bits("swiglu made again", again, y);
    give(made, y, 1e-6, 0.0);
    give(made, apart, 1e-6, 1e-5);
    give(made, gate_up, 1e-6, 1e-5);
}

static void embedding_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const int64_t vocab = 13;
    const cy_view table = bench_random(at, dtype, vocab, of.cols, of.gap, 1.0);
    const cy_view d_table = bench_random(at, CY_F32, vocab, of.cols, of.gap, 1.0);
    const cy_view y = data(at, of, dtype), dy = data(at, of, dtype);
    const int32_t *tokens = bench_integers(at, of.rows, 0, 25);
    cy_embedding_forward(queue, y, table, tokens, 6); // tokens below 6 and above 18 are elsewhere
    cy_embedding_backward(queue, d_table, dy, tokens, 6);
    give(made, y, 0.0, 0.0);
    made->relative[0] = 0.0;
    give(made, d_table, 1e-6, 1e-5);
}

static void softmax_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_view logits = bench_random(at, dtype, of.rows, of.cols, of.gap, 3.0);
    const cy_view d = bench_random(at, CY_BF16, of.rows, of.cols, of.gap, 1.0);
    const cy_view max = vector(at, CY_F32, of.rows), sum = vector(at, CY_F32, of.rows);
    const cy_view target = vector(at, CY_F32, of.rows);
    int32_t *targets = bench_integers(at, of.rows, -3, (int32_t)(100 + of.cols));
    if (!queue->dry) targets[0] = 100;
    // The last third is padding, unless nothing would be left.
    const cy_vocab_range range = {.first = 100, .valid = 100 + of.cols - of.cols / 3};
    cy_softmax_max(queue, max, logits, range);
    cy_softmax_sum(queue, sum, target, logits, max, targets, range);
    // exp(logit - max): the difference, up to 25 here, is rounded to fp32.
    give(made, max, 0.0, 0.0);
    give(made, sum, 3e-6, 0.0);
    cy_softmax_grad(queue, d, logits, max, sum, targets, range, 0.25);
    cy_softmax_grad(queue, logits, logits, max, sum, targets, range, 0.25); // in place
    give(made, d, 3e-6, 0.0);
    give(made, logits, 3e-6, 1e-8);
}

// All columns beyond the vocabulary: a rank that holds only padding.
static void softmax_padding_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_view logits = data(at, of, dtype), d = data(at, of, dtype);
    const cy_view max = vector(at, CY_F32, of.rows), sum = vector(at, CY_F32, of.rows);
    const cy_view target = vector(at, CY_F32, of.rows);
    const int32_t *targets = bench_integers(at, of.rows, 0, 90);
    const cy_vocab_range range = {.first = 100, .valid = 90};
    cy_softmax_max(queue, max, logits, range);
    give(made, max, 0.0, 0.0);
    const cy_view everywhere = vector(at, CY_F32, of.rows); // of all ranks
    cy_softmax_sum(queue, sum, target, logits, everywhere, targets, range);
    give(made, sum, 0.0, 0.0);
    give(made, target, 0.0, 0.0);
    cy_softmax_grad(queue, d, logits, everywhere, everywhere, targets, range, 1.0);
    give(made, d, 0.0, 0.0);
}

static void element_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_dtype other = dtype == CY_BF16 ? CY_F32 : CY_BF16;
    const cy_view filled = data(at, of, dtype), copied = data(at, of, other);
    const cy_view a = data(at, of, dtype), b = data(at, of, other), sum = data(at, of, dtype);
    const cy_view bias = vector(at, CY_F32, of.cols);
    cy_fill(queue, filled, 0.3);
    cy_copy(queue, copied, a);
    cy_add(queue, sum, a, b);
    cy_add(queue, a, a, b); // in place
    if (!queue->dry) expect_same_bits("sum in place", a, sum);
    cy_add_bias(queue, sum, bias);
    give(made, filled, 0.0, 0.0);
    give(made, copied, 0.0, 0.0);
    give(made, a, 0.0, dtype == CY_BF16 ? 0.0 : 1e-7);
    give(made, sum, 0.0, dtype == CY_BF16 ? 0.02 : 1e-6);
    made->relative[0] = 0.0; // exact, whatever the dtype
    made->relative[1] = 0.0;
}

static void sum_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_view x = data(at, of, dtype), sum = vector(at, CY_F32, of.cols);
    const cy_view squares = scalar(at, CY_F64, 5.0), scale = scalar(at, CY_F64, 0.0);
    const cy_view norm = scalar(at, CY_F64, 0.0);
    cy_sum_rows(queue, sum, x);
    cy_sum_squares(queue, squares, x);
    cy_clip_scale(queue, scale, norm, squares, 16.0, 0.01);
    give(made, sum, 1e-6, 1e-5);
    give(made, squares, 1e-13, 0.0);
    give(made, scale, 1e-13, 0.0);
    give(made, norm, 1e-13, 0.0);
}

static void adamw_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const int64_t n = of.rows * of.cols;
    const cy_view weight = vector(at, CY_BF16, n), master = vector(at, CY_F32, n);
    const cy_view m = vector(at, CY_F32, n), v = vector(at, CY_F32, n);
    const cy_view grad = vector(at, dtype, n), scale = scalar(at, CY_F64, 0.25);
    cy_adamw_spec spec = {
        .learning_rate = 3e-3,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .step = 1,
        .freeze = {.steps = 3, .share = 0.9},
    };
    if (!queue->dry) {
        cy_ref_fill(queue, m, 0.0);
        cy_ref_fill(queue, v, 0.0);
    }
    for (spec.step = 1; spec.step < 6; spec.step++) { // v is held in the last two
        cy_adamw(queue, weight, master, m, v, grad, scale, &spec);
    }
    give(made, weight, 0.0, 0.0);
    give(made, master, 3e-7, 3e-8);
    give(made, m, 1e-6, 0.0);
    give(made, v, 1e-6, 0.0);
}

static void random_case(bench *at, size of, cy_dtype dtype, result *made)
{
    cy_queue *queue = &at->queue;
    const cy_view x = data(at, of, dtype), whole = data(at, of, dtype);
    const cy_view sum = bench_make(at, CY_I64, 1, 1, 0);
    if (!queue->dry) *(int64_t *)sum.data = 77;
    cy_random_fill(queue, x, 42, 1000003, of.cols + 11, 0.02);
    cy_random_fill(queue, whole, 42, 5, of.cols, 0.02);
    cy_hash(queue, sum, x, 43, 9, of.cols + 11);
    give(made, x, 0.0, 0.0);
    give(made, whole, 0.0, 0.0);
    made->relative[0] = made->relative[1] = 0.0;
    // Compared as the two halves of its bits.
    const cy_view halves = bench_make(at, CY_F64, 1, 2, 0);
    if (!queue->dry) {
        const uint64_t bits = *(const uint64_t *)sum.data;
        ((double *)halves.data)[0] = (double)(bits >> 32);
        ((double *)halves.data)[1] = (double)(bits & 0xffffffffu);
    }
    give(made, halves, 0.0, 0.0);
}

// ---- running them

static void check_dry(bench *at, operator_case run, size of, cy_dtype dtype)
{
    result made = {0};
    bench_dry(at, true);
    run(at, of, dtype, &made);
    assert_true(at->queue.planned.bytes > 0.0);
    bench_dry(at, false);
}

static void check_case(runner *on, const char *name, operator_case run, size of, cy_dtype dtype)
{
    bench *benches[4] = {&on->ref, &on->one, &on->three, &on->later};
    result made[4];
    memset(made, 0, sizeof(made));
    for (int i = 0; i < 4; i++) {
        bench_clear(benches[i]);
        benches[i]->seed = 1; // the same numbers for all
        run(benches[i], of, dtype, &made[i]);
        bench_check(benches[i]);
    }
    for (int i = 0; i < made[0].count; i++) {
        char what[100];
        snprintf(what, sizeof(what), "%s %s output %d", name, cy_dtype_name(dtype), i);
        expect_close(
            what, made[1].out[i], made[0].out[i], made[0].relative[i], made[0].absolute[i]);
        expect_same_bits(what, made[2].out[i], made[1].out[i]);
        expect_same_bits(what, made[3].out[i], made[1].out[i]);
    }
    check_dry(&on->one, run, of, dtype);
    check_dry(&on->later, run, of, dtype);
}

static const struct {
    const char *name;
    operator_case run;
} cases[] = {{"norm", norm_case}, {"norm parts", norm_parts_case}, {"rope", rope_case},
    {"swiglu", swiglu_case}, {"embedding", embedding_case}, {"softmax", softmax_case},
    {"softmax padding", softmax_padding_case}, {"element", element_case}, {"sum", sum_case},
    {"adamw", adamw_case}, {"random", random_case}};

static void check_isa(const char *isa)
{
    static runner on;
    const bool has = open_runner(&on, isa);
    for (size_t c = 0; has && c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            check_case(&on, cases[c].name, cases[c].run, sizes[s], CY_F32);
            check_case(&on, cases[c].name, cases[c].run, sizes[s], CY_BF16);
            // What the vectors do not serve must reach the reference.
            if (s == 1) check_case(&on, cases[c].name, cases[c].run, sizes[s], CY_F16);
        }
    }
    close_runner(&on);
    if (!has) skip();
}

static void avx2(void **state)
{
    (void)state;
    check_isa("avx2");
}

static void avx512(void **state)
{
    (void)state;
    check_isa("avx512");
}

static void neon(void **state)
{
    (void)state;
    check_isa("neon");
}

static void best(void **state)
{
    (void)state;
    check_isa("auto");
}

// ---- AdamW in ranges gives the bits of AdamW at once: a bucket may end anywhere. So does AdamW
// one step of the formula after the other.

static void check_ranges(const char *isa)
{
    static runner on;
    const bool has = open_runner(&on, isa);
    if (has) {
        bench *at = &on.three;
        const int64_t n = 40000;
        cy_view whole[5], parts[5], passes[5];
        const cy_dtype dtypes[5] = {CY_BF16, CY_F32, CY_F32, CY_F32, CY_F32};
        for (int i = 0; i < 5; i++)
            whole[i] = vector(at, dtypes[i], n);
        cy_ref_fill(&at->queue, whole[3], 0.5);
        for (int i = 0; i < 5; i++) {
            parts[i] = bench_twin(at, whole[i]);
            passes[i] = bench_twin(at, whole[i]);
        }
        const cy_view scale = scalar(at, CY_F64, 0.3), broken = scalar(at, CY_F64, (double)NAN);
        const cy_adamw_spec spec = {3e-3, 0.9, 0.95, 1e-8, 0.1, 7, {0}};
        cy_adamw(&at->queue, whole[0], whole[1], whole[2], whole[3], whole[4], scale, &spec);
        for (int64_t first = 0; first < n;) {
            int64_t count = 1 + first * 3 / 7;
            if (count > n - first) count = n - first;
            cy_view p[5];
            for (int i = 0; i < 5; i++)
                p[i] = cy_view_cols(parts[i], first, count);
            cy_adamw(&at->queue, p[0], p[1], p[2], p[3], p[4], scale, &spec);
            first += count;
        }
        for (int i = 0; i < 5; i++)
            expect_same_bits("adamw in ranges", parts[i], whole[i]);
        at->queue.kernels->adamw_unfused(
            &at->queue, passes[0], passes[1], passes[2], passes[3], passes[4], scale, &spec);
        for (int i = 0; i < 5; i++)
            expect_same_bits("adamw unfused", passes[i], whole[i]);
        // A scale that is no number changes nothing.
        cy_adamw(&at->queue, parts[0], parts[1], parts[2], parts[3], parts[4], broken, &spec);
        for (int i = 0; i < 5; i++)
            expect_same_bits("adamw skipped", parts[i], whole[i]);
        bench_check(at);
    }
    close_runner(&on);
    if (!has) skip();
}

static void ranges_avx2(void **state)
{
    (void)state;
    check_ranges("avx2");
}

static void ranges_avx512(void **state)
{
    (void)state;
    check_ranges("avx512");
}

static void ranges_neon(void **state)
{
    (void)state;
    check_ranges("neon");
}

// ---- the exponential, taken from the softmax's gradient, exp(logit - 0) / 1: over its whole range
// it is close to the true one, and values that are not finite stay so.

static void check_exponential(const char *isa)
{
    static runner on;
    const bool has = open_runner(&on, isa);
    if (has) {
        const int64_t count = 400000;
        bench *at = &on.one;
        const cy_view x = bench_make(at, CY_F32, 1, count, 0), y = bench_twin(at, x);
        const cy_view zero = scalar(at, CY_F32, 0.0), one = scalar(at, CY_F32, 1.0);
        const int32_t target = 1 << 30; // somewhere else
        float *in = x.data;
        for (int64_t i = 0; i < count; i++) {
            in[i] = -106.0f + (float)i * (196.0f / (float)count);
        }
        in[0] = NAN;
        in[1] = INFINITY;
        in[2] = -INFINITY;
        in[3] = 0.0f;
        in[4] = -0.0f;
        in[5] = 88.72283f; // the last that is finite
        in[6] = 88.73f;
        in[7] = -1e30f;
        in[8] = 1e30f;
        in[9] = 1e-30f;
        const cy_vocab_range range = {.first = 0, .valid = count};
        cy_softmax_grad(&at->queue, y, x, zero, one, &target, range, 1.0);
        const float *out = y.data;
        assert_true(isnan(out[0]));
        assert_true(isinf(out[1]) && isinf(out[6]) && isinf(out[8]));
        assert_true(out[2] == 0.0f && out[7] == 0.0f);
        assert_true(out[3] == 1.0f && out[4] == 1.0f && out[9] == 1.0f);
        double worst = 0.0;
        for (int64_t i = 3; i < count; i++) {
            const double want = exp((double)in[i]);
            if (want > 3.4028235e38) {
                assert_true(isinf(out[i]));
            } else if (want < 0x1p-126) {
                assert_true(fabs((double)out[i] - want) <= 0x1p-149);
            } else {
                cy_test_worse(&worst, fabs((double)out[i] / want - 1.0));
            }
        }
        print_message("%s: largest relative error %.3g\n", isa, worst);
        assert_true(worst < 1.2e-7);
        bench_check(at);
    }
    close_runner(&on);
    if (!has) skip();
}

static void exponential_avx2(void **state)
{
    (void)state;
    check_exponential("avx2");
}

static void exponential_avx512(void **state)
{
    (void)state;
    check_exponential("avx512");
}

static void exponential_neon(void **state)
{
    (void)state;
    check_exponential("neon");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx2),
        cmocka_unit_test(avx512),
        cmocka_unit_test(neon),
        cmocka_unit_test(best),
        cmocka_unit_test(ranges_avx2),
        cmocka_unit_test(ranges_avx512),
        cmocka_unit_test(ranges_neon),
        cmocka_unit_test(exponential_avx2),
        cmocka_unit_test(exponential_avx512),
        cmocka_unit_test(exponential_neon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
