// kernel/strict/matmul.h: the products of strict mode: always of fp32 numbers, bf16 is widened.
// Included by the tables of this folder only, which define its vectors.
//
// Into fp32 or bf16 an element of c is one chain of fused multiply-adds over all of k, in ascending
// order, rounded to c's dtype at the end: kernel/cpu/gemm/matmul.c with fp32 blocks. Into fixed
// point, k is cut in blocks of block_k from its start; a block's chain begins at zero and is one
// term.

#ifndef CY_KERNEL_STRICT_MATMUL_H
#define CY_KERNEL_STRICT_MATMUL_H

#include "kernel/cpu/gemm/matmul.h"
#include "kernel/strict/fixed.h"

#define FIXED_ROWS      INT64_C(128) // at most, of one call of multiply_fixed
#define FIXED_PACKED    96           // rows of left packed at a time: a multiple of FIXED_MICRO
#define FIXED_DEPTH     512          // of a packed slice at least: each slice passes over c once
#define FIXED_TILE_ROWS 384          // of c that one task makes
#define FIXED_TILE_COLS 512

#if defined(__AVX512F__)
#define STRICT_BLOCK cy_microkernel_avx512
#elif defined(__AVX2__)
#define STRICT_BLOCK cy_microkernel_avx2
#elif defined(STRICT_NEON)
#define STRICT_BLOCK cy_microkernel_neon
#else
#define STRICT_BLOCK cy_microkernel_portable
#endif

// What one call of multiply_fixed works on: c [rows, cols] += left [rows, depth] right, packed.
typedef struct fixed_product {
    int64_t *c;
    int64_t c_stride;
    const float *left;
    int64_t left_stride;
    const float *right; // panels of CY_MICROKERNEL_COLS columns
    int64_t rows, cols, depth;
    int64_t block_k;
    float factor; // units in 1
} fixed_product;

#ifdef __AVX512F__

#define FIXED_MICRO 6 // rows by four vectors: 24 accumulators of 32 registers

// Adds the terms of a block's sums to one row of c, which has `cols` columns left.
FORCE_INLINE void fixed_terms(
    int64_t *c, const vec *sum, vec factor, int64_t cols, const int64_t vectors, term_sizes *sizes)
{
    for (int64_t j = 0; j < vectors; j++) {
        const vec term = vec_mul(sum[j], factor);
        if (cols >= vectors * LANES) {
            fixed_add_all(c + j * LANES, term, sizes);
        } else if (cols > j * LANES) {
            fixed_add(c + j * LANES, term, cols - j * LANES, sizes);
        }
    }
}

// Rows [row, row + rows) of c by one panel, or by two. The block's sums never leave the registers
// before they are terms. rows and vectors are constants wherever this is inlined.
FORCE_INLINE void fixed_micro(const fixed_product *of, int64_t row, int64_t col, const int rows,
    const int64_t vectors, term_sizes *sizes)
{
    const int64_t cols = of->cols - col, stride = of->left_stride;
    const int64_t panel = of->depth * CY_MICROKERNEL_COLS; // from one panel to the next
    const vec factor = vec_all(of->factor);
    const float *left = of->left + row * stride, *upper = left + 3 * stride;
    const float *right = of->right + col * of->depth;
    for (int64_t k = 0; k < of->depth; k += of->block_k) {
        const int64_t steps = of->block_k < of->depth - k ? of->block_k : of->depth - k;
        vec sum[FIXED_MICRO][4];
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < vectors; j++)
                sum[i][j] = vec_all(0.0f);
        }
        for (int64_t p = 0; p < steps; p++) {
            vec b[4];
            for (int64_t j = 0; j < vectors; j++)
                b[j] = _mm512_loadu_ps(right + j / 2 * panel + j % 2 * LANES);
            for (int i = 0; i < rows; i++) {
                const vec a = vec_all(i < 3 ? left[i * stride] : upper[(i - 3) * stride]);
                for (int j = 0; j < vectors; j++)
                    sum[i][j] = vec_fma(a, b[j], sum[i][j]);
            }
            left++;
            upper++;
            right += CY_MICROKERNEL_COLS;
        }
        for (int i = 0; i < rows; i++) {
            fixed_terms(
                of->c + (row + i) * of->c_stride + col, sum[i], factor, cols, vectors, sizes);
        }
    }
}

#define FIXED_CASE(count)                                                                          \
    case count:                                                                                    \
        fixed_micro(of, row, col, count, vectors, sizes);                                          \
        break

// All rows of c by one panel or two.
FORCE_INLINE void fixed_panels(
    const fixed_product *of, int64_t col, const int64_t vectors, term_sizes *sizes)
{
    for (int64_t row = 0; row < of->rows; row += FIXED_MICRO) {
        switch (of->rows - row) {
            FIXED_CASE(1);
            FIXED_CASE(2);
            FIXED_CASE(3);
            FIXED_CASE(4);
            FIXED_CASE(5);
        default:
            fixed_micro(of, row, col, FIXED_MICRO, vectors, sizes);
        }
    }
}

static void multiply_fixed(const fixed_product *of, term_sizes *sizes)
{
    term_sizes seen = *sizes;
    for (int64_t col = 0; col < of->cols; col += 2 * CY_MICROKERNEL_COLS) {
        if (of->cols - col > CY_MICROKERNEL_COLS) {
            fixed_panels(of, col, 4, &seen);
        } else {
            fixed_panels(of, col, 2, &seen);
        }
    }
    *sizes = seen;
}

#else

static void multiply_fixed(const fixed_product *of, term_sizes *sizes)
{
    float terms[FIXED_ROWS * CY_MICROKERNEL_COLS];
    CY_DEBUG_ASSERT(of->rows <= FIXED_ROWS);
    for (int64_t col = 0; col < of->cols; col += CY_MICROKERNEL_COLS) {
        const int64_t cols =
            of->cols - col < CY_MICROKERNEL_COLS ? of->cols - col : CY_MICROKERNEL_COLS;
        for (int64_t k = 0; k < of->depth; k += of->block_k) {
            const int64_t depth = of->block_k < of->depth - k ? of->block_k : of->depth - k;
            STRICT_BLOCK()->multiply(terms, CY_MICROKERNEL_COLS, of->left + k, of->left_stride,
                of->right + col * of->depth + k * CY_MICROKERNEL_COLS, of->rows, cols, depth,
                false);
            for (int64_t i = 0; i < of->rows; i++) {
                fixed_add_row(of->c + i * of->c_stride + col, terms + i * CY_MICROKERNEL_COLS,
                    CY_F32, 0, cols, of->factor, sizes);
            }
        }
    }
}

#endif

typedef struct fixed_call {
    cy_queue *queue;
    cy_view c, a, b;
    cy_matmul_spec spec;
    int64_t depth, slice, block_k;
    cy_tiles tiles;
    char *scratch;
    size_t left_bytes, right_bytes; // per worker
} fixed_call;

static cy_view slice_of(
    cy_view view, bool depth_is_rows, int64_t outer, int64_t outers, int64_t k, int64_t depth)
{
    return depth_is_rows ? cy_view_cols(cy_view_rows(view, k, depth), outer, outers)
                         : cy_view_cols(cy_view_rows(view, outer, outers), k, depth);
}

static void clear_tile(const fixed_call *of, const cy_tile *tile)
{
    for (int64_t i = 0; i < tile->rows; i++) {
        memset(fixed_at(of->c, tile->row + i, tile->col), 0, (size_t)tile->cols * sizeof(int64_t));
    }
}

static void fixed_tile(void *context, int64_t number, int worker)
{
    const fixed_call *of = context;
    const cy_microkernel *ops = STRICT_BLOCK();
    const cy_tile tile = cy_tiles_at(&of->tiles, number, of->c.rows, of->c.cols);
    char *right = of->scratch + (size_t)worker * (of->left_bytes + of->right_bytes);
    char *left = right + of->right_bytes;
    term_sizes sizes = no_terms();
    if (!of->spec.accumulate) clear_tile(of, &tile);
    for (int64_t k = 0; k < of->depth; k += of->slice) {
        const int64_t depth = of->depth - k < of->slice ? of->depth - k : of->slice;
        ops->pack_right(right,
            slice_of(of->b, !of->spec.transpose_b, tile.col, tile.cols, k, depth),
            of->spec.transpose_b);
        for (int64_t row = 0; row < tile.rows; row += FIXED_PACKED) {
            const int64_t rows = tile.rows - row < FIXED_PACKED ? tile.rows - row : FIXED_PACKED;
            ops->pack_left(left,
                slice_of(of->a, of->spec.transpose_a, tile.row + row, rows, k, depth),
                of->spec.transpose_a);
            const fixed_product product = {
                .c = fixed_at(of->c, tile.row + row, tile.col),
                .c_stride = of->c.stride,
                .left = (const float *)(const void *)left,
                .left_stride = depth,
                .right = (const float *)(const void *)right,
                .rows = rows,
                .cols = tile.cols,
                .depth = depth,
                .block_k = of->block_k,
                .factor = units_in_one(of->c),
            };
            multiply_fixed(&product, &sizes);
        }
    }
    note_terms(of->queue, of->c, sizes);
}

static int64_t block_of(cy_view c, cy_matmul_spec spec)
{
    if (spec.block_k > 0) return spec.block_k;
    return c.block_k > 0 ? c.block_k : CY_STRICT_BLOCK_K;
}

static void matmul_fixed(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    CY_ASSERT(spec.block_k >= 0);
    const cy_microkernel *ops = STRICT_BLOCK();
    fixed_call of = {
        .queue = queue,
        .c = c,
        .a = a,
        .b = b,
        .spec = spec,
        .depth = spec.transpose_a ? a.rows : a.cols,
        .block_k = block_of(c, spec),
    };
    of.slice = cy_round_up(FIXED_DEPTH, of.block_k);
    of.tiles = cy_tiles_cut(c.rows, c.cols, FIXED_TILE_ROWS, FIXED_TILE_COLS,
        INT64_C(4) * cy_queue_workers(queue), false);
    const int64_t depth = of.slice < of.depth ? of.slice : of.depth;
    of.right_bytes = cy_microkernel_right_bytes(ops, of.tiles.cols, depth);
    of.left_bytes = cy_microkernel_left_bytes(ops, FIXED_PACKED, depth);
    of.right_bytes = (size_t)cy_round_up((int64_t)of.right_bytes, CY_ARENA_ALIGN);
    of.left_bytes = (size_t)cy_round_up((int64_t)of.left_bytes, CY_ARENA_ALIGN);
    const size_t mark = cy_arena_mark(queue->scratch);
    of.scratch = cy_arena_alloc(
        queue->scratch, (of.left_bytes + of.right_bytes) * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, fixed_tile, &of, cy_tiles_count(&of.tiles));
    cy_arena_rewind(queue->scratch, mark);
}

static void strict_matmul(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    if (is_fixed(c) && supported(a)) {
        matmul_fixed(queue, c, a, b, spec);
    } else {
        cy_matmul_tiled(queue, STRICT_BLOCK(), NULL, c, a, b, spec);
    }
}

#endif
