// The operators and the gradient check of the public interface: results, refusals, and that a wrong
// gradient is found.

#include "support/support.h"

#include <cyclotron/gradient.h>
#include <cyclotron/operators.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

static cy_operators *open_with(const char *isa, int threads)
{
    cy_operators *operators = NULL;
    const cy_operators_options options = {.isa = isa, .threads = threads};
    CY_CHECK_OK(cy_operators_open(&operators, &options));
    return operators;
}

// ---- products

static void products_are_exact(const char *isa, cy_dtype dtype)
{
    enum { M = 3, N = 5, K = 4 };
    cy_operators *operators = open_with(isa, 2);
    float a32[M * K], b32[N * K], c32[M * N];
    double a64[M * K], b64[N * K], c64[M * N];
    for (int i = 0; i < M * K; i++)
        a64[i] = (double)(a32[i] = (float)(i % 7 - 3));
    for (int i = 0; i < N * K; i++)
        b64[i] = (double)(b32[i] = (float)(i % 5 - 2));
    for (int i = 0; i < M * N; i++)
        c64[i] = (double)(c32[i] = 100);
    const bool wide = dtype == CY_F64;
    const cy_matrix a = cy_matrix_of(wide ? (void *)a64 : a32, dtype, M, K);
    const cy_matrix b = cy_matrix_of(wide ? (void *)b64 : b32, dtype, N, K);
    const cy_matrix c = cy_matrix_of(wide ? (void *)c64 : c32, dtype, M, N);
    CY_CHECK_OK(
        cy_operators_matmul(operators, c, a, b, (cy_product){.transpose_b = 1, .accumulate = 1}));
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            double sum = 100;
            for (int k = 0; k < K; k++)
                sum += a64[i * K + k] * b64[j * K + k];
            const double got = wide ? c64[i * N + j] : (double)c32[i * N + j];
            assert_true(got == sum);
        }
    }
    cy_operators_close(operators);
}

static void every_isa_and_dtype_multiplies(void **state)
{
    (void)state;
    products_are_exact("ref", CY_F64);
    products_are_exact("ref", CY_F32);
    products_are_exact(NULL, CY_F64);
    products_are_exact("auto", CY_F32);
}

// Scratch memory is taken as a call needs it: a small one, then one that needs more.
static void scratch_grows_with_the_call(void **state)
{
    (void)state;
    enum { SMALL = 2, LARGE = 300 };
    static float a[LARGE * LARGE], b[LARGE * LARGE], c[LARGE * LARGE];
    cy_operators *operators = open_with("auto", 2);
    for (int i = 0; i < LARGE * LARGE; i++) {
        a[i] = (float)(i % 3);
        b[i] = (float)(i % 2);
    }
    for (int size = SMALL; size <= LARGE; size += LARGE - SMALL) {
        CY_CHECK_OK(cy_operators_matmul(operators, cy_matrix_of(c, CY_F32, size, size),
            cy_matrix_of(a, CY_F32, size, size), cy_matrix_of(b, CY_F32, size, size),
            (cy_product){.transpose_a = 1}));
        float sum = 0;
        for (int k = 0; k < size; k++)
            sum += a[k * size + 1] * b[k * size + 1];
        assert_true(c[size + 1] == sum);
    }
    cy_operators_close(operators);
}

// ---- norm, with gaps between rows

static void norm_divides_by_the_root_mean_square(void **state)
{
    (void)state;
    cy_operators *operators = open_with("auto", 1);
    double x[2][4] = {{3, 4, 99, 99}, {0, 2, 99, 99}}, y[2][3] = {{7, 7, 7}, {7, 7, 7}};
    double weight[2] = {1, 10}, inv_rms[2];
    cy_matrix in = cy_matrix_of(x, CY_F64, 2, 2), out = cy_matrix_of(y, CY_F64, 2, 2);
    in.stride = 4;
    out.stride = 3;
    CY_CHECK_OK(cy_operators_norm_forward(operators, out, cy_matrix_of(inv_rms, CY_F64, 1, 2), in,
        cy_matrix_of(weight, CY_F64, 1, 2), 0.0));
    assert_true(fabs(inv_rms[0] - 1 / sqrt(12.5)) < 1e-15);
    assert_true(fabs(y[0][1] - 40 / sqrt(12.5)) < 1e-14 && y[0][2] == 7);
    assert_true(y[1][0] == 0.0 && fabs(y[1][1] - 10 * sqrt(2.0)) < 1e-14 && y[1][2] == 7);
    cy_operators_close(operators);
}

// ---- what does not fit

static void refused(cy_status status, const char *words)
{
    assert_int_equal(status, CY_ERR_REQUEST);
    if (strstr(cy_error_text(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", cy_error_text(), words);
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    cy_operators *operators = open_with("ref", 0);
    assert_string_equal(cy_operators_isa(operators), "ref");
    float data[4][64] = {{0}};
    const cy_matrix a = cy_matrix_of(data[0], CY_F32, 2, 3),
                    b = cy_matrix_of(data[1], CY_F32, 3, 4);
    const cy_matrix c = cy_matrix_of(data[2], CY_F32, 2, 4);
    const cy_product plain = {0};
    cy_matrix bad = c;
    CY_CHECK_OK(cy_operators_matmul(operators, c, a, b, plain));
    bad.cols = 3;
    refused(cy_operators_matmul(operators, bad, a, b, plain),
        "c is [2, 3] of fp32, must be [2, 4] of fp32");
    refused(cy_operators_matmul(operators, c, b, a, plain), "b is [2, 3]");
    refused(cy_operators_matmul(operators, a, a, cy_matrix_of(data[1], CY_F32, 3, 3), plain),
        "c and a overlap");
    bad = c;
    bad.stride = 3;
    refused(cy_operators_matmul(operators, bad, a, b, plain), "rows overlap");
    bad = c;
    bad.data = NULL;
    refused(cy_operators_matmul(operators, bad, a, b, plain), "c has no data");
    bad = a;
    bad.dtype = CY_I32;
    refused(cy_operators_matmul(operators, c, bad, b, plain), "a is [2, 3]");
    bad = a;
    bad.rows = 0;
    refused(cy_operators_matmul(operators, c, bad, b, plain), "at least one row");

    const cy_matrix y = cy_matrix_of(data[3], CY_F32, 2, 3);
    const cy_matrix inv_rms = cy_matrix_of(data[2], CY_F32, 1, 2);
    const cy_matrix weight = cy_matrix_of(data[1], CY_F32, 1, 3);
    refused(cy_operators_norm_forward(operators, y, weight, a, weight, 1e-5), "inv_rms is [1, 3]");
    refused(cy_operators_norm_forward(operators, y, inv_rms, a, weight, -1.0), "eps is -1");
    refused(cy_operators_norm_backward(operators, y, weight, a, a, inv_rms, weight), "overlap");
    refused(
        cy_operators_norm_backward(operators, c, weight, a, a, inv_rms, weight), "dx is [2, 4]");
    cy_operators_close(operators);

    const cy_operators_options few = {.threads = -1};
    refused(cy_operators_open(&operators, &few), "-1 threads");
    const cy_operators_options unknown = {.isa = "abacus"};
    assert_int_equal(cy_operators_open(&operators, &unknown), CY_ERR_REQUEST);
    cy_operators_close(NULL);
}

static void what_just_fits_is_taken(void **state)
{
    (void)state;
    cy_operators *operators = open_with("ref", 0);
    float data[64] = {0};
    const cy_product plain = {0};
    // c [2, 4] between a [2, 3] and b [3, 4], without a gap; then one element into either.
    cy_matrix a = cy_matrix_of(data, CY_F32, 2, 3), b = cy_matrix_of(data + 14, CY_F32, 3, 4);
    cy_matrix c = cy_matrix_of(data + 6, CY_F32, 2, 4);
    CY_CHECK_OK(cy_operators_matmul(operators, c, a, b, plain));
    c.data = data + 5;
    refused(cy_operators_matmul(operators, c, a, b, plain), "c and a overlap");
    c.data = data + 7;
    refused(cy_operators_matmul(operators, c, a, b, plain), "c and b overlap");
    // Of a single row the stride does not matter.
    c = cy_matrix_of(data + 30, CY_F32, 1, 4);
    a = cy_matrix_of(data, CY_F32, 1, 3);
    a.stride = 0;
    CY_CHECK_OK(cy_operators_matmul(operators, c, a, b, plain));
    a.cols = 0;
    refused(cy_operators_matmul(operators, c, a, b, plain),
        "a is [1, 0] with stride 0, of fp32: at least one row and one column");
    // A product of 16-bit numbers may be fp32, one of fp64 may not, nor one of fp32 be narrower.
    static const struct {
        cy_dtype of, to;
        bool taken;
    } dtypes[] = {{CY_BF16, CY_F32, true}, {CY_F16, CY_F32, true}, {CY_BF16, CY_BF16, true},
        {CY_F64, CY_F32, false}, {CY_F32, CY_BF16, false}, {CY_BF16, CY_F16, false}};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        a = cy_matrix_of(data, dtypes[i].of, 1, 3);
        b = cy_matrix_of(data + 14, dtypes[i].of, 3, 4);
        c = cy_matrix_of(data + 48, dtypes[i].to, 1, 4);
        const cy_status status = cy_operators_matmul(operators, c, a, b, plain);
        if (dtypes[i].taken) {
            CY_CHECK_OK(status);
        } else {
            refused(status, ", must be [1, 4] of ");
        }
    }
    cy_operators_close(operators);
}

// ---- the gradient check

typedef struct cube {
    double x[3];
    double gradient[3];
    int calls_left; // after which the loss fails; -1: never
} cube;

// sum of (k + 1) x^3
static cy_status cube_loss(void *context, double *loss)
{
    cube *of = context;
    if (of->calls_left == 0) return CY_ERR_STOPPED;
    of->calls_left--;
    *loss = 0;
    for (int k = 0; k < 3; k++)
        *loss += (k + 1) * of->x[k] * of->x[k] * of->x[k];
    return CY_OK;
}

static cy_status check_within(cy_gradient_report *report, cube *of, double tolerance)
{
    const cy_gradient_tensor tensor = {.name = "x",
        .value = cy_matrix_of(of->x, CY_F64, 1, 3),
        .gradient = cy_matrix_of(of->gradient, CY_F64, 1, 3)};
    const cy_gradient_problem problem = {.context = of,
        .loss = cube_loss,
        .tensors = &tensor,
        .tensor_count = 1,
        .tolerance = tolerance};
    return cy_gradient_check(report, &problem);
}

static cy_status check_cube(cy_gradient_report *report, cube *of)
{
    return check_within(report, of, 0);
}

static cube right_cube(void)
{
    cube of = {.x = {0.5, -1.0, 2.0}, .calls_left = -1};
    for (int k = 0; k < 3; k++)
        of.gradient[k] = 3 * (k + 1) * of.x[k] * of.x[k];
    return of;
}

static void a_right_gradient_agrees(void **state)
{
    (void)state;
    cube of = right_cube();
    cy_gradient_report report;
    CY_CHECK_OK(check_cube(&report, &of));
    assert_true(report.agrees && report.worst < 1e-9);
    assert_string_equal(report.tensor, "x");
    assert_true(of.x[0] == 0.5 && of.x[1] == -1.0 && of.x[2] == 2.0);
}

static void a_wrong_one_is_found_with_its_place(void **state)
{
    (void)state;
    cube of = right_cube();
    cy_gradient_report report;
    of.gradient[1] *= 1.00001;
    CY_CHECK_OK(check_cube(&report, &of));
    assert_false(report.agrees);
    assert_int_equal(report.col, 1);
    assert_true(report.gradient == of.gradient[1] && fabs(report.difference - 6.0) < 1e-8);
    // Off by 1e-5 of what is right, which a wider tolerance takes.
    assert_true(fabs(report.worst - 1e-5) < 1e-8);
    CY_CHECK_OK(check_within(&report, &of, 2e-5));
    assert_true(report.agrees);
    CY_CHECK_OK(check_within(&report, &of, report.worst)); // as far off as is allowed
    assert_true(report.agrees);
    CY_CHECK_OK(check_within(&report, &of, 0.99e-5));
    assert_false(report.agrees);
    of.gradient[2] *= 1.000001; // less far off, behind it
    CY_CHECK_OK(check_cube(&report, &of));
    assert_int_equal(report.col, 1);
    of.gradient[2] *= 1.0001; // further off
    CY_CHECK_OK(check_cube(&report, &of));
    assert_int_equal(report.col, 2);
    // Next to nothing beside the largest is held against that.
    of = right_cube();
    of.x[0] = 1e-4;
    of.gradient[0] = 3e-8 + 1e-9;
    CY_CHECK_OK(check_cube(&report, &of));
    assert_true(report.agrees && report.worst < 1e-8);
    of = right_cube();
    of.gradient[2] = (double)NAN;
    CY_CHECK_OK(check_cube(&report, &of));
    assert_false(report.agrees);
    assert_int_equal(report.col, 2);
    of = right_cube();
    of.gradient[0] = 0; // among larger ones
    CY_CHECK_OK(check_cube(&report, &of));
    assert_false(report.agrees);
    assert_int_equal(report.col, 0);
}

static void what_shows_nothing_is_refused(void **state)
{
    (void)state;
    cube of = {.calls_left = -1}; // all zero: so are gradient and differences
    cy_gradient_report report = {.agrees = 7};
    refused(check_cube(&report, &of), "zero everywhere");
    assert_int_equal(report.agrees, 7);
    const cy_gradient_problem none = {.loss = cube_loss};
    refused(cy_gradient_check(&report, &none), "no tensor");
    cy_gradient_tensor tensor = {.name = "x",
        .value = cy_matrix_of(of.x, CY_F64, 1, 3),
        .gradient = cy_matrix_of(of.gradient, CY_F64, 3, 1)};
    const cy_gradient_problem problem = {
        .context = &of, .loss = cube_loss, .tensors = &tensor, .tensor_count = 1};
    refused(cy_gradient_check(&report, &problem), "its gradient [3, 1]");
    tensor.value.dtype = CY_F32;
    refused(cy_gradient_check(&report, &problem), "the value of x");
    tensor.value.dtype = CY_F64;
    tensor.gradient = tensor.value;
    const cy_matrix wrong[] = {{.rows = 1, .cols = 3, .stride = 3, .dtype = CY_F64},
        {.data = of.x, .rows = 0, .cols = 3, .stride = 3, .dtype = CY_F64},
        {.data = of.x, .rows = 1, .cols = 0, .stride = 3, .dtype = CY_F64},
        {.data = of.x, .rows = 2, .cols = 2, .stride = 1, .dtype = CY_F64}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        tensor.value = wrong[i];
        refused(cy_gradient_check(&report, &problem), ": a matrix of fp64 is wanted");
    }
}

static void a_loss_that_fails_leaves_the_values(void **state)
{
    (void)state;
    cube of = right_cube();
    of.calls_left = 6;
    cy_gradient_report report;
    assert_int_equal(check_cube(&report, &of), CY_ERR_STOPPED);
    assert_true(of.x[0] == 0.5 && of.x[1] == -1.0 && of.x[2] == 2.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_isa_and_dtype_multiplies),
        cmocka_unit_test(scratch_grows_with_the_call),
        cmocka_unit_test(norm_divides_by_the_root_mean_square),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(what_just_fits_is_taken),
        cmocka_unit_test(a_right_gradient_agrees),
        cmocka_unit_test(a_wrong_one_is_found_with_its_place),
        cmocka_unit_test(what_shows_nothing_is_refused),
        cmocka_unit_test(a_loss_that_fails_leaves_the_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
