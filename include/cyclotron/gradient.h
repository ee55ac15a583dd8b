// cyclotron/gradient.h: is a backward pass right? Gradients against finite differences.
//
// Work in fp64, with values near one and shapes of a few elements: the check runs the forward pass
// four times for each element. Differences are central and of fourth order, so a right gradient
// agrees to about 1e-10 and a wrong one does not come near 1e-6.
//
// Everything is borrowed for the length of the call, which works in the caller's thread.

#ifndef CYCLOTRON_GRADIENT_H
#define CYCLOTRON_GRADIENT_H

#include <cyclotron/matrix.h>

#ifdef __cplusplus
extern "C" {
#endif

// An input or a parameter, and what the backward pass said of it.
typedef struct cy_gradient_tensor {
    const char *name;   // borrowed: for the report
    cy_matrix value;    // fp64: each element is moved in its turn, and put back
    cy_matrix gradient; // fp64, of the same shape: d loss / d value
} cy_gradient_tensor;

// What is checked.
typedef struct cy_gradient_problem {
    void *context;                                  // borrowed: for `loss`
    cy_status (*loss)(void *context, double *loss); // the forward pass, as the values are now
    const cy_gradient_tensor *tensors;              // borrowed: [tensor_count]
    int tensor_count;                               // at least 1
    double step;                                    // by which a value moves; 0: 2e-3
    double tolerance;                               // of `worst`; 0: 1e-6
} cy_gradient_problem;

// What came out, and the element that is furthest off.
typedef struct cy_gradient_report {
    int agrees;   // no element is off by more than the tolerance
    double worst; // |gradient - difference| over the larger of |difference| and a tenth of the
                  // largest gradient of its tensor
    const char *tensor; // that element's tensor (its name, borrowed),
    int64_t row;        // row,
    int64_t col;        // column,
    double gradient;    // gradient,
    double difference;  // and finite difference
} cy_gradient_report;

// Compares every element of every tensor. A gradient that does not agree is no failure: the report
// says so. It fails as `loss` does, with CY_ERR_REQUEST for matrices that do not fit, and with
// CY_ERR_REQUEST for a tensor whose gradient and differences are zero everywhere, since that would
// show nothing. *report is written on success only; values are put back in any case.
CY_API CY_MUST_CHECK cy_status cy_gradient_check(
    cy_gradient_report *report, const cy_gradient_problem *problem);

#ifdef __cplusplus
}
#endif

#endif
