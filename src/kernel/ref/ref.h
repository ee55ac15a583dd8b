// kernel/ref/ref.h: the reference operators, which define what is correct, and access to one
// element of a view of any dtype as a double.
//
// The reference operators read everything as double, compute in double and round once when they
// store; kernel.h says what each computes. They take no scratch memory and do nothing on a dry
// queue. Tuned tables call them for the dtypes that they do not support themselves. Rounding a
// double to 16 bits, without a second rounding on the way, is done here.
//
// Fixed point: what is added to a CY_FX64 view is rounded to the nearest integer * 2^exponent, one
// rounding for each term, so that the sum does not depend on the order of the terms. A term or a
// sum of 2^62 units or more has left the head room, and sets the queue's flag fixed_overflow.

#ifndef CY_KERNEL_REF_REF_H
#define CY_KERNEL_REF_REF_H

#include "base/numbers.h"
#include "kernel/kernel.h"

#include <math.h>

// ---- the operators

#define CY_DECLARE_REFERENCE(operator) cy_##operator##_fn cy_ref_##operator;
CY_OPERATORS(CY_DECLARE_REFERENCE)
#undef CY_DECLARE_REFERENCE

// ---- elements

#define CY_FIXED_LIMIT ((int64_t)1 << 62)

// Rounds to odd: a later rounding to fewer bits then gives what one rounding would have given.
static inline float cy_ref_f32_odd(double x)
{
    const float near = (float)x;
    if ((double)near == x || isnan(x) || isinf(x)) return near;
    uint32_t bits = cy_f32_bits(near);
    if (fabs((double)near) > fabs(x)) bits--; // towards zero first
    return cy_f32_from_bits(bits | 1u);
}

static inline int64_t cy_ref_to_fixed(cy_queue *queue, double x, int exponent)
{
    const double scaled = ldexp(x, -exponent);
    if (!(fabs(scaled) < (double)CY_FIXED_LIMIT)) { // also a NaN
        cy_queue_note_overflow(queue);
        return 0;
    }
    return llrint(scaled); // to nearest, ties to even
}

static inline int64_t cy_ref_fixed_sum(cy_queue *queue, int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum) || sum >= CY_FIXED_LIMIT || sum <= -CY_FIXED_LIMIT) {
        cy_queue_note_overflow(queue);
    }
    return sum;
}

static inline double cy_ref_load(cy_view view, int64_t row, int64_t col)
{
    const int64_t i = row * view.stride + col;
    switch (view.dtype) {
    case CY_F64:
        return ((const double *)view.data)[i];
    case CY_F32:
        return (double)((const float *)view.data)[i];
    case CY_BF16:
        return (double)cy_bf16_to_f32(((const cy_bf16 *)view.data)[i]);
    case CY_F16:
        return (double)cy_f16_to_f32(((const cy_f16 *)view.data)[i]);
    case CY_FX64:
        return ldexp((double)((const int64_t *)view.data)[i], view.exponent);
    case CY_I32:
    case CY_I64:
    case CY_U8:
        break;
    }
    return (double)NAN; // the wrappers let no other dtype in
}

static inline void cy_ref_store(cy_queue *queue, cy_view view, int64_t row, int64_t col, double x)
{
    const int64_t i = row * view.stride + col;
    switch (view.dtype) {
    case CY_F64:
        ((double *)view.data)[i] = x;
        break;
    case CY_F32:
        ((float *)view.data)[i] = (float)x;
        break;
    case CY_BF16:
        ((cy_bf16 *)view.data)[i] = cy_bf16_from_f32(cy_ref_f32_odd(x));
        break;
    case CY_F16:
        ((cy_f16 *)view.data)[i] = cy_f16_from_f32(cy_ref_f32_odd(x));
        break;
    case CY_FX64:
        ((int64_t *)view.data)[i] = cy_ref_to_fixed(queue, x, view.exponent);
        break;
    case CY_I32:
    case CY_I64:
    case CY_U8:
        break;
    }
}

// view[row, col] += x
static inline void cy_ref_accumulate(
    cy_queue *queue, cy_view view, int64_t row, int64_t col, double x)
{
    if (view.dtype == CY_FX64) {
        int64_t *sum = (int64_t *)view.data + row * view.stride + col;
        *sum = cy_ref_fixed_sum(queue, *sum, cy_ref_to_fixed(queue, x, view.exponent));
    } else {
        cy_ref_store(queue, view, row, col, cy_ref_load(view, row, col) + x);
    }
}

// What cy_topk multiplies a gradient with. A norm that is not a number multiplies with 1.
static inline double cy_ref_topk_scale(cy_view sum_squares, double max_norm)
{
    if (cy_view_is_none(sum_squares)) return 1.0;
    const double norm = sqrt(*(const double *)sum_squares.data);
    return norm > max_norm ? max_norm / norm : 1.0;
}

// out[i] = view[row, col + i] for 0 <= i < count
static inline void cy_ref_load_row(
    double *out, cy_view view, int64_t row, int64_t col, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = cy_ref_load(view, row, col + i);
}

#endif
