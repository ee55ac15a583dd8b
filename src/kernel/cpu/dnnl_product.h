// kernel/cpu/dnnl_product.h: one primitive of oneDNN, the part whose C API differs by version.
//
// A product is made once and then run by any number of threads, each with its own handles and
// scratch memory.

#ifndef CY_KERNEL_CPU_DNNL_PRODUCT_H
#define CY_KERNEL_CPU_DNNL_PRODUCT_H

#include "base/status.h"
#include "kernel/cpu/gemm/dnnl.h"

#include <cyclotron/dtype.h>

#include <dnnl.h>
#include <stdbool.h>
#include <stdint.h>

// What a primitive is compiled for. Strides are in elements, between rows and between columns of
// the operand as the product reads it: a transposed operand has its strides the other way round.
typedef struct cy_dnnl_key {
    int64_t rows, cols, depth; // c [rows, cols] = a [rows, depth] b [depth, cols]
    int64_t a_row, a_col;
    int64_t b_row, b_col;
    int64_t c_row;
    int32_t dtype; // a cy_dtype of a and b
    int32_t c_dtype;
    int64_t accumulate; // 0 or 1; wide, so that the key has no gaps and compares as bytes
} cy_dnnl_key;

enum {
    CY_DNNL_A,
    CY_DNNL_B,
    CY_DNNL_C,
    CY_DNNL_SCRATCH,
    CY_DNNL_OPERANDS,
};

// Makes the primitive, and for each of `workers` workers one handle per operand (without data) in
// memories[worker * CY_DNNL_OPERANDS + operand]. On failure nothing is left behind: CY_ERR_MEMORY,
// or CY_ERR_UNSUPPORTED where the library refuses the product or has only its slow reference.
CY_MUST_CHECK cy_status cy_dnnl_make(dnnl_primitive_t *primitive, dnnl_memory_t *memories,
    size_t *scratch_bytes, dnnl_engine_t engine, const cy_dnnl_key *key, int workers);

// Holds the library to a limit; false where it uses more and can no longer be held.
bool cy_dnnl_hold(cy_dnnl_limit limit);

#endif
