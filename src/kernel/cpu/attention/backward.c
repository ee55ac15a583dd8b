// Computes the backward pass of flash attention (Dao et al., 2022, algorithm 4). Rows are keys and
// columns are queries, so that the values of a query are lanes of a vector and not a broadcast:
//
//   S^T = K Q^T        P^T = exp(scale S^T - lse)        dP^T = V dO^T
//   dS^T = P^T * (dP^T - delta) * scale
//   dV += P^T dO       dK += dS^T Q                      dQ^T += K^T dS^T
//
// A task is one query head of one span. It owns its columns of dq. Its share of dk and dv goes to a
// buffer of its own, and a second pass adds the shares of a key head in a fixed order.

#include "kernel/cpu/cpu.h"
#include "kernel/ref/ref.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

#define QUERIES 64 // of a block
#define KEYS    64

typedef struct backward_call {
    const cy_attention_ops *ops;
    const cy_microkernel *block;
    cy_view dq, dk, dv, d_o, lse, delta, q, k, v;
    const cy_attention_spec *spec;
    float *dk_parts, *dv_parts; // [sum of k_count, heads * head_dim], span after span
    char *scratch;              // [workers, bytes]
    size_t bytes;
} backward_call;

// The memory of a worker for one head of one span. The packed operands of all blocks of queries lie
// side by side, because each block of keys uses them again.
typedef struct head_state {
    char *q_left, *do_left;           // right operands [head_dim, QUERIES] per block
    char *q_right, *do_right;         // right operands [QUERIES, head_dim] per block
    size_t across_bytes, along_bytes; // of one block of the former, of the latter
    float *dq;                        // [blocks, head_dim, QUERIES], transposed
    float *log_sum, *delta;           // [blocks * QUERIES]
    void *k_packed, *v_packed;        // left operands [KEYS, head_dim], where they are packed
    const void *k, *v;                // the same or, where they can be used as they lie, those
    int64_t k_stride, v_stride;
    void *k_transposed;        // left operand [head_dim, KEYS]
    float *scores, *d_weights; // [KEYS, QUERIES]
    void *weights, *d_scores;  // [KEYS, QUERIES], left operands unless they are split
    void *left;                // left operand [KEYS, QUERIES], where they are packed
    void *d_scores_right;      // right operand [KEYS, QUERIES]
    float *dk, *dv;            // [KEYS, dim] of this head's parts
    bool started;              // dk and dv hold sums already
    float *turned;             // [QUERIES, head_dim]
    cy_row_range *ranges;      // [KEYS]: queries of the span that see a key
    cy_row_range *seen;        // [KEYS], of one block
    int64_t depth, blocks;
} head_state;

static void layout(
    head_state *s, char *base, size_t *used, const backward_call *self, int64_t queries)
{
    const cy_microkernel *ops = self->block;
    const int64_t dim = self->spec->head_dim;
    const size_t floats = sizeof(float), element = cy_dtype_size(ops->dtype);
    s->blocks = (queries + QUERIES - 1) / QUERIES;
    s->depth = cy_round_up(dim, ops->depth_step);
    s->across_bytes = cy_microkernel_right_bytes(ops, QUERIES, dim);
    s->along_bytes = cy_microkernel_right_bytes(ops, dim, QUERIES);
    const size_t blocks = (size_t)s->blocks, cells = (size_t)KEYS * QUERIES;
    s->q_left = cy_flash_alloc(base, used, blocks * s->across_bytes);
    s->do_left = cy_flash_alloc(base, used, blocks * s->across_bytes);
    s->q_right = cy_flash_alloc(base, used, blocks * s->along_bytes);
    s->do_right = cy_flash_alloc(base, used, blocks * s->along_bytes);
    s->dq = cy_flash_alloc(base, used, blocks * (size_t)dim * QUERIES * floats);
    s->log_sum = cy_flash_alloc(base, used, blocks * QUERIES * floats);
    s->delta = cy_flash_alloc(base, used, blocks * QUERIES * floats);
    s->k_packed = cy_flash_alloc(base, used, cy_microkernel_left_bytes(ops, KEYS, dim));
    s->v_packed = cy_flash_alloc(base, used, cy_microkernel_left_bytes(ops, KEYS, dim));
    s->k_transposed = cy_flash_alloc(base, used, cy_microkernel_left_bytes(ops, dim, KEYS));
    s->scores = cy_flash_alloc(base, used, cells * floats);
    s->d_weights = cy_flash_alloc(base, used, cells * floats);
    s->weights = cy_flash_alloc(base, used, cells * element);
    s->d_scores = cy_flash_alloc(base, used, cells * element);
    s->left = cy_flash_alloc(base, used, cy_microkernel_left_bytes(ops, KEYS, QUERIES));
    s->d_scores_right = cy_flash_alloc(base, used, cy_microkernel_right_bytes(ops, QUERIES, KEYS));
    s->turned = cy_flash_alloc(base, used, (size_t)(QUERIES * dim) * floats);
    s->ranges = cy_flash_alloc(base, used, KEYS * sizeof(cy_row_range));
    s->seen = cy_flash_alloc(base, used, KEYS * sizeof(cy_row_range));
}

static void pack_queries(
    head_state *s, const backward_call *self, const cy_attention_span *span, int64_t head)
{
    const int64_t dim = self->spec->head_dim;
    for (int64_t i = 0; i < s->blocks; i++) {
        const int64_t row = span->q_first + i * QUERIES;
        const int64_t count = cy_min(span->q_count - i * QUERIES, QUERIES);
        const cy_view q = cy_view_cols(cy_view_rows(self->q, row, count), head * dim, dim);
        const cy_view d_o = cy_view_cols(cy_view_rows(self->d_o, row, count), head * dim, dim);
        self->block->pack_right(s->q_left + (size_t)i * s->across_bytes, q, true);
        self->block->pack_right(s->do_left + (size_t)i * s->across_bytes, d_o, true);
        self->block->pack_right(s->q_right + (size_t)i * s->along_bytes, q, false);
        self->block->pack_right(s->do_right + (size_t)i * s->along_bytes, d_o, false);
        for (int64_t j = 0; j < QUERIES; j++) {
            const bool here = j < count;
            s->log_sum[i * QUERIES + j] =
                here ? *(const float *)cy_view_at(self->lse, head, row + j) * (float)CY_LOG2_E : 0;
            s->delta[i * QUERIES + j] =
                here ? *(const float *)cy_view_at(self->delta, head, row + j) : 0;
        }
    }
    memset(s->dq, 0, (size_t)(s->blocks * dim * QUERIES) * sizeof(float));
}

// The queries that see each key of a block, and those that see any of them.
static cy_row_range find_ranges(cy_row_range *ranges, const cy_attention_spec *spec,
    const cy_attention_span *span, int64_t first, int64_t count)
{
    const int32_t *queries = spec->q_positions + span->q_first;
    cy_row_range all = {INT32_MAX, 0};
    for (int64_t i = 0; i < count; i++) {
        const int64_t p = spec->k_positions[span->k_first + first + i];
        const int64_t from = cy_flash_lower_bound(queries, span->q_count, p);
        const int64_t last = spec->window == 0
            ? span->q_count
            : cy_flash_lower_bound(queries, span->q_count, p + spec->window);
        ranges[i] = (cy_row_range){(int32_t)from, (int32_t)last};
        if (from >= last) continue;
        if (ranges[i].first < all.first) all.first = ranges[i].first;
        if (ranges[i].last > all.last) all.last = ranges[i].last;
    }
    return all;
}

// One block of queries against the packed block of keys.
static void step(
    head_state *s, const backward_call *self, int64_t index, int64_t queries, int64_t keys)
{
    const cy_microkernel *ops = self->block;
    const int64_t dim = self->spec->head_dim, cols = cy_round_up(queries, CY_MICROKERNEL_COLS);
    bool any = false;
    for (int64_t i = 0; i < keys; i++) {
        s->seen[i] = cy_flash_visible(s->ranges[i], index * QUERIES, queries);
        any = any || s->seen[i].first < s->seen[i].last;
    }
    if (!any) return;

    const size_t across = (size_t)index * s->across_bytes, along = (size_t)index * s->along_bytes;
    ops->multiply(
        s->scores, cols, s->k, s->k_stride, s->q_left + across, keys, cols, s->depth, false);
    ops->multiply(
        s->d_weights, cols, s->v, s->v_stride, s->do_left + across, keys, cols, s->depth, false);
    const cy_gradient_block block = {
        .scores = s->scores,
        .d_weights = s->d_weights,
        .weights = s->weights,
        .d_scores = s->d_scores,
        .log_sum = s->log_sum + index * QUERIES,
        .delta = s->delta + index * QUERIES,
        .seen = s->seen,
        .rows = keys,
        .stride = cols,
        .factor = (float)(self->spec->scale * CY_LOG2_E),
        .scale = (float)self->spec->scale,
        .dtype = ops->dtype,
    };
    self->ops->rows->gradient(&block);
    const int64_t depth = cy_round_up(queries, ops->depth_step);
    const int64_t width = self->spec->heads * dim;
    const cy_view d_scores = cy_view_of(s->d_scores, ops->dtype, keys, cols);
    int64_t stride;
    const void *left =
        cy_microkernel_left(ops, s->left, &stride, cy_view_of(s->weights, ops->dtype, keys, cols));
    ops->multiply(s->dv, width, left, stride, s->do_right + along, keys, dim, depth, s->started);
    left = cy_microkernel_left(ops, s->left, &stride, d_scores);
    ops->multiply(s->dk, width, left, stride, s->q_right + along, keys, dim, depth, s->started);
    s->started = true;
    ops->pack_right(s->d_scores_right, d_scores, false);
    const int64_t key_depth = cy_round_up(keys, ops->depth_step);
    ops->multiply(s->dq + index * dim * QUERIES, QUERIES, s->k_transposed, key_depth,
        s->d_scores_right, dim, cols, key_depth, true);
}

// to (+)= from; `from` is changed where it adds.
static void deliver(
    const backward_call *self, cy_view to, float *from, int64_t stride, float *buffer)
{
    if (self->spec->accumulate) {
        const cy_view old = cy_view_of(buffer, CY_F32, to.rows, to.cols);
        self->block->convert(old, to);
        for (int64_t i = 0; i < to.rows; i++) {
            for (int64_t j = 0; j < to.cols; j++)
                from[i * stride + j] += buffer[i * to.cols + j];
        }
    }
    cy_view source = cy_view_of(from, CY_F32, to.rows, to.cols);
    source.stride = stride;
    self->block->convert(to, source);
}

static void deliver_dq(
    head_state *s, const backward_call *self, const cy_attention_span *span, int64_t head)
{
    const int64_t dim = self->spec->head_dim;
    for (int64_t i = 0; i < s->blocks; i++) {
        const int64_t count = cy_min(span->q_count - i * QUERIES, QUERIES);
        float *block = s->dq + i * dim * QUERIES;
        cy_view from = cy_view_of(block, CY_F32, dim, QUERIES);
        self->block->transpose(s->turned, dim, from);
        const cy_view to = cy_view_cols(
            cy_view_rows(self->dq, span->q_first + i * QUERIES, count), head * dim, dim);
        deliver(self, to, s->turned, dim, block); // the block has been read
    }
}

// All queries that see keys [key, key + keys) of the span, whose parts of dk and dv begin at `at`.
static void backward_keys(head_state *s, const backward_call *self, const cy_attention_span *span,
    int64_t key, int64_t keys, int64_t kv_col, int64_t at)
{
    const int64_t dim = self->spec->head_dim, width = self->spec->heads * dim;
    const cy_row_range all = find_ranges(s->ranges, self->spec, span, key, keys);
    s->dk = self->dk_parts + at;
    s->dv = self->dv_parts + at;
    s->started = false;
    if (all.first < all.last) {
        const int64_t row = span->k_first + key;
        const cy_view k = cy_view_cols(cy_view_rows(self->k, row, keys), kv_col, dim);
        const cy_view v = cy_view_cols(cy_view_rows(self->v, row, keys), kv_col, dim);
        s->k = cy_microkernel_left(self->block, s->k_packed, &s->k_stride, k);
        s->v = cy_microkernel_left(self->block, s->v_packed, &s->v_stride, v);
        self->block->pack_left(s->k_transposed, k, true);
        for (int64_t i = all.first / QUERIES; i * QUERIES < all.last; i++) {
            step(s, self, i, cy_min(span->q_count - i * QUERIES, QUERIES), keys);
        }
    }
    for (int64_t i = 0; i < keys && !s->started; i++) {
        memset(s->dk + i * width, 0, (size_t)dim * sizeof(float));
        memset(s->dv + i * width, 0, (size_t)dim * sizeof(float));
    }
}

static void backward_task(void *context, int64_t task, int worker)
{
    const backward_call *self = context;
    const cy_attention_spec *spec = self->spec;
    const int64_t head = task % spec->heads, dim = spec->head_dim;
    const int64_t kv_col = head / (spec->heads / spec->kv_heads) * dim;
    const cy_attention_span *span = &spec->spans[task / spec->heads];
    int64_t part_row = 0;
    for (int64_t i = 0; i < task / spec->heads; i++)
        part_row += spec->spans[i].k_count;

    head_state s;
    size_t used = 0;
    layout(&s, self->scratch + (size_t)worker * self->bytes, &used, self, span->q_count);
    self->block->enter();
    pack_queries(&s, self, span, head);
    for (int64_t key = 0; key < span->k_count; key += KEYS) {
        backward_keys(&s, self, span, key, cy_min(span->k_count - key, KEYS), kv_col,
            ((part_row + key) * spec->heads + head) * dim);
    }
    deliver_dq(&s, self, span, head);
    self->block->leave();
}

// ---- the second pass: one row of dk or dv is the sum over the spans that hold it, in their order,
// of the heads that share its key head, in theirs

#define SUM_ROWS 16

static void sum_row(const backward_call *self, cy_view to, const float *parts, int64_t row)
{
    const cy_attention_spec *spec = self->spec;
    const int64_t dim = spec->head_dim, group = spec->heads / spec->kv_heads;
    for (int64_t kv_head = 0; kv_head < spec->kv_heads; kv_head++) {
        float sum[CY_FLASH_HEAD_MAX], buffer[CY_FLASH_HEAD_MAX];
        int64_t part_row = 0;
        bool started = false;
        for (int i = 0; i < spec->span_count; i++) {
            const cy_attention_span *span = &spec->spans[i];
            const int64_t at = row - span->k_first;
            if (at >= 0 && at < span->k_count) {
                const float *from = parts + ((part_row + at) * spec->heads + kv_head * group) * dim;
                self->ops->rows->total(sum, from, group, dim, started);
                started = true;
            }
            part_row += span->k_count;
        }
        if (!started) memset(sum, 0, (size_t)dim * sizeof(float));
        deliver(self, cy_view_cols(cy_view_rows(to, row, 1), kv_head * dim, dim), sum, dim, buffer);
    }
}

static void sum_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const backward_call *self = context;
    const int64_t end = cy_min((task + 1) * SUM_ROWS, self->dk.rows);
    for (int64_t row = task * SUM_ROWS; row < end; row++) {
        sum_row(self, self->dk, self->dk_parts, row);
        sum_row(self, self->dv, self->dv_parts, row);
    }
}

static void clear_queries(cy_view dq)
{
    for (int64_t row = 0; row < dq.rows; row++) {
        memset(cy_view_at(dq, row, 0), 0, (size_t)dq.cols * cy_dtype_size(dq.dtype));
    }
}

void cy_flash_backward(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o,
    cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    if (!cy_flash_supports(q.dtype) || !cy_flash_supports(d_o.dtype) ||
        !cy_flash_supports(dq.dtype) || !cy_flash_supports(dk.dtype) ||
        !cy_flash_supports(dv.dtype) || lse.dtype != CY_F32 || delta.dtype != CY_F32 ||
        spec->head_dim > CY_FLASH_HEAD_MAX) {
        cy_ref_attention_backward(queue, dq, dk, dv, d_o, lse, delta, q, k, v, spec);
        return;
    }
    backward_call self = {
        .ops = cy_flash_ops(queue),
        .block = cy_flash_microkernel(cy_flash_ops(queue), q.dtype),
        .dq = dq,
        .dk = dk,
        .dv = dv,
        .d_o = d_o,
        .lse = lse,
        .delta = delta,
        .q = q,
        .k = k,
        .v = v,
        .spec = spec,
    };
    int64_t keys = 0, queries = 0, longest = 0;
    for (int i = 0; i < spec->span_count; i++) {
        keys += spec->spans[i].k_count;
        queries += spec->spans[i].q_count;
        if (spec->spans[i].q_count > longest) longest = spec->spans[i].q_count;
    }
    head_state s;
    layout(&s, NULL, &self.bytes, &self, longest);

    const size_t mark = cy_arena_mark(queue->scratch);
    const size_t parts = (size_t)(keys * spec->heads * spec->head_dim) * sizeof(float);
    self.dk_parts = cy_arena_alloc(queue->scratch, parts);
    self.dv_parts = cy_arena_alloc(queue->scratch, parts);
    self.scratch = cy_arena_alloc(queue->scratch, self.bytes * (size_t)cy_queue_workers(queue));
    if (queries < q.rows && !spec->accumulate && !queue->dry) clear_queries(dq);
    cy_queue_run(queue, backward_task, &self, (int64_t)spec->span_count * spec->heads);
    cy_queue_run(queue, sum_task, &self, (k.rows + SUM_ROWS - 1) / SUM_ROWS);
    cy_arena_rewind(queue->scratch, mark);
}
