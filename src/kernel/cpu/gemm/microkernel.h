// kernel/cpu/gemm/microkernel.h: products of blocks that fit the caches, one set of functions per
// instruction set. Matrix products and attention are built from these and from nothing else.
//
// A product is c [rows, cols] (+)= left [rows, depth] right [depth, cols] with fp32 sums in
// ascending depth. `left` is plain row-major; `right` is packed into panels of 32 columns,
// [panel][depth / pair][32][pair], where a pair is one fp32 or two bf16 that stand side by side.
// Both have their depth padded with zeros to a multiple of depth_step, right also its columns to a
// multiple of 32. Operands that are split into three parts of bf16 have all 32 deep of the first
// part, then those of the second and of the third: rows of left are [depth / 32][3][32], panels of
// right [depth / 32][3][16][32][2]. An element of c does not depend on how rows and columns were
// cut into calls.
//
// Everything is borrowed; all functions are pure and run in any thread between enter() and leave()
// of that thread, which set up the tile registers where the instruction set has them.

#ifndef CY_KERNEL_CPU_GEMM_MICROKERNEL_H
#define CY_KERNEL_CPU_GEMM_MICROKERNEL_H

#include "base/numbers.h"
#include "device/view.h"

#define CY_MICROKERNEL_COLS INT64_C(32)

// Bytes that dot() prefetches before it uses them. Hardware prefetchers follow one ascending stream
// best, so dot() reads rows one after the other; they still start again at each page.
#define CY_DOT_AHEAD 8192

typedef struct cy_microkernel {
    const char *isa;
    cy_dtype dtype;       // that operands are multiplied in: CY_F32 or CY_BF16
    int64_t packed_bytes; // of one packed element: those of dtype, or 6 where it is split
    int64_t depth_step;
    int64_t row_block;   // rows of left that stay in L2 while packed columns stream by
    int64_t slice_depth; // of a product's slices where tiles are as wide as c; 0: they are not
    void (*enter)(void);
    void (*leave)(void);

    // left [rows, depth rounded up] with that stride, from source [rows, depth], or [depth, rows]
    // when transposed. Sources are fp32, bf16 or fp16; narrowing rounds to nearest even.
    void (*pack_left)(void *left, cy_view source, bool transposed);

    // right, from source [depth, cols], or [cols, depth] when transposed.
    void (*pack_right)(void *right, cy_view source, bool transposed);

    // left_stride in elements; depth is the padded one, above 0.
    void (*multiply)(float *c, int64_t c_stride, const void *left, int64_t left_stride,
        const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate);

    // to [rows, cols] = from, rounded once; any of fp32, bf16, fp16 on either side.
    void (*convert)(cy_view to, cy_view from);

    // to [from.cols, from.rows], `stride` elements from row to row, = from [rows, cols] transposed.
    void (*transpose)(float *to, int64_t stride, cy_view from);

    // c [rows, b.rows] = a [rows, b.cols] times b transposed, for a few rows; c and a are dense, b
    // is fp32, bf16 or fp16 and is read once from memory. `next`, unless NULL, will be read after
    // b: its first CY_DOT_AHEAD bytes are prefetched while the last of b are used.
    void (*dot)(float *c, const float *a, int64_t rows, cy_view b, const void *next);
} cy_microkernel;

// enter() and leave() of an instruction set without tile registers.
static inline void cy_microkernel_no_tiles(void)
{
}

// Bytes of a packed operand with `outer` rows (left) or columns (right).
static inline size_t cy_microkernel_left_bytes(
    const cy_microkernel *ops, int64_t rows, int64_t depth)
{
    return (size_t)(rows * cy_round_up(depth, ops->depth_step) * ops->packed_bytes);
}

static inline size_t cy_microkernel_right_bytes(
    const cy_microkernel *ops, int64_t cols, int64_t depth)
{
    return cy_microkernel_left_bytes(ops, cy_round_up(cols, CY_MICROKERNEL_COLS), depth);
}

// Whether `source` [rows, depth] can be a left operand as it lies.
static inline bool cy_microkernel_left_fits(const cy_microkernel *ops, cy_view source)
{
    return source.dtype == ops->dtype && source.cols % ops->depth_step == 0 &&
        ops->packed_bytes == (int64_t)cy_dtype_size(ops->dtype);
}

// A left operand: as it lies where that will do, otherwise packed into `packed`; *stride in
// elements.
static inline const void *cy_microkernel_left(
    const cy_microkernel *ops, void *packed, int64_t *stride, cy_view source)
{
    if (cy_microkernel_left_fits(ops, source)) {
        *stride = source.stride;
        return source.data;
    }
    ops->pack_left(packed, source, false);
    *stride = cy_round_up(source.cols, ops->depth_step);
    return packed;
}

// Call these only where the processor has the instruction set.
const cy_microkernel *cy_microkernel_avx2(void);        // fp32; bf16 and fp16 widened
const cy_microkernel *cy_microkernel_avx512(void);      // likewise
const cy_microkernel *cy_microkernel_neon(void);        // likewise
const cy_microkernel *cy_microkernel_avx512_bf16(void); // bf16
const cy_microkernel *cy_microkernel_amx(void);         // bf16
const cy_microkernel *cy_microkernel_amx_split(void);   // fp32 and half types in parts of bf16

// convert() of the AVX2 microkernel, which the panels of AVX2 use too.
void cy_convert_avx2(cy_view to, cy_view from);

#endif
