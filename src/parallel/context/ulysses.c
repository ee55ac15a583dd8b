// Ulysses: an all-to-all turns [my tokens, all heads] into [all tokens, my heads], attention runs
// over whole sequences, and a second all-to-all turns its output back.
//
//   rank 0 holds   tokens 0.. of heads  A B        all tokens of heads  A
//   rank 1 holds   tokens n.. of heads  A B   <=>  all tokens of heads  B
//
// Query heads must divide by the ranks. Where there are fewer key heads than ranks, a key head goes
// to all ranks whose queries read it, and its gradients from them are added when they come back.

#include "parallel/context/attention.h"

#include "base/status.h"

// How heads are dealt out, and the columns of a message to one rank.
typedef struct head_split {
    const cy_context_parallel *parallel;
    cy_queue *queue;
    int ranks;
    int heads, kv_heads;     // of one rank
    int sharers;             // ranks that read one key head
    int64_t dim;             // of a head
    int64_t q_cols, kv_cols; // of one rank
    int64_t tokens;          // of this rank
} head_split;

static head_split head_split_of(const cy_context_parallel *parallel, cy_queue *queue,
    int64_t tokens, const cy_attention_spec *spec)
{
    const int ranks = cy_group_size(parallel->group);
    CY_ASSERT(spec->heads % ranks == 0);
    CY_ASSERT(spec->kv_heads % ranks == 0 || ranks % spec->kv_heads == 0);
    head_split made = {
        .parallel = parallel,
        .queue = queue,
        .ranks = ranks,
        .heads = spec->heads / ranks,
        .kv_heads = spec->kv_heads < ranks ? 1 : spec->kv_heads / ranks,
        .sharers = spec->kv_heads < ranks ? ranks / spec->kv_heads : 1,
        .dim = spec->head_dim,
        .tokens = tokens,
    };
    made.q_cols = made.heads * made.dim;
    made.kv_cols = made.kv_heads * made.dim;
    return made;
}

// The columns of query or key heads that belong to a rank.
static cy_view q_of(const head_split *of, cy_view q, int rank)
{
    return cy_view_cols(q, rank * of->q_cols, of->q_cols);
}

static cy_view kv_of(const head_split *of, cy_view kv, int rank)
{
    return cy_view_cols(kv, rank / of->sharers * of->kv_cols, of->kv_cols);
}

static cy_view rows_of(const head_split *of, cy_view all, int rank)
{
    return cy_view_rows(all, rank * of->tokens, of->tokens);
}

static cy_view take_all(const head_split *of, cy_dtype dtype, int64_t cols)
{
    return cy_view_alloc(of->queue->scratch, dtype, of->ranks * of->tokens, cols);
}

// A matrix whose elements are those of `like` in kind.
static cy_view take_like(const head_split *of, cy_view like, int64_t rows, int64_t cols)
{
    return cy_view_of_sum(cy_view_alloc(of->queue->scratch, like.dtype, rows, cols), like);
}

// The parts of a row that lies packed for one rank.
typedef struct packed {
    cy_view q, k, v, d_o;
} packed;

static packed parts_of(const head_split *of, cy_view row)
{
    const int64_t k = of->q_cols, v = k + of->kv_cols, d_o = v + of->kv_cols;
    return (packed){
        .q = cy_view_cols(row, 0, of->q_cols),
        .k = cy_view_cols(row, k, of->kv_cols),
        .v = cy_view_cols(row, v, of->kv_cols),
        .d_o = row.cols > d_o ? cy_view_cols(row, d_o, of->q_cols) : cy_view_none(),
    };
}

static cy_status exchange(const head_split *of, cy_view out, cy_view in)
{
    cy_request request = {0};
    CY_TRY(cy_group_start_all_to_all(of->parallel->group, of->queue, &request, out, in));
    return cy_group_wait(of->parallel->group, of->queue, &request);
}

// in_order = all tokens of my heads, from all heads of my tokens; d_o may be none.
static cy_status to_heads(
    const head_split *of, cy_view *in_order, cy_view q, cy_view k, cy_view v, cy_view d_o)
{
    cy_queue *queue = of->queue;
    const int64_t cols = of->q_cols + 2 * of->kv_cols + (cy_view_is_none(d_o) ? 0 : of->q_cols);
    const cy_view ordered = take_all(of, q.dtype, cols);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view out = take_all(of, q.dtype, cols), in = take_all(of, q.dtype, cols);
    for (int rank = 0; rank < of->ranks; rank++) {
        const packed to = parts_of(of, rows_of(of, out, rank));
        cy_copy(queue, to.q, q_of(of, q, rank));
        cy_copy(queue, to.k, kv_of(of, k, rank));
        cy_copy(queue, to.v, kv_of(of, v, rank));
        if (!cy_view_is_none(d_o)) cy_copy(queue, to.d_o, q_of(of, d_o, rank));
    }
    CY_TRY(exchange(of, in, out));
    cy_context_to_order(of->parallel->tables, queue, ordered, in);
    cy_arena_rewind(queue->scratch, mark);
    *in_order = ordered;
    return CY_OK;
}

// *by_rank: what every rank made of my tokens with its heads, from what I made of all tokens.
static cy_status to_tokens(const head_split *of, cy_view *by_rank, cy_view in_order)
{
    const cy_view out = take_like(of, in_order, in_order.rows, in_order.cols);
    *by_rank = take_like(of, in_order, in_order.rows, in_order.cols);
    cy_context_to_ranks(of->parallel->tables, of->queue, out, in_order);
    return exchange(of, *by_rank, out);
}

static cy_attention_spec spec_of(const head_split *of, const cy_attention_spec *spec)
{
    cy_attention_spec whole = cy_context_spec_whole(of->parallel->tables, spec);
    whole.heads = of->heads;
    whole.kv_heads = of->kv_heads;
    return whole;
}

// A statistic [heads, my tokens] has as many elements as [my heads, all tokens].
static cy_view by_heads(const head_split *of, cy_view statistic)
{
    CY_ASSERT(cy_view_is_dense(statistic));
    return cy_view_of(statistic.data, statistic.dtype, of->heads, of->ranks * of->tokens);
}

cy_status cy_context_ulysses_forward(const cy_context_parallel *parallel, cy_queue *queue,
    cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    const head_split of = head_split_of(parallel, queue, q.rows, spec);
    const cy_attention_spec whole = spec_of(&of, spec);
    cy_view qkv, by_rank;
    CY_TRY(to_heads(&of, &qkv, q, k, v, cy_view_none()));
    const packed at = parts_of(&of, qkv);
    const cy_view o_all = take_all(&of, o.dtype, of.q_cols);
    cy_attention_forward(queue, o_all, by_heads(&of, lse), at.q, at.k, at.v, &whole);
    CY_TRY(to_tokens(&of, &by_rank, o_all));
    for (int rank = 0; rank < of.ranks; rank++) {
        cy_copy(queue, q_of(&of, o, rank), rows_of(&of, by_rank, rank));
    }
    return CY_OK;
}

// delta [heads, my tokens] -> [my heads, all tokens]: rows are heads here, so a part is rows.
static cy_status delta_to_heads(const head_split *of, cy_view *by_head, cy_view delta)
{
    const cy_context_layout *layout = &of->parallel->tables->layout;
    const int64_t length = cy_context_length_local(layout);
    cy_queue *queue = of->queue;
    *by_head = cy_view_alloc(queue->scratch, delta.dtype, of->heads, of->ranks * of->tokens);
    const cy_view in = cy_view_alloc(queue->scratch, delta.dtype, delta.rows, delta.cols);
    CY_TRY(exchange(of, in, delta));
    for (int rank = 0; rank < of->ranks; rank++) {
        const cy_view heads = cy_view_rows(in, (int64_t)rank * of->heads, of->heads);
        cy_context_range range;
        cy_context_ranges(layout, rank, &range);
        for (int64_t sequence = 0; sequence < layout->sequences; sequence++) {
            cy_copy(queue, cy_view_cols(*by_head, sequence * layout->length + range.first, length),
                cy_view_cols(heads, sequence * length, length));
        }
    }
    return CY_OK;
}

// What every rank made of my tokens with its heads: gradients of queries, and of keys and values.
typedef struct made {
    cy_view q;  // [ranks t, q_cols]
    cy_view kv; // [ranks t, 2 kv_cols]
} made;

// The gradients of all my heads, from what every rank made of its own.
static void deliver(const head_split *of, const cy_context_gradients *to, const made *by_rank)
{
    cy_queue *queue = of->queue;
    const cy_view dk = take_like(of, by_rank->kv, to->dk.rows, to->dk.cols);
    const cy_view dv = take_like(of, by_rank->kv, to->dv.rows, to->dv.cols);
    for (int rank = 0; rank < of->ranks; rank++) {
        const cy_view from = rows_of(of, by_rank->kv, rank);
        const cy_view from_k = cy_view_cols(from, 0, of->kv_cols);
        const cy_view from_v = cy_view_cols(from, of->kv_cols, of->kv_cols);
        const cy_view k = kv_of(of, dk, rank), v = kv_of(of, dv, rank);
        cy_copy(queue, q_of(of, to->dq, rank), rows_of(of, by_rank->q, rank));
        if (rank % of->sharers == 0) {
            cy_copy(queue, k, from_k);
            cy_copy(queue, v, from_v);
        } else {
            cy_add(queue, k, k, from_k);
            cy_add(queue, v, v, from_v);
        }
    }
    cy_copy(queue, to->dk, dk);
    cy_copy(queue, to->dv, dv);
}

// Makes the gradients of my heads and brings everybody what is of its tokens: in one message, or,
// where those of keys and values are in fixed point, in two.
static cy_status backward_heads(const head_split *of, made *by_rank, const packed *at,
    const cy_context_gradients *gradients, cy_view delta, const cy_attention_spec *whole)
{
    cy_queue *queue = of->queue;
    const bool fixed = gradients->dk.dtype == CY_FX64;
    // Where several ranks add to the gradient of a key head, their partials travel wide.
    const cy_dtype dtype = gradients->q.dtype;
    const cy_dtype travel = of->sharers > 1 && !fixed ? cy_sum_dtype(dtype) : dtype;
    const cy_view all = take_all(of, travel, of->q_cols + (fixed ? 0 : 2 * of->kv_cols));
    const cy_view dq = cy_view_cols(all, 0, of->q_cols);
    const cy_view kv = fixed ? take_like(of, gradients->dk, all.rows, 2 * of->kv_cols)
                             : cy_view_cols(all, of->q_cols, 2 * of->kv_cols);
    cy_attention_backward(queue, dq, cy_view_cols(kv, 0, of->kv_cols),
        cy_view_cols(kv, of->kv_cols, of->kv_cols), at->d_o, by_heads(of, gradients->lse), delta,
        at->q, at->k, at->v, whole);
    cy_view arrived;
    CY_TRY(to_tokens(of, &arrived, all));
    by_rank->q = cy_view_cols(arrived, 0, of->q_cols);
    if (fixed) return to_tokens(of, &by_rank->kv, kv);
    by_rank->kv = cy_view_cols(arrived, of->q_cols, 2 * of->kv_cols);
    return CY_OK;
}

cy_status cy_context_ulysses_backward(const cy_context_parallel *parallel, cy_queue *queue,
    const cy_context_gradients *gradients, const cy_attention_spec *spec)
{
    const head_split of = head_split_of(parallel, queue, gradients->q.rows, spec);
    const cy_attention_spec whole = spec_of(&of, spec);
    cy_view all, delta;
    CY_TRY(to_heads(&of, &all, gradients->q, gradients->k, gradients->v, gradients->d_o));
    CY_TRY(delta_to_heads(&of, &delta, gradients->delta));
    const packed at = parts_of(&of, all);
    made by_rank;
    CY_TRY(backward_heads(&of, &by_rank, &at, gradients, delta, &whole));
    deliver(&of, gradients, &by_rank);
    return CY_OK;
}
