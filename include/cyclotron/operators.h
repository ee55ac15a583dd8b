// cyclotron/operators.h: the operators that layers are made of, for a layer of one's own.
//
// They are those that training uses: the portable ones compute every dtype in double and define
// what is correct, the others are chosen for the processor. A call works on the caller's matrices,
// returns when it is done, and gives the same bits with any number of threads. All matrices of a
// call have one dtype (fp32, fp64, bf16 or fp16) unless it says otherwise; outputs overlap nothing
// else. A matrix that does not fit is CY_ERR_REQUEST with the numbers; nothing was computed then.
//
// One thread uses a cy_operators at a time; several may exist side by side.

#ifndef CYCLOTRON_OPERATORS_H
#define CYCLOTRON_OPERATORS_H

#include <cyclotron/matrix.h>

#ifdef __cplusplus
extern "C" {
#endif

// What operators work with: a table of functions for this processor, threads, scratch memory.
typedef struct cy_operators cy_operators;

// How to open them. Zero of all is the default.
typedef struct cy_operators_options {
    const char *isa; // borrowed: "auto" (and NULL), "ref" for the portable ones, or as doctor says
    int threads;     // 0: one
} cy_operators_options;

// *operators is owned by the caller. `options` may be NULL. An isa that this processor or this
// build lacks is CY_ERR_UNSUPPORTED, a name that none has CY_ERR_REQUEST.
CY_API CY_MUST_CHECK cy_status cy_operators_open(
    cy_operators **operators, const cy_operators_options *options);

// NULL is nothing to close.
CY_API void cy_operators_close(cy_operators *operators);

// The instruction set that was chosen, such as "avx512" or "ref". Static storage.
CY_API const char *cy_operators_isa(const cy_operators *operators);

// How two matrices are multiplied. Zero of all is c = a b.
typedef struct cy_product {
    int transpose_a; // a is stored [k, m]
    int transpose_b; // b is stored [n, k]
    int accumulate;  // c += a b
} cy_product;

// c [m, n] (+)= a [m, k] b [k, n]; c may be fp32 where a and b are 16-bit. Sums are in fp32 (fp64
// of fp64), in an order that follows from the shapes and the processor; one with an element that is
// not finite is infinite or a NaN. A linear layer y = x W^T with W [out, in] is three of them:
// y = x W (transpose_b), dx = dy W, and dW += dy x (transpose_a, accumulate).
CY_API CY_MUST_CHECK cy_status cy_operators_matmul(
    cy_operators *operators, cy_matrix c, cy_matrix a, cy_matrix b, cy_product product);

// y [t, h] = x [t, h] / sqrt(mean(x^2) + eps) * weight [1, h]. inv_rms [1, t], fp32 (fp64 for fp64
// data), is what the division came to and the backward pass needs. Zhang and Sennrich, "Root mean
// square layer normalization", 2019.
CY_API CY_MUST_CHECK cy_status cy_operators_norm_forward(cy_operators *operators, cy_matrix y,
    cy_matrix inv_rms, cy_matrix x, cy_matrix weight, double eps);

// dx [t, h] and dweight [1, h] are added to; dweight is fp32 (fp64 for fp64 data). dy, x [t, h],
// inv_rms and weight as in the forward pass.
CY_API CY_MUST_CHECK cy_status cy_operators_norm_backward(cy_operators *operators, cy_matrix dx,
    cy_matrix dweight, cy_matrix dy, cy_matrix x, cy_matrix inv_rms, cy_matrix weight);

#ifdef __cplusplus
}
#endif

#endif
