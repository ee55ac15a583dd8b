// kernel/dispatch.h: choosing the operators for the machine that runs.

#ifndef CY_KERNEL_DISPATCH_H
#define CY_KERNEL_DISPATCH_H

#include "kernel/kernel.h"

// Fills `table` with the best operator of this build for this processor and sets queue->kernels and
// queue->kernel_state (owned by the queue until cy_kernels_close). queue->pool must be set. `isa`
// limits the choice: "auto", or a level: "ref", "avx2", "avx512", "avx512_bf16", "amx", "neon"; one
// that the processor lacks is CY_ERR_UNSUPPORTED with a hint that lists those it has. A level holds
// for oneDNN too; where a process has already used that for more, all products are our own.
CY_MUST_CHECK cy_status cy_kernels_open(cy_queue *queue, cy_kernels *table, const char *isa);
void cy_kernels_close(cy_queue *queue);

// The same with the widest table of strict mode that the level has; all of them compute the same
// bits. `isa` may also name one: "strict_portable", "strict_avx2", "strict_avx512".
CY_MUST_CHECK cy_status cy_kernels_open_strict(cy_queue *queue, cy_kernels *table, const char *isa);

// Who computes a product of a table that is open.
typedef enum cy_matmul_backend {
    CY_MATMUL_PORTABLE,
    CY_MATMUL_TUNED, // tuned
    CY_MATMUL_DNNL,
} cy_matmul_backend;

typedef enum cy_matmul_kind {
    CY_MATMUL_FORWARD,
    CY_MATMUL_INPUT_GRADIENT,
    CY_MATMUL_WEIGHT_GRADIENT, // in fp32 sums
    CY_MATMUL_FEW_ROWS,        // one row, as in decoding
    CY_MATMUL_KINDS,
} cy_matmul_kind;

// For operands of `dtype` and of common widths: some others go elsewhere (docs/products.md).
cy_matmul_backend cy_kernels_matmul_backend(
    const cy_queue *queue, cy_dtype dtype, cy_matmul_kind kind);

// Whether oneDNN serves the open table and what it uses at most, in words; valid for good.
const char *cy_kernels_library(const cy_queue *queue);

typedef void (*cy_matmul_function)(
    cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

#define CY_MATMUL_FUNCTIONS 3

// The ways that an open table has for products in `dtype`, the table's own choice first. Returns
// how many.
int cy_kernels_matmuls(
    cy_matmul_function products[CY_MATMUL_FUNCTIONS], const cy_queue *queue, cy_dtype dtype);

// Whether the level has instructions that multiply `dtype`; otherwise operands are widened to fp32.
bool cy_kernels_has_native_matmul(const cy_queue *queue, cy_dtype dtype);

// Puts into an open table what follows the formula in the place of what is tuned, to compare with:
// attention of the reference, which strict mode's own already is the like of and stays, and
// cy_kernels.adamw_unfused, whose bits are the same.
void cy_kernels_use_reference(cy_kernels *table, bool attention, bool adamw);

#endif
