// kernel/cpu/gemm/matmul.h: matrix products of our own, for every processor with AVX2 or NEON at least.
//
// A task makes a tile of c: it lets rows stream by packed columns of the right operand. Where tiles
// lie below each other all of that operand is packed first, once; otherwise each task packs its own
// columns, slice by slice of depth. Depth is cut by its own length only and every element of c is
// summed in ascending depth, so results depend neither on the tiles nor on the number of workers.
// Scratch: a packed slice of both operands and fp32 sums, per worker, at most 5 MiB each, and the
// packed right operand, at most 32 MiB.

#ifndef CY_KERNEL_CPU_GEMM_MATMUL_H
#define CY_KERNEL_CPU_GEMM_MATMUL_H

#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/kernel.h"

// As cy_matmul, for fp32, bf16 and fp16 with c of the same dtype or fp32; the rest goes to the
// portable table. `narrow` serves 16-bit operands where it can take them as they are, `wide` those
// that must be widened and fp32; narrow may be NULL.
void cy_matmul_blocks(cy_queue *queue, const cy_block_ops *wide, const cy_block_ops *narrow,
    cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

// The same without the way round for a few rows: an element of c is one chain of fused
// multiply-adds in ascending k, from zero or from c, however many rows the call has.
void cy_matmul_tiled(cy_queue *queue, const cy_block_ops *wide, const cy_block_ops *narrow,
    cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

// c (+)= a b^T for at most CY_MATMUL_FEW rows of a: memory's bandwidth is the bound, and b is not
// packed for it. Same dtypes. Of the spec it reads accumulate and next.
#define CY_MATMUL_FEW 4
void cy_matmul_few(
    cy_queue *queue, const cy_block_ops *ops, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

// Operators of the table, by instruction set. With tile registers products in fp32 and fp16 of this
// many rows of c are of operands split into three parts of bf16 (avx512/split.c), which costs more
// packing than fewer rows are worth; these are fused multiply-adds of fp32.
#define CY_MATMUL_SPLIT_ROWS 32
void cy_matmul_avx2(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);
void cy_matmul_avx512(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);
void cy_matmul_avx512_bf16(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);
void cy_matmul_amx(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);
void cy_matmul_neon(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

#endif
