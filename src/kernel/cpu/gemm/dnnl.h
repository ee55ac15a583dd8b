// kernel/cpu/gemm/dnnl.h: matrix products through oneDNN, single-threaded, on tiles that our pool
// hands out.
//
// The context is per rank and lives in cy_cpu_state. It owns the engine, one stream and one set of
// memory handles per worker, and the primitives made so far; a primitive is made by the rank's own
// thread the first time a shape comes (on a dry queue already), so a training step makes none.
// Tiles depend on the shape alone, k is never split, so results do not depend on the number of
// workers. oneDNN's own OpenMP runtime is held to one thread for the length of each call and left
// as it was found: no team is ever made, so none can spin.

#ifndef CY_KERNEL_CPU_GEMM_DNNL_H
#define CY_KERNEL_CPU_GEMM_DNNL_H

#include "kernel/kernel.h"

typedef struct cy_dnnl cy_dnnl;

// The most that the library may use.
typedef enum cy_dnnl_limit {
    CY_DNNL_ANY,
    CY_DNNL_AVX512,
    CY_DNNL_AVX512_BF16,
    CY_DNNL_AMX,
} cy_dnnl_limit;

// Asks the library, by making a small product of each kind, what it computes on this processor.
// A limit holds for the process and from its first use of the library on (then it also takes the
// place of ONEDNN_MAX_CPU_ISA): where the library already uses more, as where it has no engine at
// all, the answer is CY_ERR_UNSUPPORTED. CY_DNNL_ANY leaves it as it is. Any thread may call this.
CY_MUST_CHECK cy_status cy_dnnl_open(cy_dnnl **dnnl, int workers, cy_dnnl_limit limit);
void cy_dnnl_close(cy_dnnl *dnnl);

// What the library uses at most in this process, in its own words: "avx512_core_amx".
const char *cy_dnnl_isa(void);

// Primitives made so far: a test sees that a second step makes none.
int64_t cy_dnnl_primitives(const cy_dnnl *dnnl);

// Tiles that the library said it could not run, although it had made their primitive.
int64_t cy_dnnl_failed_tiles(const cy_dnnl *dnnl);

// Whether the library made a small product of this kind when it was opened: operands of `dtype`, c
// of `c_dtype`. A 16-bit c that accumulates is not asked for: it would round twice.
bool cy_dnnl_supports(const cy_dnnl *dnnl, cy_dtype dtype, cy_dtype c_dtype, cy_matmul_spec spec);

// What the library does not take, and a shape that it refuses, are computed by the product of our
// own in cy_cpu_state. A refusal is remembered, so a dry queue and a real one take the same memory.
// A tile that fails when it runs is computed by the portable product, which needs no memory.
cy_matmul_fn cy_matmul_dnnl;

#endif
