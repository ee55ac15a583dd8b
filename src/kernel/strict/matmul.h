// kernel/strict/matmul.h: products, of fp32 numbers always: bf16 is widened.
// Included by the tables of this folder only, which give it its vectors.
//
// Into fp32 or bf16 an element of c is one chain of fused multiply-adds over all of k, in ascending
// order, rounded to c's dtype at the end: kernel/cpu/matmul.c with fp32 blocks. Into fixed point, k
// is cut in blocks of block_k from its start; a block's chain begins at zero and is one term.

#ifndef CY_KERNEL_STRICT_MATMUL_H
#define CY_KERNEL_STRICT_MATMUL_H

#include "kernel/cpu/matmul.h"
#include "kernel/cpu/tiles.h"
#include "kernel/strict/fixed.h"

#define FIXED_ROWS  128 // of left that are packed at a time
#define FIXED_DEPTH 512 // of a packed slice at least: each slice passes over c once
#define FIXED_TILE  512 // columns and rows of c that one task makes

#if defined(__AVX512F__)
#define STRICT_BLOCK cy_block_avx512
#elif defined(__AVX2__)
#define STRICT_BLOCK cy_block_avx2
#else
#define STRICT_BLOCK cy_block_portable
#endif

// What one call of multiply_fixed works on: c [rows, cols] += left [rows, depth] right, packed.
typedef struct fixed_product {
    int64_t *c;
    int64_t c_stride;
    const float *left;
    int64_t left_stride;
    const float *right; // panels of CY_BLOCK_COLS columns
    int64_t rows, cols, depth;
    int64_t block_k;
    float factor; // units in 1
} fixed_product;

#ifdef __AVX512F__

#define FIXED_MICRO 12 // rows by two vectors: 24 accumulators of 32 registers

// Rows [row, row + rows) of c by one panel. The block's sums never leave the registers before they
// are terms.
FORCE_INLINE void fixed_micro(const fixed_product *of, const float *panel, int64_t row, int64_t col,
    const int rows, term_sizes *sizes)
{
    const int64_t cols = of->cols - col, stride = of->left_stride;
    const vec factor = vec_all(of->factor);
    const float *left = of->left + row * stride;
    for (int64_t k = 0; k < of->depth; k += of->block_k) {
        const int64_t end = k + of->block_k < of->depth ? k + of->block_k : of->depth;
        vec sum[FIXED_MICRO][2];
        for (int i = 0; i < rows; i++)
            sum[i][0] = sum[i][1] = vec_all(0.0f);
        for (int64_t p = k; p < end; p++) {
            const vec b0 = load_f32(panel + p * CY_BLOCK_COLS, LANES);
            const vec b1 = load_f32(panel + p * CY_BLOCK_COLS + LANES, LANES);
            for (int i = 0; i < rows; i++) {
                const vec a = vec_all(left[i * stride + p]);
                sum[i][0] = vec_fma(a, b0, sum[i][0]);
                sum[i][1] = vec_fma(a, b1, sum[i][1]);
            }
        }
        for (int i = 0; i < rows; i++) {
            int64_t *c = of->c + (row + i) * of->c_stride + col;
            if (cols >= CY_BLOCK_COLS) {
                fixed_add_all(c, vec_mul(sum[i][0], factor), sizes);
                fixed_add_all(c + LANES, vec_mul(sum[i][1], factor), sizes);
                continue;
            }
            fixed_add(c, vec_mul(sum[i][0], factor), cols, sizes);
            if (cols <= LANES) continue;
            fixed_add(c + LANES, vec_mul(sum[i][1], factor), cols - LANES, sizes);
        }
    }
}

static void multiply_fixed(const fixed_product *of, term_sizes *sizes)
{
    term_sizes seen = *sizes;
    for (int64_t col = 0; col < of->cols; col += CY_BLOCK_COLS) {
        const float *panel = of->right + col * of->depth;
        int64_t row = 0;
        for (; row + FIXED_MICRO <= of->rows; row += FIXED_MICRO)
            fixed_micro(of, panel, row, col, FIXED_MICRO, &seen);
        for (; row + 4 <= of->rows; row += 4)
            fixed_micro(of, panel, row, col, 4, &seen);
        for (; row < of->rows; row++)
            fixed_micro(of, panel, row, col, 1, &seen);
    }
    *sizes = seen;
}

#else

static void multiply_fixed(const fixed_product *of, term_sizes *sizes)
{
    float terms[FIXED_ROWS * CY_BLOCK_COLS];
    CY_DEBUG_ASSERT(of->rows <= FIXED_ROWS);
    for (int64_t col = 0; col < of->cols; col += CY_BLOCK_COLS) {
        const int64_t cols = of->cols - col < CY_BLOCK_COLS ? of->cols - col : CY_BLOCK_COLS;
        for (int64_t k = 0; k < of->depth; k += of->block_k) {
            const int64_t depth = of->block_k < of->depth - k ? of->block_k : of->depth - k;
            STRICT_BLOCK()->multiply(terms, CY_BLOCK_COLS, of->left + k, of->left_stride,
                of->right + col * of->depth + k * CY_BLOCK_COLS, of->rows, cols, depth, false);
            for (int64_t i = 0; i < of->rows; i++) {
                fixed_add_row(of->c + i * of->c_stride + col, terms + i * CY_BLOCK_COLS, CY_F32, 0,
                    cols, of->factor, sizes);
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
    const cy_block_ops *ops = STRICT_BLOCK();
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
        for (int64_t row = 0; row < tile.rows; row += FIXED_ROWS) {
            const int64_t rows = tile.rows - row < FIXED_ROWS ? tile.rows - row : FIXED_ROWS;
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
    return c.sum != NULL && c.sum->block_k > 0 ? c.sum->block_k : CY_STRICT_BLOCK_K;
}

static void matmul_fixed(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    CY_ASSERT(spec.block_k >= 0);
    const cy_block_ops *ops = STRICT_BLOCK();
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
    of.tiles =
        cy_tiles_cut(c.rows, c.cols, FIXED_TILE, FIXED_TILE, 4 * cy_queue_workers(queue), false);
    const int64_t depth = of.slice < of.depth ? of.slice : of.depth;
    of.right_bytes = cy_block_right_bytes(ops, of.tiles.cols, depth);
    of.left_bytes = cy_block_left_bytes(ops, FIXED_ROWS, depth);
    of.right_bytes = (size_t)cy_round_up((int64_t)of.right_bytes, CY_ARENA_ALIGN);
    of.left_bytes = (size_t)cy_round_up((int64_t)of.left_bytes, CY_ARENA_ALIGN);
    const size_t mark = cy_arena_mark(queue->scratch);
    of.scratch = cy_arena_take(
        queue->scratch, (of.left_bytes + of.right_bytes) * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, fixed_tile, &of, cy_tiles_count(&of.tiles));
    cy_arena_rewind(queue->scratch, mark);
}

static void strict_matmul(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    if (is_fixed(c) && served(a)) {
        matmul_fixed(queue, c, a, b, spec);
    } else {
        cy_matmul_tiled(queue, STRICT_BLOCK(), NULL, c, a, b, spec);
    }
}

#endif
