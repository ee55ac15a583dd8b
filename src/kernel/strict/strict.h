// kernel/strict/strict.h: the operators of strict mode: the same bits however the work is split.
//
// docs/equivalence.md says what is promised and proves it. Four tables compute the same bits: one
// for AVX-512, one for AVX2, one for NEON and one in portable C, compiled from the same source in
// this folder. They support fp32 and bf16; sums that a split cuts are CY_FX64.
//
// Fixed point: a term is rounded to the nearest integer * 2^exponent, ties to even, before it is
// added. A term of CY_STRICT_TERM_LIMIT units or more, or one that is a NaN, sets the queue's
// fixed_overflow. Terms are tested and not sums, because the terms are the same whatever the split,
// and so is the result of the test. A sum of at most CY_STRICT_TERMS_MAX terms stays below 2^62: it
// cannot wrap, on one rank or over all of them. A sum that is read and has reached 2^62 sets the
// flag too.

#ifndef CY_KERNEL_STRICT_STRICT_H
#define CY_KERNEL_STRICT_STRICT_H

#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/kernel.h"

#define CY_STRICT_TERM_LIMIT 0x1p40f
#define CY_STRICT_TERMS_MAX  ((int64_t)1 << 22)

// Elements of k that make one term of a product into fixed point where the call does not say.
#define CY_STRICT_BLOCK_K 32

// Sums of squares: cells [1, 4] of CY_FX64, cell j in units of 2^(exponent + 28 j), each below 2^62
// for up to 2^34 elements. A square is cut off below 2^exponent; one of 2^(exponent + 112) or more
// sets fixed_overflow.
#define CY_STRICT_SQUARE_CELLS 4
#define CY_STRICT_SQUARE_BITS  28

// Each replaces the slots of a table that holds the reference; see kernel/cpu/cpu.h.
void cy_strict_portable_override(cy_kernels *table);
void cy_strict_avx2_override(cy_kernels *table);
void cy_strict_avx512_override(cy_kernels *table);
void cy_strict_neon_override(cy_kernels *table);

// Blocks of products in portable C.
const cy_microkernel *cy_microkernel_portable(void);

#endif
