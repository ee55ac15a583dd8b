// kernel/cpu/gemm/matmul.h: matrix products: of this library, for processors with AVX2 or NEON and
// up, in blocks or in panels; and of oneDNN.
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
void cy_matmul_blocks(cy_queue *queue, const cy_microkernel *wide, const cy_microkernel *narrow,
    cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

// The same without the special case of a few rows: an element of c is one chain of fused
// multiply-adds in ascending k, from zero or from c, however many rows the call has.
void cy_matmul_tiled(cy_queue *queue, const cy_microkernel *wide, const cy_microkernel *narrow,
    cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

// c (+)= a b^T for at most CY_MATMUL_FEW rows of a: memory's bandwidth is the bound, and b is not
// packed for it. Same dtypes. Of the spec it reads accumulate and next.
#define CY_MATMUL_FEW 4
void cy_matmul_few(cy_queue *queue, const cy_microkernel *ops, cy_view c, cy_view a, cy_view b,
    cy_matmul_spec spec);

// Operators of the table, by instruction set. With tile registers, products in fp32 and fp16 with
// at least this many rows of c split their operands into three parts of bf16 (avx512/pack.c).
// Products with fewer rows would not repay the packing and use fused multiply-adds of fp32.
#define CY_MATMUL_SPLIT_ROWS 32
cy_matmul_fn cy_matmul_avx2, cy_matmul_avx512, cy_matmul_avx512_bf16, cy_matmul_amx, cy_matmul_neon;

// ---- tiles: how a product is cut into tasks
//
// A pure function of the shape: never of the number of workers, so results are the same whatever
// their number is. Tasks are numbered down the rows of c within one column of tiles, so that
// workers that run at the same time share the tile of b that is in the shared cache.

typedef struct cy_tiles {
    int64_t rows, cols;           // of one tile; the last ones may be smaller
    int64_t row_count, col_count; // of tiles
} cy_tiles;

typedef struct cy_tile {
    int64_t row, rows; // rows [row, row + rows) of c
    int64_t col, cols;
} cy_tile;

// Tiles of at most rows_max x cols_max, multiples of 32 x 64 where there is more than one. Halves
// them until there are at least `wanted`, so that the last ones to finish leave little idle time,
// but not below 64 x 128: below that the product's own overhead weighs more. `keep_rows` halves
// columns as long as it can: for callers that pack b again in every row of tiles.
cy_tiles cy_tiles_cut(
    int64_t rows, int64_t cols, int64_t rows_max, int64_t cols_max, int64_t wanted, bool keep_rows);

int64_t cy_tiles_count(const cy_tiles *tiles);

// Tile number `index` of a product of `rows` x `cols`.
cy_tile cy_tiles_at(const cy_tiles *tiles, int64_t index, int64_t rows, int64_t cols);

// ---- products of panels
//
// Operands that are both packed into narrow panels, as Goto and van de Geijn (2008) lay them out,
// for instruction sets with few and short registers.
//
// A panel of left is `rows` rows of it, [depth][rows], a panel of right `cols` columns,
// [depth][cols], so that a product in registers reads both in the order in which they lie. All
// workers pack right once for a part of c's columns and a slice of its depth that stay in the
// shared cache. A task then packs as many of its rows of left, and as deep, as stay in L2, and
// multiplies them by one panel of right after the other, each of which stays in L1.
//
// Every element of c is one chain of fused multiply-adds in ascending k, from zero or from c, as
// cy_matmul_tiled promises it: results depend neither on the sizes of caches nor on the workers.

// How many floats beyond its end a packed left may be written; its memory has as many more.
#define CY_PANEL_SLACK 8

typedef struct cy_panel_ops {
    int64_t rows, cols; // of a product in registers

    // left, [panel][depth][rows], from source [rows, depth], or [depth, rows] when transposed:
    // fp32, bf16 or fp16. Rows beyond the last hold anything. Writes up to CY_PANEL_SLACK floats
    // beyond the end.
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

// Bytes of data that one core's caches hold; 0 where the system does not report it.
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

// ---- products through oneDNN, single-threaded, on tiles that our pool hands out
//
// The context is per rank and lives in cy_cpu_state. It owns the engine, one stream and one set of
// memory handles per worker, and the primitives made so far; a primitive is made by the rank's own
// thread the first time a shape comes (on a dry queue already), so a training step makes none.
// Tiles depend on the shape alone and k is never split, so results do not depend on the number of
// workers. oneDNN's own OpenMP runtime is held to one thread for the length of each call and left
// as it was found: no team is ever made, so none can spin.

typedef struct cy_dnnl cy_dnnl;

// The most that the library may use.
typedef enum cy_dnnl_limit {
    CY_DNNL_ANY,
    CY_DNNL_AVX512,
    CY_DNNL_AVX512_BF16,
    CY_DNNL_AMX,
} cy_dnnl_limit;

// Finds out what the library computes on this processor by making a small product of each kind. A
// limit holds for the process from its first use of the library on, and replaces
// ONEDNN_MAX_CPU_ISA. Returns CY_ERR_UNSUPPORTED where the library already uses more, or has no
// engine. CY_DNNL_ANY sets no limit. Any thread may call this.
CY_MUST_CHECK cy_status cy_dnnl_open(cy_dnnl **dnnl, int workers, cy_dnnl_limit limit);
void cy_dnnl_close(cy_dnnl *dnnl);

// The highest instruction set that the library uses in this process, as it names it:
// "avx512_core_amx".
const char *cy_dnnl_isa(void);

// Primitives made so far, for a test that a second step makes none.
int64_t cy_dnnl_primitives(const cy_dnnl *dnnl);

// Tiles that the library said it could not run, although it had made their primitive.
int64_t cy_dnnl_failed_tiles(const cy_dnnl *dnnl);

// Whether the library made a small product of this kind when it was opened: operands of `dtype`, c
// of `c_dtype`. A 16-bit c that accumulates is not asked for: it would round twice.
bool cy_dnnl_supports(const cy_dnnl *dnnl, cy_dtype dtype, cy_dtype c_dtype, cy_matmul_spec spec);

// The product of cy_cpu_state computes what the library does not support and the shapes that it
// refuses. A refusal is remembered, so a dry queue and a real one take the same memory. The
// portable product, which needs no memory, computes a tile that fails when it runs.
cy_matmul_fn cy_matmul_dnnl;

#endif
