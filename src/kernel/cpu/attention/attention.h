// kernel/cpu/attention/attention.h: flash attention from blocks of products and rows of softmax.
//
// A block of keys is visited only where some query of the block of queries sees it: causal and
// window masks skip work instead of hiding it, and within a block each row has a range of columns.
// Memory is a few blocks per worker, and in the backward pass O(tokens) besides. Blocks are cut by
// the shape alone and every sum has a fixed order, so results do not depend on the workers.
//
// Data that is not fp32, bf16 or fp16, fixed-point gradients and heads wider than 256 go to the
// portable table.

#ifndef CY_KERNEL_CPU_ATTENTION_ATTENTION_H
#define CY_KERNEL_CPU_ATTENTION_ATTENTION_H

#include "kernel/cpu/attention_rows.h"
#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/kernel.h"

// What the blocks are computed with: `wide` takes fp32, whole or split, and 16-bit data besides;
// `narrow`, NULL where the processor has none, takes bf16 as it is.
typedef struct cy_attention_ops {
    const cy_block_ops *wide;
    const cy_block_ops *narrow;
    const cy_attention_rows *rows;
} cy_attention_ops;

void cy_flash_forward(cy_queue *queue, const cy_attention_ops *ops, cy_view o, cy_view lse,
    cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec);
void cy_flash_backward(cy_queue *queue, const cy_attention_ops *ops, cy_view dq, cy_view dk,
    cy_view dv, cy_view d_o, cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);
void cy_flash_paged(cy_queue *queue, const cy_attention_ops *ops, cy_view o, cy_view q,
    const cy_kv_pages *pages, const int32_t *sequences, const int32_t *positions,
    const cy_attention_spec *spec);
void cy_flash_parts(cy_queue *queue, const cy_attention_ops *ops, cy_view parts, cy_view q,
    const cy_kv_pages *pages, const int32_t *sequences, const int32_t *positions,
    const cy_attention_spec *spec, int64_t first);
void cy_flash_join(cy_queue *queue, const cy_attention_ops *ops, cy_view o, cy_view parts,
    const cy_attention_spec *spec);
void cy_flash_merge(cy_queue *queue, const cy_attention_ops *ops, cy_view o, cy_view lse,
    cy_view o_part, cy_view lse_part, int heads);
void cy_flash_delta(
    cy_queue *queue, const cy_attention_ops *ops, cy_view delta, cy_view d_o, cy_view o, int heads);

// ---- what the parts share

#define CY_FLASH_KEYS     INT64_C(128) // keys of a block
#define CY_FLASH_HEAD_MAX 256
#define CY_LOG2_E         1.4426950408889634
#define CY_LN_2           0.6931471805599453

static inline bool cy_flash_takes(cy_dtype dtype)
{
    return dtype == CY_F32 || dtype == CY_BF16 || dtype == CY_F16;
}

static inline const cy_block_ops *cy_flash_block(const cy_attention_ops *ops, cy_dtype dtype)
{
    return ops->narrow != NULL && ops->narrow->dtype == dtype ? ops->narrow : ops->wide;
}

// The next piece of a worker's scratch. With a NULL base it only counts, and what it returns lies
// on the first page, which no process has mapped.
static inline void *cy_flash_piece(char *base, size_t *used, size_t bytes)
{
    static const uintptr_t unmapped = CY_ARENA_ALIGN;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): no memory is meant
    void *piece = base == NULL ? (void *)unmapped : base + *used;
    *used += cy_arena_bytes(bytes);
    return piece;
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

// What of a range lies in the block of `count` that begins at `first`, counted from there.
static inline cy_row_range cy_flash_seen(cy_row_range range, int64_t first, int64_t count)
{
    return (cy_row_range){
        cy_flash_clamp(range.first - first, count), cy_flash_clamp(range.last - first, count)};
}

// One step of the forward pass for a block of query rows that lie packed, over a block of keys.
typedef struct cy_flash_state {
    const cy_block_ops *ops;
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

// Takes the pieces of a state for `rows` rows from a worker's scratch.
void cy_flash_layout(cy_flash_state *state, char *base, size_t *used, int64_t rows);
void cy_flash_start(cy_flash_state *state);

// Keys [first, first + keys.rows), numbered as in ranges. Skips the work when no row sees them.
void cy_flash_step(cy_flash_state *state, cy_view keys, cy_view values, int64_t first);

// Divides by the sums; a row that saw nothing becomes 0. lse[i], unless NULL, is row i's.
void cy_flash_finish(cy_flash_state *state, float *lse);

#endif
