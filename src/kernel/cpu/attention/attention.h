// kernel/cpu/attention/attention.h: flash attention from blocks of products and rows of softmax.
//
// A block of keys is visited only where some query of the block of queries sees it: causal and
// window masks skip work instead of hiding it, and within a block each row has a range of columns.
// Memory is a few blocks per worker, and in the backward pass O(tokens) besides. Blocks are cut by
// the shape alone and every sum has a fixed order, so results do not depend on the workers.
//
// The reference computes data that is not fp32, bf16 or fp16, fixed-point gradients, and heads
// wider than CY_FLASH_HEAD_MAX.

#ifndef CY_KERNEL_CPU_ATTENTION_ATTENTION_H
#define CY_KERNEL_CPU_ATTENTION_ATTENTION_H

#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/kernel.h"

// ---- the row-by-row part, one set of functions per instruction set
//
// Everything is borrowed and pure; any thread. Rows of fp32 blocks have room for a multiple of 32
// columns, so whole vectors may be read and written. Scores come as plain products; `factor` is
// scale * log2(e), so that weights are powers of two, each with a relative error below 2^-21, or
// 2^-18 where they are stored as bf16.

// The columns that a row of a block sees: [first, last).
typedef struct cy_row_range {
    int32_t first, last;
} cy_row_range;

typedef struct cy_softmax_block {
    const float *scores; // [rows, stride]
    void *weights;       // [rows, stride], fp32 or bf16: 2^(factor * score - max), 0 where unseen
    float *out;          // [rows, out_cols], sums so far: rescaled when a row's maximum grows
    float *max, *sum;    // [rows] of all blocks so far, max in units of log2
    const cy_row_range *seen; // [rows]
    int64_t rows, stride, out_cols;
    float factor;
    cy_dtype dtype; // of the weights
} cy_softmax_block;

typedef struct cy_gradient_block {
    const float *scores;      // [rows, stride]: keys by queries
    const float *d_weights;   // likewise: the gradient that arrives at the weights
    void *weights;            // [rows, stride], 0 where unseen
    void *d_scores;           // likewise: weight * (d_weight - delta) * scale
    const float *log_sum;     // [stride], in units of log2, of each query
    const float *delta;       // [stride]
    const cy_row_range *seen; // [rows]
    int64_t rows, stride;
    float factor, scale;
    cy_dtype dtype; // of weights and d_scores
} cy_gradient_block;

typedef struct cy_attention_rows {
    void (*softmax)(const cy_softmax_block *block);
    void (*gradient)(const cy_gradient_block *block);

    // scores[q * stride + k] = queries [count, dim] (fp32) times keys [some, dim], any row stride.
    // Prefetches rows at `ahead`, unless NULL, as many and as far apart as keys.
    void (*dot)(float *scores, int64_t stride, const float *queries, int64_t count, cy_view keys,
        const void *ahead);

    // out [count, dim], rows out_stride apart, += weights[q * stride + k] times values [some, dim].
    void (*add)(float *out, int64_t out_stride, const float *weights, int64_t stride, int64_t count,
        cy_view values, const void *ahead);

    // o = a * o + b * part over `count` elements.
    void (*blend)(void *o, cy_dtype dtype, float a, const void *part, cy_dtype part_dtype, float b,
        int64_t count);

    // sums[head * stride] = the sum of products of a's and b's elements of that head; rows of heads
    // * dim.
    void (*inner)(float *sums, int64_t stride, const void *a, cy_dtype a_dtype, const void *b,
        cy_dtype b_dtype, int64_t heads, int64_t dim);

    // sum [dim] = the sum of parts [count, dim], in ascending order, after what it holds if `add`.
    void (*total)(float *sum, const float *parts, int64_t count, int64_t dim, bool add);
} cy_attention_rows;

const cy_attention_rows *cy_attention_rows_avx2(void);
const cy_attention_rows *cy_attention_rows_avx512(void);
const cy_attention_rows *cy_attention_rows_neon(void);

// ---- the operators

// The functions that compute the blocks: `wide` takes fp32, whole or split, and 16-bit data;
// `narrow`, NULL where the processor has none, takes bf16 without widening it.
typedef struct cy_attention_ops {
    const cy_microkernel *wide;
    const cy_microkernel *narrow;
    const cy_attention_rows *rows;
} cy_attention_ops;

// Slots of the table; they compute with cy_cpu_state.attention of queue->kernel_state.
cy_attention_forward_fn cy_flash_forward;
cy_attention_backward_fn cy_flash_backward;
cy_attention_paged_fn cy_flash_paged;
cy_attention_split_fn cy_flash_split;
cy_attention_combine_fn cy_flash_combine;
cy_attention_merge_fn cy_flash_merge;
cy_attention_delta_fn cy_flash_delta;

// ---- what the parts share

#define CY_FLASH_KEYS     INT64_C(128) // keys of a block
#define CY_FLASH_HEAD_MAX 256
#define CY_LOG2_E         1.4426950408889634
#define CY_LN_2           0.6931471805599453

static inline bool cy_flash_supports(cy_dtype dtype)
{
    return dtype == CY_F32 || dtype == CY_BF16 || dtype == CY_F16;
}

static inline const cy_microkernel *cy_flash_microkernel(
    const cy_attention_ops *ops, cy_dtype dtype)
{
    return ops->narrow != NULL && ops->narrow->dtype == dtype ? ops->narrow : ops->wide;
}

// Allocates from a worker's scratch buffer. With a NULL base it only counts bytes, and returns an
// address on the first page, which no process has mapped.
static inline void *cy_flash_alloc(char *base, size_t *used, size_t bytes)
{
    static const uintptr_t unmapped = CY_ARENA_ALIGN;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): no memory is meant
    void *block = base == NULL ? (void *)unmapped : base + *used;
    *used += cy_arena_bytes(bytes);
    return block;
}

// The first of `count` ascending positions that is at least `position`.
static inline int64_t cy_flash_lower_bound(
    const int32_t *positions, int64_t count, int64_t position)
{
    int64_t first = 0;
    while (count > 0) {
        const int64_t half = count / 2;
        if (positions[first + half] < position) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

static inline int32_t cy_flash_clamp(int64_t value, int64_t most)
{
    return (int32_t)(value < 0 ? 0 : value > most ? most : value);
}

// The part of a range that lies in the block of `count` from `first` on, counted from `first`.
static inline cy_row_range cy_flash_visible(cy_row_range range, int64_t first, int64_t count)
{
    return (cy_row_range){
        cy_flash_clamp(range.first - first, count), cy_flash_clamp(range.last - first, count)};
}

// One step of the forward pass for a block of query rows that lie packed, over a block of keys.
typedef struct cy_flash_state {
    const cy_microkernel *ops;
    const cy_attention_rows *rows;
    void *queries;        // [row_count, depth], a left operand
    void *keys;           // a right operand [head_dim, keys]
    void *values;         // a right operand [keys, head_dim]
    float *scores;        // [row_count, CY_FLASH_KEYS]
    void *weights;        // likewise, of the blocks' dtype
    void *left;           // those of some rows as a left operand, where they are packed
    float *out;           // [row_count, out_cols]
    float *max;           // [row_count]
    float *sum;           // [row_count]
    cy_row_range *ranges; // [row_count], over all keys
    cy_row_range *seen;   // [row_count], of this block
    int64_t row_count, head_dim, depth, out_cols;
    float factor;
} cy_flash_state;

// Takes the chunks of a state for `rows` rows from a worker's scratch.
void cy_flash_layout(cy_flash_state *state, char *base, size_t *used, int64_t rows);
void cy_flash_start(cy_flash_state *state);

// Keys [first, first + keys.rows), numbered as in ranges. Skips the work when no row sees them.
void cy_flash_step(cy_flash_state *state, cy_view keys, cy_view values, int64_t first);

// Divides by the sums; a row that saw nothing becomes 0. lse[i], unless NULL, is row i's.
void cy_flash_finish(cy_flash_state *state, float *lse);

#endif
