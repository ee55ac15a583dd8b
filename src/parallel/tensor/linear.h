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
// reduce-scattered. Both travel in chunks under the products (overlap.h). In a group of one
// nothing travels: a dense layer is not a special case.
//
// Forward, the gradient of the input and the gradients of the weights are separate functions, so
// that a caller can compute while messages travel. A layer is views: it owns nothing, and its
// buffers belong to the caller. Matrices are [tokens, features]; t is all tokens, `outside` those
// that a rank holds outside. Functions fail when the group does, and all ranks make the same calls.

#ifndef CY_PARALLEL_TENSOR_LINEAR_H
#define CY_PARALLEL_TENSOR_LINEAR_H

#include "kernel/kernel.h"
#include "parallel/tensor/overlap.h"

// Where the gradients of a linear layer go; none: nowhere.
typedef struct cy_linear_gradients {
    cy_view weight; // [out, in]
    cy_view bias;   // [1, out], always added to
    bool empty;     // `weight` holds nothing yet and is written instead of added to
} cy_linear_gradients;

// The gradients of a linear layer that is not split: dy [t, out]^T x [t, in], and the sum of dy's
// rows.
void cy_linear_backward_weight(
    cy_queue *queue, const cy_linear_gradients *to, cy_view dy, cy_view x);

// ---- column-parallel

typedef struct cy_column_linear {
    const cy_tensor_parallel *parallel; // borrowed
    cy_view weight;                     // [out_local, in]
    cy_view bias;                       // [1, out_local], or none
    bool gather_output;                 // y has the columns of all ranks
    bool skip_bias;                     // the caller adds the bias, and makes its gradient
} cy_column_linear;

// y [rows, out_local] = x [rows, in] weight^T + bias, of any rows: no message.
void cy_column_linear_rows(const cy_column_linear *layer, cy_queue *queue, cy_view y, cy_view x);

// y [t, out_local], or [t, out] where it is gathered, of x [outside, in], which is gathered into
// `x_all` (from cy_tensor_all_tokens, or a place of its size that is kept).
CY_MUST_CHECK cy_status cy_column_linear_forward(
    const cy_column_linear *layer, cy_queue *queue, cy_view y, cy_view x_all, cy_view x);

// dx [rows, in] = dy [rows, out_local] weight, of any rows: this rank's part of the sum.
void cy_column_linear_backward_rows(
    const cy_column_linear *layer, cy_queue *queue, cy_view dx, cy_view dy);

// dx [outside, in], with which `sum` has been started, is to become the sum over the group of dy
// weight, of dy as y. On return all of it is on its way: make the gradients of the weights next,
// then call cy_tensor_reduce_finish.
CY_MUST_CHECK cy_status cy_column_linear_backward_input(
    const cy_column_linear *layer, cy_queue *queue, cy_tensor_reduce_state *sum, cy_view dy);

// The gradients of the weights, of dy as y and x [t, in], all its tokens: no message.
void cy_column_linear_backward_weight(const cy_column_linear *layer, cy_queue *queue,
    const cy_linear_gradients *to, cy_view dy, cy_view x);

// ---- row-parallel

typedef struct cy_row_linear {
    const cy_tensor_parallel *parallel; // borrowed
    cy_view weight;                     // [out, in_local]
    cy_view bias;                       // [1, out], the same on every rank, or none
    bool input_is_parallel; // x has this rank's columns; otherwise all, the same on every rank
    bool skip_bias;         // the caller adds the bias, and makes its gradient
} cy_row_linear;

// y [rows, out] = x [rows, in_local] weight^T, of any rows: this rank's part of the sum.
void cy_row_linear_rows(const cy_row_linear *layer, cy_queue *queue, cy_view y, cy_view x);

// y [outside, out] = sum over the group of x [t, in_local] weight^T, or of the own columns of x
// [t, in], + bias; `fixed` as in cy_tensor_reduce_start.
CY_MUST_CHECK cy_status cy_row_linear_forward(
    const cy_row_linear *layer, cy_queue *queue, cy_view y, cy_view x, cy_fixed *fixed);

// dx [rows, in_local] = dy [rows, out] weight, of any rows: no message.
void cy_row_linear_backward_rows(
    const cy_row_linear *layer, cy_queue *queue, cy_view dx, cy_view dy);

// dx [t, in_local], or [t, in] where x is not parallel, of dy [t, out] that is being gathered.
CY_MUST_CHECK cy_status cy_row_linear_backward_input(
    const cy_row_linear *layer, cy_queue *queue, cy_view dx, cy_tensor_gather_state *dy);

// The gradients of the weights, of dy that has been gathered and x as in forward; that of the bias
// is of the own tokens. No message.
void cy_row_linear_backward_weight(const cy_row_linear *layer, cy_queue *queue,
    const cy_linear_gradients *to, const cy_tensor_gather_state *dy, cy_view x);

#endif
