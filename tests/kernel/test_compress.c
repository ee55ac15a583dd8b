// The operators that make gradients small: what is kept back and what is sent is the whole, bit for
// bit; the largest are sent, whatever ties, zeros, infinities and NaN there are; the error of int8
// is bounded; every table gives the reference's bits, over sizes that no vector, block or part
// divides, with any number of threads.

#include "kernel/harness.h"
#include "kernel/dispatch.h"

#include <stdio.h>

static const int64_t sizes[] = {
    1, 2, 7, 15, 16, 17, 255, 256, 257, 511, 1000, 65535, 65536, 65537, 200003};
// Under a sanitizer the last one would take half of the time.
#define SIZES (CY_TEST_COUNT(sizes) - (CY_TEST_SANITIZED ? 1 : 0))

// What the elements are like: the hard cases for a search by digits.
typedef enum content { NORMAL, EQUAL, ZERO, FEW, WIDE, BROKEN, CONTENTS } content;

static double element(content what, int64_t i, double normal)
{
    switch (what) {
    case NORMAL:
        return normal;
    case EQUAL:
        return i % 3 == 0 ? -0.75 : 0.75;
    case ZERO:
        return 0.0;
    case FEW:
        return i % 37 == 5 ? normal : 0.0;
    case WIDE:
        return ldexp(normal, (int)(i * 7919 % 140) - 110); // down to numbers that are not normal
    case BROKEN:
        return i % 101 == 3 ? (double)NAN : i % 103 == 4 ? -(double)INFINITY : normal;
    case CONTENTS:
        break;
    }
    return 0.0;
}

static cy_view make(bench *at, cy_dtype dtype, int64_t n, content what)
{
    const cy_view x = bench_random(at, dtype, 1, n, 0, 1.0);
    for (int64_t i = 0; i < n; i++) {
        cy_ref_store(&at->queue, x, 0, i, element(what, i, cy_ref_load(x, 0, i)));
    }
    return x;
}

static uint64_t bits_of(cy_view x, int64_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, cy_view_at(x, 0, i), cy_dtype_size(x.dtype));
    return bits;
}

static double size_of(cy_view x, int64_t i)
{
    const double value = fabs(cy_ref_load(x, 0, i));
    return isnan(value) ? (double)INFINITY * 2 : value;
}

// Sent and kept are a partition of the sum; none that is kept is larger than one that is sent.
static void expect_partition(cy_view sum, cy_view kept, cy_view values, cy_view indices)
{
    const int32_t *places = indices.data;
    double least = (double)INFINITY, most = 0.0;
    bool nan_kept = false, all_nan = true;
    int64_t at = 0;
    for (int64_t i = 0; i < sum.cols; i++) {
        if (at < values.cols && places[at] == i) {
            assert_true(bits_of(values, at) == bits_of(sum, i)); // the sign among them
            assert_true(bits_of(kept, i) == 0);
            if (size_of(sum, i) < least) least = size_of(sum, i);
            all_nan = all_nan && isnan(cy_ref_load(sum, 0, i));
            at++;
            continue;
        }
        assert_true(bits_of(kept, i) == bits_of(sum, i));
        if (size_of(sum, i) > most) most = size_of(sum, i);
        nan_kept = nan_kept || isnan(cy_ref_load(sum, 0, i));
    }
    assert_int_equal(at, values.cols); // indices ascend and are within the range
    assert_true(most <= least);
    assert_true(!nan_kept || all_nan);
}

static void topk_case(bench *ref, bench *at, int64_t n, int64_t k, content what, cy_dtype dtype)
{
    // An odd gradient is clipped; of the others a half has a norm that is small enough.
    double squares = n % 2 == 0 ? 0.25 : 4.0;
    const double most = 0.74, scale = n % 2 == 0 ? 1.0 : 0.37;
    const cy_view norm = n % 4 == 0 ? cy_view_none() : cy_view_of(&squares, CY_F64, 1, 1);
    const cy_view grad = make(ref, dtype, n, what);
    const cy_view before = make(ref, dtype, n, what == BROKEN ? NORMAL : what);
    const cy_view kept = bench_twin(ref, before), sum = bench_twin(ref, before);
    const cy_view values = bench_make(ref, dtype, 1, k, 0),
                  places = bench_make(ref, CY_I32, 1, k, 0);
    for (int64_t i = 0; i < n; i++) {
        if (dtype == CY_F32) {
            const float added = (float)scale * ((const float *)grad.data)[i];
            ((float *)sum.data)[i] += added;
        } else {
            ((double *)sum.data)[i] += scale * ((const double *)grad.data)[i];
        }
    }
    cy_topk(&ref->queue, values, places, kept, grad, norm, most);
    expect_partition(sum, kept, values, places);

    const cy_view kept2 = bench_twin(at, before);
    const cy_view values2 = bench_make(at, dtype, 1, k, 0),
                  places2 = bench_make(at, CY_I32, 1, k, 0);
    cy_topk(&at->queue, values2, places2, kept2, grad, norm, most);
    expect_same_bits("values", values2, values);
    expect_same_bits("indices", places2, places);
    expect_same_bits("residual", kept2, kept);

    // Put back where they came from they are the sum again.
    if (what != BROKEN) {
        cy_scatter_add(&at->queue, kept2, places2, values2);
        expect_same_bits("sent and kept", kept2, sum);
    }
    bench_check(ref);
    bench_check(at);
    bench_clear(ref);
    bench_clear(at);
}

// Against the formula in double, and every table against the reference, bit for bit.
static void look_ahead_case(bench *ref, bench *at, int64_t n, cy_dtype dtype, cy_dtype weights)
{
    const cy_step_ahead_spec spec = {
        .learning_rate = 0.01, .scale = 0.5, .root = 1.25, .eps = 1e-8, .most = 10.0};
    const cy_view master = bench_random(ref, dtype, 1, n, 0, 1.0);
    const cy_view residual = bench_random(ref, dtype, 1, n, 0, 1.0);
    const cy_view v = bench_random(ref, dtype, 1, n, 0, 1.0);
    for (int64_t i = 0; i < n; i++) {
        const double x = cy_ref_load(v, 0, i);
        cy_ref_store(&ref->queue, v, 0, i, i % 5 == 0 ? 0.0 : x * x); // a limit that is reached
    }
    const cy_view weight = bench_make(ref, weights, 1, n, 0);
    const cy_view weight2 = bench_make(at, weights, 1, n, 0);
    cy_step_ahead(&ref->queue, weight, master, residual, v, &spec);
    cy_step_ahead(&at->queue, weight2, bench_twin(at, master), bench_twin(at, residual),
        bench_twin(at, v), &spec);
    expect_same_bits("weights ahead", weight2, weight);
    for (int64_t i = 0; i < n; i++) {
        const double below = 1.25 * sqrt(cy_ref_load(v, 0, i)) + 1e-8;
        const double step = 0.5 * cy_ref_load(residual, 0, i) / below;
        const double wanted = cy_ref_load(master, 0, i) - 0.01 * fmin(fmax(step, -10.0), 10.0);
        const double near = 1e-6 + (weights == CY_BF16 ? 0x1p-8 * fabs(wanted) : 0.0);
        assert_true(fabs(cy_ref_load(weight, 0, i) - wanted) <= near);
    }
    bench_check(ref);
    bench_check(at);
    bench_clear(ref);
    bench_clear(at);
}

static void quantize_case(bench *ref, bench *at, int64_t n, content what, cy_dtype dtype)
{
    const int64_t blocks = (n + CY_QUANTIZE_BLOCK - 1) / CY_QUANTIZE_BLOCK;
    const cy_view x = make(ref, dtype, n, what);
    const cy_view codes = bench_make(ref, CY_U8, 1, n, 0),
                  scales = bench_make(ref, CY_F32, 1, blocks, 0);
    const cy_view back = bench_random(ref, dtype, 1, n, 0, 1.0);
    const cy_view codes2 = bench_make(at, CY_U8, 1, n, 0),
                  scales2 = bench_make(at, CY_F32, 1, blocks, 0);
    const cy_view back2 = bench_twin(at, back);
    cy_quantize(&ref->queue, codes, scales, x);
    cy_quantize(&at->queue, codes2, scales2, x);
    expect_same_bits("codes", codes2, codes);
    expect_close("scales", scales2, scales, 0.0, 0.0); // a NaN has many bits
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        cy_dequantize(&ref->queue, back, codes, scales, accumulate != 0);
        cy_dequantize(&at->queue, back2, codes2, scales2, accumulate != 0);
        expect_close("back", back2, back, 0.0, 0.0);
    }
    cy_dequantize(&at->queue, back2, codes2, scales2, false);
    for (int64_t i = 0; i < n; i++) {
        const double scale = (double)((const float *)scales.data)[i / CY_QUANTIZE_BLOCK];
        const double error = fabs(cy_ref_load(back2, 0, i) - cy_ref_load(x, 0, i));
        if (isnan(scale)) {
            assert_true(isnan(cy_ref_load(back2, 0, i)));
        } else if (scale >= 0x1p-126) {
            assert_true(error <= 0.500001 * scale);
        }
    }
    bench_check(ref);
    bench_check(at);
    bench_clear(ref);
    bench_clear(at);
}

static void every_case(bench *ref, bench *at)
{
    for (size_t s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        for (int what = 0; what < CONTENTS; what++) {
            const int64_t counts[] = {1, (n + 99) / 100, (n + 1) / 2, n};
            for (int i = 0; i < 4; i++)
                topk_case(ref, at, n, counts[i], (content)what, CY_F32);
            topk_case(ref, at, n, (n + 9) / 10, (content)what, CY_F64);
            quantize_case(ref, at, n, (content)what, CY_F32);
            quantize_case(ref, at, n, (content)what, CY_F64);
        }
    }
}

static void every_case_ahead(bench *ref, bench *at)
{
    for (size_t s = 0; s < SIZES; s++) {
        look_ahead_case(ref, at, sizes[s], CY_F32, CY_F32);
        look_ahead_case(ref, at, sizes[s], CY_F32, CY_BF16);
        look_ahead_case(ref, at, sizes[s], CY_F64, CY_F64);
    }
}

// Calls `compare` for every table of kernels that this processor has, beside the reference.
static void with_every_table(void (*compare)(bench *ref, bench *at))
{
    static const char *const names[] = {"ref", "avx2", "avx512", "neon"};
    static bench ref, at;
    bench_open(&ref, cy_kernels_ref(), 1);
    for (int i = 0; i < 4; i++) {
        cy_kernels kernels;
        bench_open(&at, NULL, 1 + i);
        if (cy_kernels_open(&at.queue, &kernels, names[i]) == CY_OK) {
            compare(&ref, &at);
            cy_kernels_close(&at.queue);
        } else {
            print_message("no %s here\n", names[i]);
        }
        bench_close(&at);
    }
    bench_close(&ref);
}

static void every_table_has_the_bits_of_the_reference(void **state)
{
    (void)state;
    with_every_table(every_case);
}

// What a gradient of 1 adds to a residual under a largest norm of 3.
static void a_gradient_is_clipped_by_its_norm(void **state)
{
    (void)state;
    const struct {
        double squares, added;
    } cases[] = {{8.9, 1.0}, {9.0, 1.0}, {36.0, 0.5}, {(double)NAN, 1.0}, {(double)INFINITY, 0.0}};
    bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(*cases)); i++) {
        double squares = cases[i].squares, grad = 1.0, kept = 0.0, sent = -1.0;
        int32_t place = -1;
        const cy_view sum = cy_view_of(&squares, CY_F64, 1, 1);
        cy_topk(&at.queue, cy_view_of(&sent, CY_F64, 1, 1), cy_view_of(&place, CY_I32, 1, 1),
            cy_view_of(&kept, CY_F64, 1, 1), cy_view_of(&grad, CY_F64, 1, 1), sum, 3.0);
        assert_true(sent == cases[i].added && kept == 0.0);
    }
    bench_close(&at);
}

static void every_table_looks_ahead_as_the_reference(void **state)
{
    (void)state;
    with_every_table(every_case_ahead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_has_the_bits_of_the_reference),
        cmocka_unit_test(a_gradient_is_clipped_by_its_norm),
        cmocka_unit_test(every_table_looks_ahead_as_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
