// Compares gradients with central differences of fourth order:
// (8 (f(h) - f(-h)) - (f(2 h) - f(-2 h))) / (12 h).

#include "base/status.h"

#include <cyclotron/gradient.h>

#include <math.h>
#include <stdbool.h>

static double *at(cy_matrix matrix, int64_t row, int64_t col)
{
    return (double *)matrix.data + row * matrix.stride + col;
}

static cy_status check_matrix(const char *name, const char *part, cy_matrix matrix)
{
    if (matrix.data == NULL || matrix.dtype != CY_F64 || matrix.rows < 1 || matrix.cols < 1 ||
        (matrix.stride < matrix.cols && matrix.rows > 1)) {
        return CY_FAIL(CY_ERR_REQUEST,
            "the %s of %s is [%lld, %lld] of %s at %p: a matrix of fp64 is wanted", part, name,
            (long long)matrix.rows, (long long)matrix.cols, cy_dtype_name(matrix.dtype),
            matrix.data);
    }
    return CY_OK;
}

static cy_status check_tensor(const cy_gradient_tensor *tensor)
{
    const cy_matrix value = tensor->value, gradient = tensor->gradient;
    CY_TRY(check_matrix(tensor->name, "value", value));
    CY_TRY(check_matrix(tensor->name, "gradient", gradient));
    if (value.rows != gradient.rows || value.cols != gradient.cols) {
        return CY_FAIL(CY_ERR_REQUEST, "%s is [%lld, %lld], its gradient [%lld, %lld]",
            tensor->name, (long long)value.rows, (long long)value.cols, (long long)gradient.rows,
            (long long)gradient.cols);
    }
    return CY_OK;
}

static double largest_of(cy_matrix matrix)
{
    double largest = 0.0;
    for (int64_t row = 0; row < matrix.rows; row++) {
        for (int64_t col = 0; col < matrix.cols; col++)
            largest = fmax(largest, fabs(*at(matrix, row, col)));
    }
    return largest;
}

// *difference is d loss / d *value; the value is put back.
static cy_status differentiate(
    double *difference, const cy_gradient_problem *problem, double *value, double step)
{
    static const double steps[4] = {-2.0, -1.0, 1.0, 2.0};
    const double kept = *value;
    double loss[4] = {0};
    cy_status status = CY_OK;
    for (int i = 0; i < 4 && status == CY_OK; i++) {
        *value = kept + steps[i] * step;
        status = problem->loss(problem->context, &loss[i]);
    }
    *value = kept;
    if (status != CY_OK) return status;
    *difference = (8.0 * (loss[2] - loss[1]) - (loss[3] - loss[0])) / (12.0 * step);
    return CY_OK;
}

static cy_status check(cy_gradient_report *report, const cy_gradient_problem *problem,
    const cy_gradient_tensor *tensor)
{
    const double step = problem->step > 0 ? problem->step : 2e-3;
    const double largest = largest_of(tensor->gradient);
    bool all_zero = largest == 0.0;
    for (int64_t row = 0; row < tensor->value.rows; row++) {
        for (int64_t col = 0; col < tensor->value.cols; col++) {
            const double gradient = *at(tensor->gradient, row, col);
            double difference = 0.0;
            CY_TRY(differentiate(&difference, problem, at(tensor->value, row, col), step));
            all_zero = all_zero && difference == 0.0;
            const double scale = fmax(fabs(difference), 0.1 * largest);
            const double off = gradient == difference ? 0.0 : fabs(gradient - difference) / scale;
            // A NaN counts as the largest error.
            if (report->tensor != NULL && (off <= report->worst || isnan(report->worst))) continue;
            *report = (cy_gradient_report){.worst = off,
                .tensor = tensor->name,
                .row = row,
                .col = col,
                .gradient = gradient,
                .difference = difference};
        }
    }
    if (!all_zero) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST,
        "%s: gradient and differences are zero everywhere, which shows nothing", tensor->name);
}

cy_status cy_gradient_check(cy_gradient_report *report, const cy_gradient_problem *problem)
{
    if (problem->tensor_count < 1) return CY_FAIL(CY_ERR_REQUEST, "no tensor to check");
    for (int i = 0; i < problem->tensor_count; i++)
        CY_TRY(check_tensor(&problem->tensors[i]));
    cy_gradient_report found = {0};
    for (int i = 0; i < problem->tensor_count; i++)
        CY_TRY(check(&found, problem, &problem->tensors[i]));
    found.agrees = found.worst <= (problem->tolerance > 0 ? problem->tolerance : 1e-6);
    *report = found;
    return CY_OK;
}
