// kernel/cpu/cpu.h: what the tuned kernels of one rank keep between calls, and the functions that
// fill the table of a processor.
//
// Each override function replaces the slots of `table` that it does better and leaves the others
// alone. Operators call the reference for the dtypes that they do not support. kernel/dispatch.c
// decides which functions are called: one that is named for an instruction set must not run on a
// processor without that set.

#ifndef CY_KERNEL_CPU_CPU_H
#define CY_KERNEL_CPU_CPU_H

#include "base/platform.h"
#include "kernel/cpu/attention/attention.h"
#include "kernel/cpu/gemm/matmul.h"

// queue->kernel_state of an open queue.
typedef struct cy_cpu_state {
    cy_cpu cpu;
    cy_matmul_fn *product;      // this library's own products, or the reference
    cy_attention_ops attention; // empty where the choice is the reference table
    cy_dnnl *dnnl;              // owned; NULL where the build or the choice has none
} cy_cpu_state;

// The microkernels and rows that were chosen for a queue when its kernels were opened.
static inline const cy_attention_ops *cy_flash_ops(const cy_queue *queue)
{
    const cy_cpu_state *state = queue->kernel_state;
    return &state->attention;
}

// Everything that is neither a product nor attention.
void cy_cpu_avx2_override(cy_kernels *table);
void cy_cpu_avx512_override(cy_kernels *table);
void cy_cpu_neon_override(cy_kernels *table);

// Attention, computed with the microkernels and rows that queue->kernel_state holds.
void cy_cpu_attention_override(cy_kernels *table);

#endif
