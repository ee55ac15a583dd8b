// kernel/cpu/state.h: what the tuned kernels of one rank keep between calls: queue->kernel_state.

#ifndef CY_KERNEL_CPU_STATE_H
#define CY_KERNEL_CPU_STATE_H

#include "base/cpu.h"
#include "kernel/cpu/attention/attention.h"
#include "kernel/cpu/gemm/dnnl.h"

typedef struct cy_cpu_state {
    cy_cpu cpu;
    void (*product)(
        cy_queue *, cy_view, cy_view, cy_view, cy_matmul_spec); // of our own, or portable
    cy_attention_ops attention; // empty where the choice is the portable table
    cy_dnnl *dnnl;              // owned; NULL where the build or the choice has none
} cy_cpu_state;

#endif
