// kernel/dispatch.h: chooses the operators for the processor of this machine.

#ifndef CY_KERNEL_DISPATCH_H
#define CY_KERNEL_DISPATCH_H

#include "kernel/kernel.h"

// Fills `table` with the best operator of this build for this processor and sets queue->kernels and
// queue->kernel_state (owned by the queue until cy_kernels_close). queue->pool must be set. `isa`
// limits the choice: "auto", or a level: "ref", "avx2", "avx512", "avx512_bf16", "amx", "neon"; a
// level that the processor lacks is CY_ERR_UNSUPPORTED, with a hint that lists the levels it has. A
// level limits oneDNN too; if the process has already used oneDNN above the level, this library
// computes all products itself.
CY_MUST_CHECK cy_status cy_kernels_open(cy_queue *queue, cy_kernels *table, const char *isa);
void cy_kernels_close(cy_queue *queue);

// The same with the widest table of strict mode that the level supports; all of them compute the
// same bits. `isa` may also name one: "strict_portable", "strict_avx2", "strict_avx512".
CY_MUST_CHECK cy_status cy_kernels_open_strict(cy_queue *queue, cy_kernels *table, const char *isa);

// On a device that defers: queue->kernels becomes the table whose operators pack their arguments
// into launch records (deferred.c), and the open table becomes queue->direct. Elsewhere it does
// nothing. The queue is open (device/device.h).
void cy_kernels_defer(cy_queue *queue);

// The implementation that computes a product of an open table.
typedef enum cy_matmul_backend {
    CY_MATMUL_PORTABLE,
    CY_MATMUL_TUNED, // this library's own
    CY_MATMUL_DNNL,
} cy_matmul_backend;

typedef enum cy_matmul_kind {
    CY_MATMUL_FORWARD,
    CY_MATMUL_INPUT_GRADIENT,
    CY_MATMUL_WEIGHT_GRADIENT, // in fp32 sums
    CY_MATMUL_FEW_ROWS,        // one row, as in decoding
    CY_MATMUL_KINDS,
} cy_matmul_kind;

// For operands of `dtype` and of common widths; some other widths use another implementation
// (docs/products.md).
cy_matmul_backend cy_kernels_matmul_backend(
    const cy_queue *queue, cy_dtype dtype, cy_matmul_kind kind);

// Describes whether the open table uses oneDNN and the highest instruction set that oneDNN uses.
// The text is static.
const char *cy_kernels_library(const cy_queue *queue);

#define CY_MATMUL_FUNCTIONS 3

// The implementations of products in `dtype` that an open table has, the one that the table uses
// first. Returns their number.
int cy_kernels_matmuls(
    cy_matmul_fn *products[CY_MATMUL_FUNCTIONS], const cy_queue *queue, cy_dtype dtype);

// Whether the level has instructions that multiply `dtype`; otherwise operands are widened to fp32.
bool cy_kernels_has_native_matmul(const cy_queue *queue, cy_dtype dtype);

// Replaces tuned operators of an open table by ones that follow the formula step by step, for
// comparisons: `attention` takes the reference's attention (except in strict mode, which keeps its
// own), `adamw` takes cy_kernels.adamw_unfused, whose bits are the same.
void cy_kernels_use_reference(cy_kernels *table, bool attention, bool adamw);

#endif
