// kernel/cpu/panels.h: matrix products of operands that are both packed into narrow panels, as
// Goto and van de Geijn (2008) lay them out, for instruction sets with few and short registers.
//
// A panel of left is `rows` rows of it side by side, [depth][rows], a panel of right `cols`
// columns, [depth][cols]: what a product in registers reads lies in the order in which it is read.
// Right is packed once, by all workers, for a part of c's columns and a slice of its depth that
// stay in the shared cache; a task then packs its rows of left, as many and as deep as stay in its
// second-level cache, and lets them go by panels of right, each of which stays in the first-level
// cache.
//
// Every element of c is one chain of fused multiply-adds in ascending k, from zero or from c, as
// cy_matmul_tiled promises it: results depend neither on the sizes of caches nor on the workers.

#ifndef CY_KERNEL_CPU_PANELS_H
#define CY_KERNEL_CPU_PANELS_H

#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/kernel.h"

// How far a row of left is stored beyond its end: rooms for panels have as many floats more.
#define CY_PANEL_SLACK 8

typedef struct cy_panel_ops {
    int64_t rows, cols; // of a product in registers

    // left, [panel][depth][rows], from source [rows, depth], or [depth, rows] when transposed:
    // fp32, bf16 or fp16. Rows beyond the last hold anything. Writes CY_PANEL_SLACK floats behind
    // the end.
    void (*pack_left)(float *left, cy_view source, bool transposed);

    // right, `stride` floats from panel to panel, from source [depth, cols], or [cols, depth] when
    // transposed. Columns beyond the last are zero.
    void (*pack_right)(float *right, int64_t stride, cy_view source, bool transposed);

    // c [rows, cols] (+)= left right of `depth`; `right_stride` floats from panel to panel.
    void (*multiply)(float *c, int64_t c_stride, const float *left, const float *right,
        int64_t right_stride, int64_t rows, int64_t cols, int64_t depth, bool accumulate);

    // to [rows, cols] = from, rounded once; any of fp32, bf16, fp16 on either side.
    void (*convert)(cy_view to, cy_view from);
} cy_panel_ops;

// Bytes of data that one core's caches hold; 0 where the system does not tell.
typedef struct cy_panel_caches {
    size_t l1_bytes, l2_bytes;
} cy_panel_caches;

// As cy_matmul, for fp32, bf16 and fp16 with c of the same dtype or fp32, and a depth above 0.
// Scratch: right packed, at most 8 MiB; 1.5 MiB a worker; fp32 sums, at most 16 MiB, where c is
// narrower and deep.
void cy_matmul_panels(cy_queue *queue, const cy_panel_ops *ops, cy_panel_caches caches, cy_view c,
    cy_view a, cy_view b, cy_matmul_spec spec);

// Call this only where the processor has the instruction set.
const cy_panel_ops *cy_panels_avx2(void);

#endif
