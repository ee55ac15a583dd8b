// kernel/strict/attention.h: attention whose every row depends on that row and its keys alone.
// Included by the tables of this folder only, which define its vectors.
//
// Forward and dQ walk a row's keys in ascending order, in blocks of KEYS counted from the first key
// of its span: with all keys of the span present, the bits are the same whatever rows are in the
// call. Blocks or keys that a row does not see add exact zeros, so leaving them out changes
// nothing. dK and dV are sums over queries: QUERY_TERM queries in a row, by position, make one term
// of fixed point, so queries may be cut at positions that are multiples of it.

#ifndef CY_KERNEL_STRICT_ATTENTION_H
#define CY_KERNEL_STRICT_ATTENTION_H

#include "kernel/cpu/attention/attention.h"
#include "kernel/strict/fixed.h"
#include "kernel/strict/math.h"
#include "kernel/strict/matmul.h"

#define ROWS       INT64_C(128)
#define KEYS       INT64_C(64)
#define QUERIES    INT64_C(128) // of the pass over keys: a multiple of QUERY_TERM
#define QUERY_TERM 32

typedef struct attention_call {
    cy_queue *queue;
    cy_view o, lse, q, k, v, d_o, delta, dq, dk, dv;
    const cy_attention_spec *spec;
    char *scratch;
    size_t bytes; // of scratch, per worker
} attention_call;

// Rows of one span, at most ROWS of them.
typedef struct row_block {
    cy_attention_span span;
    int64_t row, rows;
    int64_t lowest[ROWS], highest[ROWS]; // keys [lowest, highest) of the span that a row sees
} row_block;

static int64_t row_block_count(const cy_attention_spec *spec)
{
    int64_t count = 0;
    for (int i = 0; i < spec->span_count; i++)
        count += cy_ceil_div(spec->spans[i].q_count, ROWS);
    return count;
}

static void find_rows(row_block *at, const cy_attention_spec *spec, int64_t number)
{
    int s = 0;
    for (; number >= cy_ceil_div(spec->spans[s].q_count, ROWS); s++)
        number -= cy_ceil_div(spec->spans[s].q_count, ROWS);
    at->span = spec->spans[s];
    at->row = at->span.q_first + number * ROWS;
    const int64_t left = at->span.q_first + at->span.q_count - at->row;
    at->rows = left < ROWS ? left : ROWS;
    const int32_t *keys = spec->k_positions + at->span.k_first;
    for (int64_t i = 0; i < at->rows; i++) {
        const int64_t position = spec->q_positions[at->row + i];
        at->highest[i] = cy_flash_lower_bound(keys, at->span.k_count, position + 1);
        at->lowest[i] = spec->window == 0
            ? 0
            : cy_flash_lower_bound(keys, at->span.k_count, position - spec->window + 1);
    }
}

// The keys of a block that a row sees: [first, end) of its KEYS. False where there are none.
static bool seen(const row_block *at, int64_t i, int64_t key, int64_t *first, int64_t *end)
{
    *first = at->lowest[i] > key ? at->lowest[i] - key : 0;
    *end = at->highest[i] < key + KEYS ? at->highest[i] - key : KEYS;
    return *first < *end;
}

// Lanes [first, end) of a, the others from b.
FORCE_INLINE vec vec_between(vec a, vec b, int64_t first, int64_t end)
{
    if (first <= 0 && end >= LANES) return a;
    const vec below = vec_first(a, b, end < 0 ? 0 : end);
    return first <= 0 ? below : vec_first(b, below, first < LANES ? first : LANES);
}

// The part of scratch that one worker's task uses next.
static float *take_floats(char **scratch, int64_t count)
{
    float *taken = (float *)(void *)*scratch;
    *scratch += cy_round_up(count * (int64_t)sizeof(float), CY_ARENA_ALIGN);
    return taken;
}

static int64_t padded_columns(int64_t dim)
{
    return cy_round_up(dim, CY_MICROKERNEL_COLS);
}

static cy_view head_of(cy_view view, int64_t row, int64_t rows, int64_t head, int64_t dim)
{
    return cy_view_cols(cy_view_rows(view, row, rows), head * dim, dim);
}

// ---- forward

typedef struct forward_rows {
    row_block at;
    int64_t dim;
    float scale;
    float *q, *scores, *o; // [ROWS, dim], [ROWS, KEYS], [ROWS, dim]
    float *keys, *values;  // packed
    float *sums;           // [ROWS, LANES]
    float max[ROWS];
} forward_rows;

// Replaces the scores of one row and block by powers, and rescales the sums of the row to its new
// maximum.
FORCE_INLINE void forward_row(forward_rows *self, int64_t i, int64_t key)
{
    int64_t first, end;
    float *scores = self->scores + i * KEYS;
    if (!seen(&self->at, i, key, &first, &end)) {
        memset(scores, 0, KEYS * sizeof(*scores));
        return;
    }
    vec x[KEYS / LANES], largest = vec_all(-INFINITY);
    for (int64_t j = 0; j < KEYS / LANES; j++) {
        const vec score = vec_mul(load_f32(scores + j * LANES, LANES), vec_all(self->scale));
        x[j] = vec_between(score, vec_all(-INFINITY), first - j * LANES, end - j * LANES);
        largest = vec_max(x[j], largest);
    }
    const float in_block = vec_largest(largest), old = self->max[i];
    const float max = in_block > old ? in_block : old;
    float *sums = self->sums + i * LANES;
    vec sum = load_f32(sums, LANES);
    if (max > old) {
        const vec shrink = vec_exp(vec_all(old - max));
        float *o = self->o + i * self->dim;
        sum = vec_mul(sum, shrink);
        for (int64_t j = 0; j < self->dim; j += LANES) {
            const int64_t lanes = lanes_left(self->dim, j);
            store_f32(o + j, vec_mul(load_f32(o + j, lanes), shrink), lanes);
        }
        self->max[i] = max;
    }
    for (int64_t j = 0; j < KEYS / LANES; j++) {
        const vec power = vec_exp(vec_sub(x[j], vec_all(max)));
        sum = vec_add(sum, power);
        store_f32(scores + j * LANES, power, LANES);
    }
    store_f32(sums, sum, LANES);
}

static void forward_finish(const attention_call *of, const forward_rows *self, int64_t head)
{
    for (int64_t i = 0; i < self->at.rows; i++) {
        const int64_t row = self->at.row + i;
        float *lse = (float *)cy_view_at(of->lse, head, row);
        if (self->at.lowest[i] >= self->at.highest[i]) continue; // the row is filled already
        const float sum = vec_sum(load_f32(self->sums + i * LANES, LANES));
        *lse = (float)((double)self->max[i] + cy_strict_log((double)sum));
        const float *from = self->o + i * self->dim;
        void *o = cy_view_at(of->o, row, head * self->dim);
        for (int64_t j = 0; j < self->dim; j += LANES) {
            const int64_t lanes = lanes_left(self->dim, j);
            // Plus zero: the sign of a zero depends on how many blocks were left out.
            const vec mean = vec_div(load_f32(from + j, lanes), vec_all(sum));
            store(o, of->o.dtype, j, vec_add(mean, vec_all(0.0f)), lanes);
        }
    }
}

static void forward_task(void *context, int64_t task, int worker)
{
    const attention_call *of = context;
    const cy_attention_spec *spec = of->spec;
    const cy_microkernel *ops = STRICT_BLOCK();
    const int64_t dim = spec->head_dim, head = task % spec->heads;
    const int64_t kv_head = head / (spec->heads / spec->kv_heads);
    char *scratch = of->scratch + (size_t)worker * of->bytes;
    forward_rows self = {.dim = dim, .scale = (float)spec->scale};
    self.q = take_floats(&scratch, ROWS * dim);
    self.scores = take_floats(&scratch, ROWS * KEYS);
    self.o = take_floats(&scratch, ROWS * dim);
    self.keys = take_floats(&scratch, KEYS * dim);
    self.values = take_floats(&scratch, KEYS * padded_columns(dim));
    self.sums = take_floats(&scratch, ROWS * LANES);
    find_rows(&self.at, spec, task / spec->heads);
    const int64_t rows = self.at.rows, last = self.at.highest[rows - 1];
    memset(self.o, 0, (size_t)(rows * dim) * sizeof(float));
    memset(self.sums, 0, (size_t)(rows * LANES) * sizeof(float));
    for (int64_t i = 0; i < rows; i++)
        self.max[i] = -INFINITY;
    ops->pack_left(self.q, head_of(of->q, self.at.row, rows, head, dim), false);
    for (int64_t key = self.at.lowest[0] / KEYS * KEYS; key < last; key += KEYS) {
        const int64_t width = self.at.span.k_count - key < KEYS ? self.at.span.k_count - key : KEYS;
        int64_t first = 0;
        while (self.at.highest[first] <= key)
            first++;
        const int64_t from = self.at.span.k_first + key, count = rows - first;
        ops->pack_right(self.keys, head_of(of->k, from, width, kv_head, dim), true);
        ops->pack_right(self.values, head_of(of->v, from, width, kv_head, dim), false);
        float *scores = self.scores + first * KEYS;
        ops->multiply(scores, KEYS, self.q + first * dim, dim, self.keys, count, width, dim, false);
        for (int64_t i = first; i < rows; i++)
            forward_row(&self, i, key);
        ops->multiply(
            self.o + first * dim, dim, scores, KEYS, self.values, count, dim, width, true);
    }
    forward_finish(of, &self, head);
}

static bool attention_supported(cy_view q, cy_view lse)
{
    return supported(q) && lse.dtype == CY_F32;
}

static void run_attention(attention_call *of, cy_task task, int64_t count, int64_t floats)
{
    cy_queue *queue = of->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    of->bytes =
        (size_t)floats * sizeof(float) + (size_t)16 * CY_ARENA_ALIGN; // each chunk is rounded up
    of->scratch = cy_arena_alloc(queue->scratch, of->bytes * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, task, of, count);
    cy_arena_rewind(queue->scratch, mark);
}

static void strict_attention_forward(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k,
    cy_view v, const cy_attention_spec *spec)
{
    if (!attention_supported(q, lse) || !supported(o)) {
        cy_ref_attention_forward(queue, o, lse, q, k, v, spec);
        return;
    }
    // Rows of no span, and those that see no key.
    fill(queue, o, 0.0);
    fill(queue, lse, -(double)INFINITY);
    attention_call of = {.queue = queue, .o = o, .lse = lse, .q = q, .k = k, .v = v, .spec = spec};
    const int64_t dim = spec->head_dim;
    run_attention(&of, forward_task, row_block_count(spec) * spec->heads,
        2 * ROWS * dim + ROWS * (KEYS + LANES) + KEYS * (dim + padded_columns(dim)));
}

typedef struct delta_rows {
    cy_view delta, d_o, o;
    int heads;
} delta_rows;

static void delta_row(void *context, int64_t t, int worker)
{
    (void)worker;
    const delta_rows *of = context;
    const int64_t dim = of->o.cols / of->heads;
    for (int64_t head = 0; head < of->heads; head++) {
        const void *d_o = cy_view_at(of->d_o, t, head * dim);
        const void *o = cy_view_at(of->o, t, head * dim);
        vec sum = vec_all(0.0f);
        for (int64_t i = 0; i < dim; i += LANES) {
            const int64_t lanes = lanes_left(dim, i);
            sum = vec_fma(load(d_o, of->d_o.dtype, i, lanes), load(o, of->o.dtype, i, lanes), sum);
        }
        *(float *)cy_view_at(of->delta, head, t) = vec_sum(sum);
    }
}

static void strict_attention_delta(
    cy_queue *queue, cy_view delta, cy_view d_o, cy_view o, int heads)
{
    if (!supported(d_o) || !supported(o) || delta.dtype != CY_F32) {
        cy_ref_attention_delta(queue, delta, d_o, o, heads);
        return;
    }
    delta_rows of = {.delta = delta, .d_o = d_o, .o = o, .heads = heads};
    cy_queue_run(queue, delta_row, &of, o.rows);
}

// ---- backward: dQ by rows, then dK and dV by keys. Both passes compute the scores: a task that
// made all three gradients would have to share dK and dV with others.

// P and scale * dS of one lane group: the one place that makes them, so that both passes have the
// same bits.
FORCE_INLINE vec probability(vec score, vec scale, vec lse)
{
    return vec_exp(vec_sub(vec_mul(score, scale), lse));
}
FORCE_INLINE vec score_gradient(vec p, vec dp, vec scale, vec delta)
{
    return vec_mul(vec_mul(p, vec_sub(dp, delta)), scale);
}

// Adds fp32 sums to rows of a gradient, which has been filled with zeros where it held nothing.
static void add_gradient(cy_queue *queue, cy_view gradient, const float *sums, int64_t stride)
{
    term_sizes sizes = no_terms();
    for (int64_t i = 0; i < gradient.rows; i++) {
        void *to = cy_view_at(gradient, i, 0);
        const float *from = sums + i * stride;
        if (is_fixed(gradient)) {
            fixed_add_row(to, from, CY_F32, 0, gradient.cols, units_in_one(gradient), &sizes);
            continue;
        }
        for (int64_t j = 0; j < gradient.cols; j += LANES) {
            const int64_t lanes = lanes_left(gradient.cols, j);
            const vec old = load(to, gradient.dtype, j, lanes);
            store(to, gradient.dtype, j, vec_add(old, load_f32(from + j, lanes)), lanes);
        }
    }
    note_terms(queue, gradient, sizes);
}

static void query_task(void *context, int64_t task, int worker)
{
    const attention_call *of = context;
    const cy_attention_spec *spec = of->spec;
    const cy_microkernel *ops = STRICT_BLOCK();
    const int64_t dim = spec->head_dim, head = task % spec->heads;
    const int64_t kv_head = head / (spec->heads / spec->kv_heads);
    char *scratch = of->scratch + (size_t)worker * of->bytes;
    float *q = take_floats(&scratch, ROWS * dim), *d_o = take_floats(&scratch, ROWS * dim);
    float *scores = take_floats(&scratch, ROWS * KEYS), *dp = take_floats(&scratch, ROWS * KEYS);
    float *dq = take_floats(&scratch, ROWS * dim);
    float *keys = take_floats(&scratch, KEYS * dim), *values = take_floats(&scratch, KEYS * dim);
    float *plain = take_floats(&scratch, KEYS * padded_columns(dim));
    row_block at;
    find_rows(&at, spec, task / spec->heads);
    const int64_t rows = at.rows, last = at.highest[rows - 1];
    const vec scale = vec_all((float)spec->scale);
    memset(dq, 0, (size_t)(rows * dim) * sizeof(float));
    ops->pack_left(q, head_of(of->q, at.row, rows, head, dim), false);
    ops->pack_left(d_o, head_of(of->d_o, at.row, rows, head, dim), false);
    for (int64_t key = at.lowest[0] / KEYS * KEYS; key < last; key += KEYS) {
        const int64_t width = at.span.k_count - key < KEYS ? at.span.k_count - key : KEYS;
        int64_t first = 0;
        while (at.highest[first] <= key)
            first++;
        const int64_t from = at.span.k_first + key, count = rows - first;
        ops->pack_right(keys, head_of(of->k, from, width, kv_head, dim), true);
        ops->pack_right(values, head_of(of->v, from, width, kv_head, dim), true);
        ops->pack_right(plain, head_of(of->k, from, width, kv_head, dim), false);
        float *here = scores + first * KEYS;
        ops->multiply(here, KEYS, q + first * dim, dim, keys, count, width, dim, false);
        ops->multiply(
            dp + first * KEYS, KEYS, d_o + first * dim, dim, values, count, width, dim, false);
        for (int64_t i = first; i < rows; i++) {
            const vec lse = vec_all(*(const float *)cy_view_at(of->lse, head, at.row + i));
            const vec delta = vec_all(*(const float *)cy_view_at(of->delta, head, at.row + i));
            int64_t begin, end;
            if (!seen(&at, i, key, &begin, &end)) begin = end = 0;
            for (int64_t j = 0; j < KEYS; j += LANES) {
                float *score = scores + i * KEYS + j;
                const vec p = probability(load_f32(score, LANES), scale, lse);
                const vec ds = score_gradient(p, load_f32(dp + i * KEYS + j, LANES), scale, delta);
                store_f32(score, vec_between(ds, vec_all(0.0f), begin - j, end - j), LANES);
            }
        }
        ops->multiply(dq + first * dim, dim, here, KEYS, plain, count, dim, width, true);
    }
    add_gradient(of->queue, head_of(of->dq, at.row, rows, head, dim), dq, dim);
}

// ---- dK and dV

typedef struct key_block {
    int64_t key, keys; // rows of k
    int64_t kv_head;
    float *k, *v;                 // [ROWS, dim]
    float *p, *ds;                // [ROWS, QUERIES]
    float *q_across, *d_o_across; // packed [dim, QUERIES]
    float *q, *d_o;               // packed [QUERIES, dim]
    float *dk, *dv;               // [ROWS, dim], where the gradient is not fixed point
    term_sizes dk_terms, dv_terms;
} key_block;

// Queries of one span and head, next to each other.
typedef struct query_run {
    int64_t query, queries;
    int64_t head;
    int64_t key, keys; // those of the block that the span has, from the block's first
} query_run;

// Adds left [keys, queries] right [queries, dim], packed.
static void add_product(const attention_call *of, const key_block *block, const query_run *run,
    cy_view gradient, float *sums, const float *left, const float *right, term_sizes *sizes)
{
    const int64_t dim = of->spec->head_dim;
    if (!is_fixed(gradient)) {
        STRICT_BLOCK()->multiply(
            sums + run->key * dim, dim, left, QUERIES, right, run->keys, dim, run->queries, true);
        return;
    }
    const fixed_product product = {
        .c = fixed_at(gradient, block->key + run->key, block->kv_head * dim),
        .c_stride = gradient.stride,
        .left = left,
        .left_stride = QUERIES,
        .right = right,
        .rows = run->keys,
        .cols = dim,
        .depth = run->queries,
        .block_k = QUERY_TERM,
        .factor = units_in_one(gradient),
    };
    multiply_fixed(&product, sizes);
}

// P and dS, keys by queries: rows are keys here, so a lane is a query.
static void key_rows(const attention_call *of, const key_block *block, const query_run *run)
{
    const cy_attention_spec *spec = of->spec;
    const int32_t *positions = spec->q_positions + run->query;
    const float *lse = cy_view_at(of->lse, run->head, run->query);
    const float *delta = cy_view_at(of->delta, run->head, run->query);
    const vec scale = vec_all((float)spec->scale), zero = vec_all(0.0f);
    for (int64_t i = 0; i < run->keys; i++) {
        const int64_t position = spec->k_positions[block->key + run->key + i];
        const int64_t first = cy_flash_lower_bound(positions, run->queries, position);
        const int64_t end = spec->window == 0
            ? run->queries
            : cy_flash_lower_bound(positions, run->queries, position + spec->window);
        for (int64_t j = 0; j < run->queries; j += LANES) {
            const int64_t lanes = lanes_left(run->queries, j);
            float *p_at = block->p + i * QUERIES + j, *ds_at = block->ds + i * QUERIES + j;
            const vec p = probability(load_f32(p_at, LANES), scale, load_f32(lse + j, lanes));
            const vec ds =
                score_gradient(p, load_f32(ds_at, LANES), scale, load_f32(delta + j, lanes));
            store_f32(p_at, vec_between(p, zero, first - j, end - j), LANES);
            store_f32(ds_at, vec_between(ds, zero, first - j, end - j), LANES);
        }
    }
}

static void add_run(const attention_call *of, key_block *block, const query_run *run)
{
    const cy_microkernel *ops = STRICT_BLOCK();
    const int64_t dim = of->spec->head_dim;
    const cy_view q = head_of(of->q, run->query, run->queries, run->head, dim);
    const cy_view d_o = head_of(of->d_o, run->query, run->queries, run->head, dim);
    ops->pack_right(block->q_across, q, true);
    ops->pack_right(block->d_o_across, d_o, true);
    ops->pack_right(block->q, q, false);
    ops->pack_right(block->d_o, d_o, false);
    ops->multiply(block->p, QUERIES, block->k + run->key * dim, dim, block->q_across, run->keys,
        run->queries, dim, false);
    ops->multiply(block->ds, QUERIES, block->v + run->key * dim, dim, block->d_o_across, run->keys,
        run->queries, dim, false);
    key_rows(of, block, run);
    add_product(of, block, run, of->dv, block->dv, block->p, block->d_o, &block->dv_terms);
    add_product(of, block, run, of->dk, block->dk, block->ds, block->q, &block->dk_terms);
}

// All queries of a span that see a key of the block, from a position on that begins a term.
static void add_span(const attention_call *of, key_block *block, cy_attention_span span)
{
    const cy_attention_spec *spec = of->spec;
    const int64_t key_end = block->key + block->keys, span_end = span.k_first + span.k_count;
    const int64_t first = span.k_first > block->key ? span.k_first : block->key;
    const int64_t end = span_end < key_end ? span_end : key_end;
    if (first >= end || span.q_count == 0) return;
    const int64_t group = spec->heads / spec->kv_heads;
    const int64_t lowest = spec->k_positions[first], highest = spec->k_positions[end - 1];
    int64_t row = 0;
    while (row < span.q_count) {
        const int32_t *positions = spec->q_positions + span.q_first + row;
        const int64_t lead = QUERY_TERM - positions[0] % QUERY_TERM;
        int64_t count = lead < QUERY_TERM ? lead : QUERIES;
        if (count > span.q_count - row) count = span.q_count - row;
        const bool sees = positions[count - 1] >= lowest &&
            (spec->window == 0 || positions[0] - spec->window < highest);
        for (int64_t i = 0; sees && i < group; i++) {
            const query_run run = {
                .query = span.q_first + row,
                .queries = count,
                .head = block->kv_head * group + i,
                .key = first - block->key,
                .keys = end - first,
            };
            add_run(of, block, &run);
        }
        row += count;
    }
}

static void key_task(void *context, int64_t task, int worker)
{
    const attention_call *of = context;
    const cy_attention_spec *spec = of->spec;
    const cy_microkernel *ops = STRICT_BLOCK();
    const int64_t dim = spec->head_dim, columns = padded_columns(dim);
    char *scratch = of->scratch + (size_t)worker * of->bytes;
    key_block block = {.key = task / spec->kv_heads * ROWS, .kv_head = task % spec->kv_heads};
    block.keys = of->k.rows - block.key < ROWS ? of->k.rows - block.key : ROWS;
    block.k = take_floats(&scratch, ROWS * dim);
    block.v = take_floats(&scratch, ROWS * dim);
    block.p = take_floats(&scratch, ROWS * QUERIES);
    block.ds = take_floats(&scratch, ROWS * QUERIES);
    block.q_across = take_floats(&scratch, QUERIES * dim);
    block.d_o_across = take_floats(&scratch, QUERIES * dim);
    block.q = take_floats(&scratch, QUERIES * columns);
    block.d_o = take_floats(&scratch, QUERIES * columns);
    block.dk = take_floats(&scratch, ROWS * dim);
    block.dv = take_floats(&scratch, ROWS * dim);
    memset(block.dk, 0, (size_t)(block.keys * dim) * sizeof(float));
    memset(block.dv, 0, (size_t)(block.keys * dim) * sizeof(float));
    ops->pack_left(block.k, head_of(of->k, block.key, block.keys, block.kv_head, dim), false);
    ops->pack_left(block.v, head_of(of->v, block.key, block.keys, block.kv_head, dim), false);
    block.dk_terms = block.dv_terms = no_terms();
    for (int i = 0; i < spec->span_count; i++)
        add_span(of, &block, spec->spans[i]);
    const cy_view dk = head_of(of->dk, block.key, block.keys, block.kv_head, dim);
    const cy_view dv = head_of(of->dv, block.key, block.keys, block.kv_head, dim);
    if (!is_fixed(dk)) add_gradient(of->queue, dk, block.dk, dim);
    if (!is_fixed(dv)) add_gradient(of->queue, dv, block.dv, dim);
    note_terms(of->queue, dk, block.dk_terms);
    note_terms(of->queue, dv, block.dv_terms);
}

static bool gradient_supported(cy_view gradient)
{
    return supported(gradient) || is_fixed(gradient);
}

static void strict_attention_backward(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv,
    cy_view d_o, cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec)
{
    if (!attention_supported(q, lse) || !supported(d_o) || delta.dtype != CY_F32 ||
        !gradient_supported(dq) || !gradient_supported(dk) || !gradient_supported(dv)) {
        cy_ref_attention_backward(queue, dq, dk, dv, d_o, lse, delta, q, k, v, spec);
        return;
    }
    if (!spec->accumulate) {
        strict_fill(queue, dq, 0.0);
        strict_fill(queue, dk, 0.0);
        strict_fill(queue, dv, 0.0);
    }
    attention_call of = {
        .queue = queue,
        .lse = lse,
        .q = q,
        .k = k,
        .v = v,
        .d_o = d_o,
        .delta = delta,
        .dq = dq,
        .dk = dk,
        .dv = dv,
        .spec = spec,
    };
    const int64_t dim = spec->head_dim, columns = padded_columns(dim);
    run_attention(&of, query_task, row_block_count(spec) * spec->heads,
        3 * ROWS * dim + 2 * ROWS * KEYS + KEYS * (2 * dim + columns));
    run_attention(&of, key_task, cy_ceil_div(k.rows, ROWS) * spec->kv_heads,
        4 * ROWS * dim + 2 * ROWS * QUERIES + 2 * QUERIES * (dim + columns));
}

#endif
