// kernel/cpu/cpu.h: how the table of a processor is put together.
//
// Each function replaces the slots of `table` that it does better and leaves the others alone. It
// keeps the replaced table's operators for the dtypes it does not serve: those go to
// cy_kernels_ref(). Which functions may be called is decided by who knows the processor: a function
// named for an instruction set must not run where that set is missing.

#ifndef CY_KERNEL_CPU_CPU_H
#define CY_KERNEL_CPU_CPU_H

#include "kernel/kernel.h"

// Everything that is neither a product nor attention.
void cy_cpu_avx2_override(cy_kernels *table);
void cy_cpu_avx512_override(cy_kernels *table);
void cy_cpu_neon_override(cy_kernels *table);

// Attention, computed with the blocks and rows that queue->kernel_state holds.
void cy_cpu_attention_override(cy_kernels *table);

#endif
