// kernel/kernel.h: the operators of a model, one table per device.
//
// Each operator has a type cy_<name>_fn, declared below with what it computes, a function cy_<name>
// that layers call, and a slot in the table (CY_OPERATORS at the end of this file). The functions
// check sizes and aliasing, add the operator's cost to the trace and make one indirect call. The
// reference table in ref/ defines the results and takes every floating dtype; tuned tables replace
// the slots that they compute faster.
//
// Conventions. Outputs come first. `t` is a number of tokens. Mixed dtypes are allowed where a
// comment says so; otherwise all floating views of a call have one dtype. "Adds" means the output
// holds a sum already. Accumulators are fp32 (fp64 for fp64 data), or fixed point in strict mode.
// Kernels cannot fail. A kernel takes its scratch memory from queue->scratch and rewinds it, also
// on a dry queue, on which it must not touch data.

#ifndef CY_KERNEL_KERNEL_H
#define CY_KERNEL_KERNEL_H

#include "base/status.h"
#include "device/queue.h"
#include "device/view.h"

// ---- products

typedef struct cy_matmul_spec {
    bool transpose_a; // a is stored [k, m]
    bool transpose_b; // b is stored [n, k]
    bool accumulate;  // c += a b instead of c = a b
    int64_t block_k;  // into CY_FX64: elements of k in a term; 0: the block_k of c's sum, or 32
    const void *next; // a hint: the address that the caller reads after b; NULL if unknown
} cy_matmul_spec;

// c [m, n] (+)= a [m, k] b [k, n]. a and b have one dtype; c has that dtype, or fp32, or CY_FX64.
// Sums are in fp32 (fp64 of fp64), in an order that follows from the shapes and the processor.
// Where fp32 is multiplied in parts of bf16 (docs/products.md), what is below 2^-126 counts as zero
// and a sum with an element that is not finite is a NaN.
// In strict mode an element of c is one chain of fused multiply-adds in ascending k; into CY_FX64,
// k is cut in blocks of block_k from the start, and each block's chain is rounded into fixed point
// and added as an integer: a sum over k that is split at multiples of block_k has the same
// integers. The three products of a linear layer y = x W^T with W [out, in]:
//   forward y = matmul(x, W, transpose_b), backward dx = matmul(dy, W),
//   dW += matmul(dy, x, transpose_a, accumulate).
typedef void cy_matmul_fn(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

// ---- normalisation (Zhang and Sennrich, "Root mean square layer normalization", 2019)

// y [t, h] = x / sqrt(mean(x^2) + eps) * weight [1, h]; inv_rms [1, t] is 1 / sqrt(...), fp32 or
// fp64. With `branch` [t, h] given, x += branch first, in place: the residual sum of a block.
typedef void cy_norm_forward_fn(cy_queue *queue, cy_view y, cy_view inv_rms, cy_view x,
    cy_view branch, cy_view weight, double eps);

// y = x * inv_rms * weight, with inv_rms from the forward pass: the same bits as its y.
typedef void cy_norm_apply_fn(
    cy_queue *queue, cy_view y, cy_view x, cy_view inv_rms, cy_view weight);

// dx [t, h] adds the gradient through the norm (it holds the residual's gradient already);
// dweight [1, h] adds, in the accumulator dtype. Either may be none.
typedef void cy_norm_backward_fn(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy,
    cy_view x, cy_view inv_rms, cy_view weight);

// ---- positions (Su et al., "RoFormer", 2021), in Llama's pairing: element i of a head turns with
// element i + head_dim / 2

// table [positions, head_dim], fp32 or fp64: the cosines of a position's head_dim / 2 angles, then
// their sines. `inv_freq` [head_dim / 2] is in device memory. Exact for every position below 2^24.
typedef void cy_rope_table_fn(cy_queue *queue, cy_view table, const double *inv_freq, double scale);

// Turns the first heads * head_dim columns of x [t, >= heads * head_dim] in place. positions [t] is
// in device memory. `inverse` turns back, which is the gradient.
typedef void cy_rope_fn(
    cy_queue *queue, cy_view x, cy_view table, const int32_t *positions, int heads, bool inverse);

// ---- attention (Dao et al., "FlashAttention", 2022): no tokens x tokens matrix is ever stored

// The widest head that kernels keep on the stack.
#define CY_HEAD_DIM_MAX 512

// Queries that may see keys: rows of q and rows of k, v. Spans of one call have disjoint q rows.
typedef struct cy_attention_span {
    int64_t q_first, q_count;
    int64_t k_first, k_count;
} cy_attention_span;

// A query at position p sees the keys of its span at positions in (p - window, p]. Positions
// ascend within a span, and are int32 per row, in device memory. Query head i reads key head
// i / (heads / kv_heads).
typedef struct cy_attention_spec {
    int heads;
    int kv_heads;
    int64_t head_dim;
    int64_t window;                 // 0: no limit
    double scale;                   // of the scores, usually 1 / sqrt(head_dim)
    const cy_attention_span *spans; // host memory, [span_count]; read before the call returns
    int span_count;
    const int32_t *q_positions; // [rows of q]
    const int32_t *k_positions; // [rows of k]
    bool accumulate;            // backward: dq, dk, dv add instead of being written
    double pairs; // for the cost: pairs of query and key that see each other, 0: see cost.h
} cy_attention_spec;

// o [tq, heads * head_dim], lse [heads, tq] (fp32 or fp64): log of the sum of exponentials, -inf
// and o = 0 for a query that sees no key or is in no span. q [tq, heads * head_dim], k and v [tk,
// kv_heads * head_dim]; each may be a range of columns of a wider matrix. o may be fp32 where q is
// 16-bit. fp32 is multiplied as cy_matmul multiplies it.
typedef void cy_attention_forward_fn(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k,
    cy_view v, const cy_attention_spec *spec);

// Merges a second part over other keys into the first: o and lse become those over both sets.
typedef void cy_attention_merge_fn(
    cy_queue *queue, cy_view o, cy_view lse, cy_view o_part, cy_view lse_part, int heads);

// delta [heads, tq] = sum over a head of do * o: what the backward pass needs of o.
typedef void cy_attention_delta_fn(
    cy_queue *queue, cy_view delta, cy_view d_o, cy_view o, int heads);

// dq, dk, dv: gradients of the sizes of q, k, v, in their dtype, or fp32, or CY_FX64. All rows are
// written (or added to), also those in no span.
typedef void cy_attention_backward_fn(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv,
    cy_view d_o, cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec);

// Keys and values of generated text live in pages of `page_size` positions; page p of sequence s
// is number page_table[s * pages_per_sequence + p] in both arrays, [pages, page_size, kv_heads *
// head_dim].
typedef struct cy_kv_pages {
    cy_view keys;              // [pages * page_size, kv_heads * head_dim]
    cy_view values;            // likewise
    const int32_t *page_table; // device memory
    int64_t page_size;
    int64_t pages_per_sequence;
} cy_kv_pages;

// The row of keys and values that holds a position of a sequence; `table` is the page table or a
// copy of it that the caller can read.
static inline int64_t cy_kv_row(
    const cy_kv_pages *pages, const int32_t *table, int64_t sequence, int64_t position)
{
    const int64_t page = position / pages->page_size;
    CY_DEBUG_ASSERT(page < pages->pages_per_sequence);
    const int64_t number = table[sequence * pages->pages_per_sequence + page];
    return number * pages->page_size + position % pages->page_size;
}

// o [t, heads * head_dim]: row i attends to positions 0..positions[i] (or those in the window) of
// sequence sequences[i]; both int32 [t] in device memory. Serves decoding and chunked prefill.
typedef void cy_attention_paged_fn(cy_queue *queue, cy_view o, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec);

// Attention of one row in parts, for threads that share the row: each thread computes some parts,
// and any thread can combine all of them. A part is the keys of one key head at CY_ATTENTION_PART
// positions, counted from 0, and holds what they contribute to each query head that reads them:
// sums of values and of weights, which are exponentials of scores minus their maximum. Parts of a
// row are numbered by position, then by key head.
#define CY_ATTENTION_PART 128

// The first position that a row at `position` sees.
static inline int64_t cy_attention_first(const cy_attention_spec *spec, int64_t position)
{
    return spec->window > 0 && position >= spec->window ? position - spec->window + 1 : 0;
}

// How many parts a row at `position` has.
static inline int64_t cy_attention_part_count(const cy_attention_spec *spec, int64_t position)
{
    const int64_t first = cy_attention_first(spec, position) / CY_ATTENTION_PART;
    return (position / CY_ATTENTION_PART - first + 1) * spec->kv_heads;
}

// Elements of a part: [group, head_dim] sums of values, [group] maxima, [group] sums of weights,
// with group query heads for each key head; then padding to whole cache lines.
static inline int64_t cy_attention_split_cols(const cy_attention_spec *spec)
{
    const int64_t used = spec->heads / spec->kv_heads * (spec->head_dim + 2);
    return (used + 15) / 16 * 16;
}

// parts [n, cy_attention_split_cols], fp32 (fp64 for fp64 data), are n parts of the one row q, from
// number `first` on. The rest is as above.
typedef void cy_attention_split_fn(cy_queue *queue, cy_view parts, cy_view q,
    const cy_kv_pages *pages, const int32_t *sequences, const int32_t *positions,
    const cy_attention_spec *spec, int64_t first);

// o [1, heads * head_dim] from all parts of a row: the bits of cy_attention_paged.
typedef void cy_attention_combine_fn(
    cy_queue *queue, cy_view o, cy_view parts, const cy_attention_spec *spec);

// ---- feed-forward (Shazeer, "GLU variants improve transformer", 2020)

// y [t, f] = silu(gate) * up, with gate_up [t, 2 f] holding gate, then up.
typedef void cy_swiglu_forward_fn(cy_queue *queue, cy_view y, cy_view gate_up);

// d_gate_up [t, 2 f]; y, unless none, is made again in the same pass (the same bits). d_gate_up may
// be gate_up itself.
typedef void cy_swiglu_backward_fn(
    cy_queue *queue, cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up);

// ---- embedding: rows [first, first + table.rows) of the vocabulary; other tokens give zeros

typedef void cy_embedding_forward_fn(
    cy_queue *queue, cy_view y, cy_view table, const int32_t *tokens, int64_t first);

// d_table adds, in the accumulator dtype, in ascending order of t.
typedef void cy_embedding_backward_fn(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first);

// ---- softmax cross-entropy over columns [first, first + logits.cols) of the vocabulary, in three
// steps, because a split vocabulary communicates between them: maximum; sum; loss and gradient. All
// statistics are [1, t], fp32 (fp64 for fp64 logits); a sum may be CY_FX64. A token with a target
// below 0 adds no loss and no gradient.

// A column of the vocabulary at `valid` or beyond is padding and never gets probability.
typedef struct cy_vocab_range {
    int64_t first; // global index of column 0
    int64_t valid; // tokens of the vocabulary, globally
} cy_vocab_range;

// The number of columns among the first `cols` that are not padding.
static inline int64_t cy_vocab_columns(cy_vocab_range range, int64_t cols)
{
    const int64_t valid = range.valid - range.first;
    if (valid < 0) return 0;
    return valid < cols ? valid : cols;
}

typedef void cy_softmax_max_fn(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range);

// sum = sum of exp(logit - max) over the columns here; target = the target's logit, 0 when its
// column is not here.
typedef void cy_softmax_sum_fn(cy_queue *queue, cy_view sum, cy_view target, cy_view logits,
    cy_view max, const int32_t *targets, cy_vocab_range range);

// loss [1, 1], fp64 or CY_FX64, adds the sum over tokens of max + log(sum) - target; none skips.
typedef void cy_softmax_loss_fn(cy_queue *queue, cy_view loss, cy_view max, cy_view sum,
    cy_view target, const int32_t *targets);

// d_logits [t, cols] = scale * (exp(logit - max) / sum - [column is the target]): the gradient of
// scale times the sum of losses. May be the logits themselves; its dtype may be narrower.
typedef void cy_softmax_grad_fn(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max,
    cy_view sum, const int32_t *targets, cy_vocab_range range, double scale);

// ---- element by element, any pair of floating dtypes and CY_FX64

typedef void cy_fill_fn(cy_queue *queue, cy_view y, double value);
typedef void cy_copy_fn(cy_queue *queue, cy_view y, cy_view x); // y = x, rounded to y's dtype
typedef void cy_add_fn(
    cy_queue *queue, cy_view y, cy_view a, cy_view b); // y = a + b; y may be a or b
typedef void cy_add_bias_fn(
    cy_queue *queue, cy_view y, cy_view bias); // each row of y += bias [1, cols]
typedef void cy_sum_rows_fn(
    cy_queue *queue, cy_view sum, cy_view x); // sum [1, cols] adds all rows of x

// ---- optimizer, over flat ranges [1, n] of parameters, without regard to where a parameter ends

// out [1, 1] fp64 adds the sum of squares of x, in a fixed order. In strict mode out may be [1, 4]
// of CY_FX64, cells whose sums do not depend on the order: see kernel/strict/strict.h.
typedef void cy_sum_squares_fn(cy_queue *queue, cy_view out, cy_view x);

// scale [1, 1] fp64 = the factor of the gradients: 1 / divisor, and less where the norm of the
// divided gradients exceeds max_norm (0: no limit). norm [1, 1] fp64 = that norm. Where the norm
// is not finite, neither is the scale.
typedef void cy_clip_scale_fn(cy_queue *queue, cy_view scale, cy_view norm, cy_view sum_squares,
    double divisor, double max_norm);

// The second moment v under compressed gradients: the first `steps` steps update it, then it is
// frozen (Tang et al., "1-bit Adam", 2021); 0: it is never frozen. A frozen v is raised to
// (share g)^2 where it is smaller: g is then the sum over 1 / share steps, and a mean of squares is
// never below the square of the mean.
typedef struct cy_adamw_freeze {
    int64_t steps;
    double share;
} cy_adamw_freeze;

// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).
typedef struct cy_adamw_spec {
    double learning_rate;
    double beta1, beta2;
    double eps;
    double weight_decay;
    int64_t step;           // from 1, for the bias corrections
    cy_adamw_freeze freeze; // of the second moment; {0} without compression
} cy_adamw_spec;

// The second moment at a step: its decay, its lower bound as a multiple of g, and the number of
// steps that have updated it.
typedef struct cy_adamw_second_moment {
    double beta2, share;
    int64_t steps;
} cy_adamw_second_moment;

static inline cy_adamw_second_moment cy_adamw_second_moment_of(const cy_adamw_spec *spec)
{
    const cy_adamw_freeze freeze = spec->freeze;
    const bool frozen = freeze.steps > 0 && spec->step > freeze.steps;
    if (!frozen) return (cy_adamw_second_moment){spec->beta2, 0.0, spec->step};
    return (cy_adamw_second_moment){1.0, freeze.share, freeze.steps};
}

// One pass: grad is scaled, the moments m and v and the master copy are updated, and `weight`
// (none, or the 16-bit copy for compute) is written. All [1, n]; master, m, v are fp32 or fp64. A
// scale that is not finite changes nothing: a step with broken gradients is skipped without a
// decision of the host.
typedef void cy_adamw_fn(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, cy_view scale, const cy_adamw_spec *spec);

// x [rows, cols] = std * normal numbers of `key` at global indices first + row * global_cols + col.
typedef void cy_random_fill_fn(
    cy_queue *queue, cy_view x, uint64_t key, uint64_t first, int64_t global_cols, double std);

// hash [1, 1] int64 adds, mod 2^64, a mix of (key, global index, bits of the element as fp64).
typedef void cy_hash_fn(
    cy_queue *queue, cy_view hash, cy_view x, uint64_t key, uint64_t first, int64_t global_cols);

// ---- compression of gradients (docs/compression.md), over flat ranges [1, n]

// residual += grad, and then the k = values.cols elements of largest magnitude are moved out of
// residual, which has zeros there: values + residual is the sum, bit for bit. indices [1, k] int32
// ascend. Of equal magnitudes the first is taken, and a NaN is above everything. All fp32 or all
// fp64 (fp64 data); 1 <= k <= n < 2^31. Where sum_squares [1, 1] fp64 is given and the norm, its
// square root, exceeds max_norm, grad is multiplied with max_norm / norm before it is added.
typedef void cy_topk_fn(cy_queue *queue, cy_view values, cy_view indices, cy_view residual,
    cy_view grad, cy_view sum_squares, double max_norm);

// y [1, n] adds values [1, k] at indices [1, k], which are below n and differ.
typedef void cy_scatter_add_fn(cy_queue *queue, cy_view y, cy_view indices, cy_view values);

// The step that AdamW would take for a gradient that has not been sent yet, without the first
// moment.
typedef struct cy_step_ahead_spec {
    double learning_rate;
    double scale; // of the residual, to a gradient
    double root;  // 1 / sqrt of the second moment's bias correction
    double eps;
    double most; // of a step over the learning rate
} cy_step_ahead_spec;

// weight = master - learning_rate * step, step = scale * residual / (root * sqrt(v) + eps), at most
// `most` in magnitude. All [1, n]; master, residual and v are fp32 or fp64 alike.
typedef void cy_step_ahead_fn(cy_queue *queue, cy_view weight, cy_view master, cy_view residual,
    cy_view v, const cy_step_ahead_spec *spec);

// codes [1, n] uint8, each an int8, and scales [1, blocks] fp32, one a block of CY_QUANTIZE_BLOCK
// elements, the last perhaps shorter: scale = largest magnitude / 127, code = x / scale to the
// nearest. The error is at most half a scale (where a scale is a normal number). A block with an
// element that is not finite has the scale NaN. x is fp32 or fp64.
#define CY_QUANTIZE_BLOCK 256
typedef void cy_quantize_fn(cy_queue *queue, cy_view codes, cy_view scales, cy_view x);

// y [1, n] = scale * code, or adds it.
typedef void cy_dequantize_fn(
    cy_queue *queue, cy_view y, cy_view codes, cy_view scales, bool accumulate);

// ---- the table

// Calls X(name) for every operator. For each of them there are the type cy_<name>_fn above, the
// function cy_<name> that layers call, and a slot in every table.
#define CY_OPERATORS(X)                                                                            \
    X(matmul)                                                                                      \
    X(norm_forward)                                                                                \
    X(norm_apply)                                                                                  \
    X(norm_backward)                                                                               \
    X(rope_table)                                                                                  \
    X(rope)                                                                                        \
    X(attention_forward)                                                                           \
    X(attention_merge)                                                                             \
    X(attention_delta)                                                                             \
    X(attention_backward)                                                                          \
    X(attention_paged)                                                                             \
    X(attention_split)                                                                             \
    X(attention_combine)                                                                           \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)                                                                             \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(softmax_max)                                                                                 \
    X(softmax_sum)                                                                                 \
    X(softmax_loss)                                                                                \
    X(softmax_grad)                                                                                \
    X(fill)                                                                                        \
    X(copy)                                                                                        \
    X(add)                                                                                         \
    X(add_bias)                                                                                    \
    X(sum_rows)                                                                                    \
    X(sum_squares)                                                                                 \
    X(clip_scale)                                                                                  \
    X(adamw)                                                                                       \
    X(random_fill)                                                                                 \
    X(hash)                                                                                        \
    X(topk)                                                                                        \
    X(step_ahead)                                                                                  \
    X(scatter_add)                                                                                 \
    X(quantize)                                                                                    \
    X(dequantize)

#define CY_DECLARE_OPERATOR(operator) cy_##operator##_fn cy_##operator;
CY_OPERATORS(CY_DECLARE_OPERATOR)
#undef CY_DECLARE_OPERATOR

#define CY_OPERATOR_SLOT(operator) cy_##operator##_fn * operator;

typedef struct cy_kernels {
    const char *name; // "ref", "avx2", "avx512", "avx512_bf16", "amx", "neon", "strict"
    CY_OPERATORS(CY_OPERATOR_SLOT)
    // The same bits as adamw; in tuned tables with one pass over memory for each step of the
    // formula.
    cy_adamw_fn *adamw_unfused;
} cy_kernels;

#undef CY_OPERATOR_SLOT

// The table of the reference operators, for fp64, fp32, bf16 and fp16: the definition of correct.
const cy_kernels *cy_kernels_ref(void);

#endif
