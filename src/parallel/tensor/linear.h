// parallel/tensor/linear.h: linear layers split over the tensor-parallel group (Shoeybi et al.,
// "Megatron-LM", 2019), with the sequence split outside them where asked for (Korthikanti et al.,
// "Reducing activation recomputation", 2022).
//
// Column-parallel: y = x W^T with the rows of W (output features) split. Forward needs no message;
// backward sums dx over the group. Row-parallel: the columns of W (input features) split; forward
// sums y over the group, backward needs no message.
//
// Without sequence parallelism the activations outside are whole on every rank and the sums are
// all-reduces. With it each rank holds 1/size of the tokens outside: inputs are gathered, sums are
// reduce-scattered, in pieces that travel under the products (pieces.h). A group of one makes all
// of this disappear: dense is not a special case.
//
// The buffers belong to the caller. Matrices are [tokens, features].

#ifndef CY_PARALLEL_TENSOR_LINEAR_H
#define CY_PARALLEL_TENSOR_LINEAR_H

#include "kernel/kernel.h"
#include "parallel/tensor/pieces.h"

// y [outside tokens, out] = sum over the group of x [t, in_local] weight [out, in_local]^T; `fixed`
// as in cy_tensor_sum_start.
CY_MUST_CHECK cy_status cy_row_linear_forward(const cy_tensor_parallel *parallel, cy_queue *queue,
    cy_view y, cy_view x, cy_view weight, cy_fixed *fixed);

// dx [t, in_local] = dy weight, of dy [t, out] that is being gathered.
CY_MUST_CHECK cy_status cy_row_linear_backward_input(
    cy_queue *queue, cy_view dx, cy_tensor_gathering *dy, cy_view weight);

// y [t, out_local] = x [t, in] weight [out_local, in]^T + bias. x holds all tokens.
void cy_column_linear_forward(cy_queue *queue, cy_view y, cy_view x, cy_view weight, cy_view bias);

// The same of x [outside tokens, in], which is gathered into `x_all` (from cy_tensor_inside, or
// kept).
CY_MUST_CHECK cy_status cy_column_linear_forward_outside(const cy_tensor_parallel *parallel,
    cy_queue *queue, cy_view y, cy_view x_all, cy_view x, cy_view weight, cy_view bias);

// Where the gradients of a linear layer go; none: nowhere.
typedef struct cy_linear_gradients {
    cy_view weight; // [out, in]
    cy_view bias;   // [1, out], always added to
    bool empty;     // `weight` holds nothing yet and is written instead of added to
} cy_linear_gradients;

// dx [outside tokens, in] = sum over the group of dy [t, out_local] weight. Where `to` has a
// weight, dy^T x [t, in] is made while the sum is under way, and `x` (all its tokens, which may
// still be on their way) is waited for before; a bias likewise. `fixed` as above, of dx.
CY_MUST_CHECK cy_status cy_column_linear_backward(const cy_tensor_parallel *parallel,
    cy_queue *queue, cy_view dx, const cy_linear_gradients *to, cy_view dy, cy_tensor_gathering *x,
    cy_view weight, cy_fixed *fixed);

// Those gradients alone: dy [t, out]^T x [t, in], and the sum of dy's rows.
void cy_linear_weight_gradient(
    cy_queue *queue, const cy_linear_gradients *to, cy_view dy, cy_view x);

#endif
