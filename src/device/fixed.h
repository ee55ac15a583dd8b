// device/fixed.h: one sum of fixed point: its unit, how its terms are cut, and how large they were.
//
// Strict mode keeps what a split cuts in CY_FX64. The exponent of a sum must be chosen before its
// terms are known, so it follows from the terms of the step before; kernels note the largest.
// Read-only while a step runs, except for what kernels note.

#ifndef CY_DEVICE_FIXED_H
#define CY_DEVICE_FIXED_H

#include "device/view.h"

typedef struct cy_fixed {
    int exponent;             // the unit is 2^exponent
    int64_t block_k;          // elements of k in a term of a product into it; see cy_matmul_spec
    _Atomic uint32_t largest; // size of the largest term so far, in units, as the bits of an fp32
} cy_fixed;

// `view` of CY_FX64 as part of a sum.
static inline cy_view cy_fixed_view(cy_fixed *fixed, cy_view view)
{
    view.exponent = fixed->exponent;
    view.sum = fixed;
    return view;
}

// A new matrix of a sum from an arena; its content is undefined.
static inline cy_view cy_fixed_alloc(cy_fixed *fixed, cy_arena *arena, int64_t rows, int64_t cols)
{
    return cy_fixed_view(fixed, cy_view_alloc(arena, CY_FX64, rows, cols));
}

#endif
