// parallel/tensor/layer.h: a linear layer split over the tensor-parallel group, with its
// parameters, for models that are not made of model/block.h. What happens on either side is an
// option; forward and backward of all of them equal the dense layer's.
//
//   column-parallel   x whole -> y own columns; gather_output: y whole on every rank
//   row-parallel      x own columns (input_is_parallel) or whole -> y whole, summed
//
// With sequence parallelism (parallel->sequence) the whole side holds this rank's tokens only, t /
// size of them, where it is the input of a column layer or the output of a row layer.
//
// Views are borrowed: a layer owns nothing. A layer is one rank's; all ranks of the group make the
// same calls. Fails when the group does.

#ifndef CY_PARALLEL_TENSOR_LAYER_H
#define CY_PARALLEL_TENSOR_LAYER_H

#include "parallel/tensor/linear.h"

typedef struct cy_column_layer {
    const cy_tensor_parallel *parallel;
    cy_view weight;      // [out_local, in]
    cy_view weight_grad; // [out_local, in], adds
    cy_view bias;        // [1, out_local], or none
    cy_view bias_grad;   // [1, out_local], adds; or none
    bool gather_output;  // y has the columns of all ranks
    bool skip_bias_add;  // the caller adds the bias, and its gradient
} cy_column_layer;

// y [t, out_local], or [t, out] where gathered, from x [outside tokens, in].
CY_MUST_CHECK cy_status cy_column_layer_forward(
    const cy_column_layer *layer, cy_queue *queue, cy_view y, cy_view x);

// dx as x, from dy as y and the x of forward. dy that is gathered is the same on every rank.
CY_MUST_CHECK cy_status cy_column_layer_backward(
    const cy_column_layer *layer, cy_queue *queue, cy_view dx, cy_view dy, cy_view x);

typedef struct cy_row_layer {
    const cy_tensor_parallel *parallel;
    cy_view weight;         // [out, in_local]
    cy_view weight_grad;    // [out, in_local], adds
    cy_view bias;           // [1, out], the same on every rank, or none
    cy_view bias_grad;      // [1, out], adds; of the own tokens alone with sequence parallelism
    bool input_is_parallel; // x has this rank's columns; otherwise all, the same on every rank
    bool skip_bias_add;
} cy_row_layer;

// y [outside tokens, out] from x [t, in_local], or [t, in] where it is not parallel.
CY_MUST_CHECK cy_status cy_row_layer_forward(
    const cy_row_layer *layer, cy_queue *queue, cy_view y, cy_view x);

CY_MUST_CHECK cy_status cy_row_layer_backward(
    const cy_row_layer *layer, cy_queue *queue, cy_view dx, cy_view dy, cy_view x);

#endif
