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
// reduce-scattered. A group of one makes all of this disappear: dense is not a special case.
//
// The buffers belong to the caller. Matrices are [tokens, features].

#ifndef CY_PARALLEL_TENSOR_LINEAR_H
#define CY_PARALLEL_TENSOR_LINEAR_H

#include "comm/group.h"
#include "kernel/kernel.h"

typedef struct cy_tensor_parallel {
    cy_group *group; // borrowed
    bool sequence;   // tokens are split over the group outside the linear layers
    bool overlap;    // sums run under the weight-gradient product
} cy_tensor_parallel;

// Tokens that a rank holds outside the linear layers, of `tokens` inside.
int64_t cy_tensor_outside(const cy_tensor_parallel *parallel, int64_t tokens);

// *inside becomes all tokens of `outside`: the view itself where it holds them already, otherwise
// gathered into a matrix from the scratch arena, which the caller rewinds.
CY_MUST_CHECK cy_status cy_tensor_gather(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view *inside, cy_view outside);

// A matrix of all tokens whose sum over the group `outside` is to become: `outside` itself where no
// scattering follows, otherwise from the scratch arena.
cy_view cy_tensor_partial(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view outside);

// Starts the sum of `partial` (from cy_tensor_partial) into `outside`; cy_group_wait ends it.
CY_MUST_CHECK cy_status cy_tensor_start_sum(const cy_tensor_parallel *parallel, cy_queue *queue,
    cy_request *request, cy_view outside, cy_view partial);

// y [outside tokens, out] = sum over the group of x [t, in_local] weight [out, in_local]^T.
CY_MUST_CHECK cy_status cy_row_linear_forward(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view y, cy_view x, cy_view weight);

// y [t, out_local] = x [t, in] weight [out_local, in]^T + bias. x holds all tokens.
void cy_column_linear_forward(cy_queue *queue, cy_view y, cy_view x, cy_view weight, cy_view bias);

// dx [outside tokens, in] = sum over the group of dy [t, out_local] weight. Where `dweight` is
// given, it adds dy^T x [t, in] while the sum is under way; `dbias` likewise.
CY_MUST_CHECK cy_status cy_column_linear_backward(const cy_tensor_parallel *parallel,
    cy_queue *queue, cy_view dx, cy_view dweight, cy_view dbias, cy_view dy, cy_view x,
    cy_view weight);

// weight gradient alone: dweight [out, in] adds dy [t, out]^T x [t, in], dbias the rows of dy.
void cy_linear_weight_gradient(
    cy_queue *queue, cy_view dweight, cy_view dbias, cy_view dy, cy_view x);

#endif
