#include "model/decode_row.h"

#include "base/assert.h"
#include "base/memory.h"

// What a waiting thread asks for at most, of the weights that it reads next: it has to fit into the
// cache that is its own, beside what is in use.
#define EXPECT_BYTES ((int64_t)512 << 10)

#define EXPECT_STEP 256 // bytes between two looks at the meeting

struct cy_decode_row_layer {
    cy_view norm1, qkv, qkv_bias, q_norm, k_norm, out, out_bias, norm2, gate, up, down;
};

struct cy_decode_row_worker {
    cy_queue queue; // without a pool: this thread alone
    cy_arena scratch;
    const char *expected, *expected_end; // weights to be asked for
    cy_view x;       // [1, hidden]: the residual stream, the same in every thread
    cy_view n;       // [1, hidden]: normed
    cy_view inv_rms; // [1, 1]
};

// One token on its way; what the threads of a team share while it lasts.
typedef struct walk {
    cy_decode_row *row;
    const cy_decode_batch *batch;
    cy_view logits;
} walk;

// ---- shares

typedef struct share {
    int64_t first, count;
} share;

// A worker's part of `count` columns: whole cache lines of 16-bit data, so that no line is written
// by two.
static share share_of(const cy_decode_row *row, int worker, int64_t count)
{
    const int64_t step = 32, steps = (count + step - 1) / step;
    const int64_t first = steps * worker / row->workers * step;
    const int64_t end = steps * (worker + 1) / row->workers * step;
    return (share){first, (end < count ? end : count) - first};
}

static share heads_of(const cy_decode_row *row, int worker)
{
    const int64_t heads = row->context->kv_heads_local;
    const int64_t first = heads * worker / row->workers;
    return (share){first, heads * (worker + 1) / row->workers - first};
}

static cy_view rows_of(cy_view weight, share mine)
{
    return cy_view_rows(weight, mine.first, mine.count);
}

static cy_view cols_of(cy_view view, share mine)
{
    return cy_view_cols(view, mine.first, mine.count);
}

// ---- meetings

static void ask(void *context)
{
    cy_decode_row_worker *self = context;
    for (int i = 0; i < EXPECT_STEP && self->expected < self->expected_end; i += 64) {
        __builtin_prefetch(self->expected);
        self->expected += 64;
    }
}

// All threads have written what they had to; meanwhile this one asks for its rows of `next`.
static void meet(const walk *at, int worker, cy_view next)
{
    cy_decode_row_worker *self = &at->row->each[worker];
    if (self->queue.dry) return;
    const cy_view mine = rows_of(next, share_of(at->row, worker, next.rows));
    const int64_t bytes = (int64_t)cy_view_bytes(mine);
    self->expected = mine.data;
    self->expected_end = self->expected + (bytes < EXPECT_BYTES ? bytes : EXPECT_BYTES);
    cy_pool_meet(at->row->context->queue->pool, ask, self);
}

// ---- a layer

// This thread's columns of y = x W^T, with a bias where there is one.
static void multiply(
    const walk *at, int worker, cy_view y, cy_view x, cy_view weight, cy_view bias, cy_view next)
{
    cy_decode_row_worker *self = &at->row->each[worker];
    const share mine = share_of(at->row, worker, weight.rows);
    if (mine.count == 0) return;
    const share then = share_of(at->row, worker, next.rows);
    const cy_view part = cols_of(y, mine);
    const cy_matmul_spec spec = {
        .transpose_b = true,
        .next = then.count > 0 ? rows_of(next, then).data : NULL,
    };
    cy_matmul(&self->queue, part, x, rows_of(weight, mine), spec);
    if (!cy_view_is_none(bias)) cy_add_bias(&self->queue, part, cols_of(bias, mine));
}

// Heads [cols of one row] under the norm of Qwen3: rows of one head are what the kernel wants.
static void norm_heads(const walk *at, cy_decode_row_worker *self, cy_view heads, cy_view weight)
{
    if (cy_view_is_none(weight)) return;
    const int64_t dim = at->row->context->shape.head_dim, count = heads.cols / dim;
    cy_arena *scratch = self->queue.scratch;
    const size_t mark = cy_arena_mark(scratch);
    const cy_view x = cy_view_of(heads.data, heads.dtype, count, dim);
    const cy_view y = cy_view_take(scratch, heads.dtype, count, dim);
    const cy_view inv_rms = cy_view_take(scratch, self->inv_rms.dtype, 1, count);
    cy_norm_forward(
        &self->queue, y, inv_rms, x, cy_view_none(), weight, at->row->context->shape.norm_eps);
    cy_copy(&self->queue, x, y);
    cy_arena_rewind(scratch, mark);
}

// The cache, as far as it holds some heads.
static cy_kv_pages pages_of(const cy_kv_pages *pages, share cols)
{
    cy_kv_pages some = *pages;
    some.keys = cols_of(pages->keys, cols);
    some.values = cols_of(pages->values, cols);
    return some;
}

// o of this thread's kv heads and the query heads that read them.
static void attend(const walk *at, int worker, int layer)
{
    const cy_model_context *context = at->row->context;
    const cy_decode_row_layer *weights = &at->row->layers[layer];
    const cy_decode_batch *batch = at->batch;
    cy_decode_row_worker *self = &at->row->each[worker];
    const share mine = heads_of(at->row, worker);
    if (mine.count == 0) return;
    const int64_t dim = context->shape.head_dim;
    const int64_t group = context->heads_local / context->kv_heads_local;
    const int64_t q_cols = context->heads_local * dim, kv_cols = context->kv_heads_local * dim;
    const share q_share = {mine.first * group * dim, mine.count * group * dim};
    const share kv_share = {mine.first * dim, mine.count * dim};
    const cy_view q = cols_of(cy_view_cols(at->row->qkv, 0, q_cols), q_share);
    const cy_view k = cols_of(cy_view_cols(at->row->qkv, q_cols, kv_cols), kv_share);
    const cy_view v = cols_of(cy_view_cols(at->row->qkv, q_cols + kv_cols, kv_cols), kv_share);
    const cy_kv_pages pages = pages_of(&at->row->pages[layer], kv_share);

    norm_heads(at, self, q, weights->q_norm);
    norm_heads(at, self, k, weights->k_norm);
    const int heads = (int)(mine.count * group), kv_heads = (int)mine.count;
    cy_rope(&self->queue, q, context->rope, batch->positions, heads, false);
    cy_rope(&self->queue, k, context->rope, batch->positions, kv_heads, false);
    cy_decode_write_pages(&self->queue, &pages, k, v, batch);
    cy_attention_spec spec = cy_model_attention(context);
    spec.heads = heads;
    spec.kv_heads = kv_heads;
    cy_attention_paged(&self->queue, cols_of(at->row->o, q_share), q, &pages, batch->sequences,
        batch->positions, &spec);
}

// This thread's columns of act = swiglu(gate, up).
static void feed(const walk *at, int worker, const cy_decode_row_layer *weights)
{
    cy_decode_row_worker *self = &at->row->each[worker];
    const share mine = share_of(at->row, worker, weights->gate.rows);
    if (mine.count == 0) return;
    const share then = share_of(at->row, worker, weights->down.rows);
    cy_arena *scratch = self->queue.scratch;
    const size_t mark = cy_arena_mark(scratch);
    const cy_view gate_up = cy_view_take(scratch, at->row->act.dtype, 1, 2 * mine.count);
    const cy_view gate = rows_of(weights->gate, mine), up = rows_of(weights->up, mine);
    cy_matmul(&self->queue, cy_view_cols(gate_up, 0, mine.count), self->n, gate,
        (cy_matmul_spec){.transpose_b = true, .next = up.data});
    cy_matmul(&self->queue, cy_view_cols(gate_up, mine.count, mine.count), self->n, up,
        (cy_matmul_spec){.transpose_b = true,
            .next = then.count > 0 ? rows_of(weights->down, then).data : NULL});
    cy_swiglu_forward(&self->queue, cols_of(at->row->act, mine), gate_up);
    cy_arena_rewind(scratch, mark);
}

// n = norm of x, which the branch is added to before, except where there is none yet.
static void norm(const walk *at, cy_decode_row_worker *self, cy_view branch, cy_view weight)
{
    cy_norm_forward(&self->queue, self->n, self->inv_rms, self->x, branch, weight,
        at->row->context->shape.norm_eps);
}

static void walk_layer(const walk *at, int worker, int layer)
{
    const cy_decode_row *row = at->row;
    const cy_decode_row_layer *weights = &row->layers[layer];
    cy_decode_row_worker *self = &row->each[worker];
    const bool last = layer + 1 == row->context->shape.layers;
    const cy_view after = last ? row->head : row->layers[layer + 1].qkv;

    norm(at, self, layer == 0 ? cy_view_none() : row->branch, weights->norm1);
    multiply(at, worker, row->qkv, self->n, weights->qkv, weights->qkv_bias, weights->out);
    meet(at, worker, weights->out);
    attend(at, worker, layer);
    meet(at, worker, weights->out);
    multiply(at, worker, row->branch, row->o, weights->out, weights->out_bias, weights->gate);
    meet(at, worker, weights->gate);
    norm(at, self, row->branch, weights->norm2);
    feed(at, worker, weights);
    meet(at, worker, weights->down);
    multiply(at, worker, row->branch, row->act, weights->down, cy_view_none(), after);
    meet(at, worker, after);
}

static void walk_all(void *context, int64_t task, int worker)
{
    (void)task;
    const walk *at = context;
    const cy_decode_row *row = at->row;
    cy_decode_row_worker *self = &row->each[worker];
    cy_embedding_forward(&self->queue, self->x, row->embedding, at->batch->inputs, 0);
    for (int layer = 0; layer < row->context->shape.layers; layer++)
        walk_layer(at, worker, layer);
    norm(at, self, row->branch, row->final_norm);
    multiply(at, worker, at->logits, self->n, row->head, cy_view_none(), row->layers[0].qkv);
}

// ---- open, plan, place

cy_status cy_decode_row_open(cy_decode_row *row, const cy_model_context *context)
{
    CY_ASSERT(cy_group_size(context->tensor.group) == 1);
    *row = (cy_decode_row){.context = context, .workers = cy_queue_workers(context->queue)};
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, (size_t)context->shape.layers, sizeof(cy_decode_row_layer)));
    row->layers = block;
    const cy_status status =
        cy_memory_take(&block, (size_t)row->workers, sizeof(cy_decode_row_worker));
    if (status == CY_OK) row->each = block;
    if (status != CY_OK) cy_decode_row_close(row);
    return status;
}

void cy_decode_row_close(cy_decode_row *row)
{
    cy_memory_free(row->layers);
    cy_memory_free(row->each);
    *row = (cy_decode_row){0};
}

static cy_decode_row_layer weights_of(const cy_head *head, int layer)
{
    const cy_storage *storage = head->storage;
    const cy_model_shape *shape = &head->context->shape;
    const int unit = cy_storage_unit(storage, layer);
    const int more = shape->qkv_bias ? 2 : 0;
    return (cy_decode_row_layer){
        .norm1 = cy_storage_weight(storage, unit, CY_ROLE_NORM1, 0),
        .qkv = cy_storage_weight(storage, unit, CY_ROLE_Q, 2),
        .qkv_bias = cy_storage_weight(storage, unit, CY_ROLE_Q_BIAS, more),
        .q_norm = cy_storage_weight(storage, unit, CY_ROLE_Q_NORM, 0),
        .k_norm = cy_storage_weight(storage, unit, CY_ROLE_K_NORM, 0),
        .out = cy_storage_weight(storage, unit, CY_ROLE_OUT, 0),
        .out_bias = cy_storage_weight(storage, unit, CY_ROLE_OUT_BIAS, 0),
        .norm2 = cy_storage_weight(storage, unit, CY_ROLE_NORM2, 0),
        .gate = cy_storage_weight(storage, unit, CY_ROLE_GATE, 0),
        .up = cy_storage_weight(storage, unit, CY_ROLE_UP, 0),
        .down = cy_storage_weight(storage, unit, CY_ROLE_DOWN, 0),
    };
}

void cy_decode_row_take(
    cy_decode_row *row, cy_arena *run, const cy_head *head, const cy_kv_pages *pages)
{
    const cy_model_context *context = row->context;
    const cy_model_shape *shape = &context->shape;
    const int64_t q_cols = context->heads_local * shape->head_dim;
    const int64_t kv_cols = context->kv_heads_local * shape->head_dim;
    row->qkv = cy_view_take(run, context->dtype, 1, q_cols + 2 * kv_cols);
    row->o = cy_view_take(run, context->dtype, 1, q_cols);
    row->branch = cy_view_take(run, context->dtype, 1, shape->hidden);
    row->act = cy_view_take(run, context->dtype, 1, context->ffn_local);
    for (int i = 0; i < row->workers; i++) {
        cy_decode_row_worker *self = &row->each[i];
        self->x = cy_view_take(run, context->dtype, 1, shape->hidden);
        self->n = cy_view_take(run, context->dtype, 1, shape->hidden);
        self->inv_rms = cy_view_take(run, context->sum_dtype, 1, 1);
    }
    const cy_role matrix = shape->tied ? CY_ROLE_EMBED : CY_ROLE_HEAD;
    const int embedding = cy_storage_unit(head->storage, -1);
    row->pages = pages;
    row->embedding = cy_storage_weight(head->storage, embedding, CY_ROLE_EMBED, 0);
    row->final_norm = cy_storage_weight(head->storage, head->norm_unit, CY_ROLE_FINAL_NORM, 0);
    row->head = cy_storage_weight(head->storage, head->matrix_unit, matrix, 0);
    for (int i = 0; i < shape->layers; i++)
        row->layers[i] = weights_of(head, i);
}

static void open_queue(cy_decode_row *row, int worker, bool dry)
{
    cy_decode_row_worker *self = &row->each[worker];
    const cy_queue *from = row->context->queue;
    self->queue = (cy_queue){
        .kernels = from->kernels,
        .kernel_state = from->kernel_state,
        .scratch = &self->scratch,
        .dry = dry,
    };
}

size_t cy_decode_row_plan(cy_decode_row *row)
{
    static const int32_t zero[1] = {0};
    const cy_decode_batch batch = {
        .tokens = 1,
        .inputs = zero,
        .positions = zero,
        .sequences = zero,
        .positions_host = zero,
        .sequences_host = zero,
        .page_table_host = zero,
        .pages = row->pages,
    };
    walk at = {.row = row, .batch = &batch};
    row->worker_bytes = 0;
    for (int i = 0; i < row->workers; i++) {
        cy_arena_measure(&row->each[i].scratch, "row");
        open_queue(row, i, true);
        at.logits = cy_view_take(&row->each[i].scratch, row->context->sum_dtype, 1, row->head.rows);
        walk_all(&at, i, i);
        const size_t bytes = row->each[i].scratch.peak;
        if (bytes > row->worker_bytes) row->worker_bytes = bytes;
    }
    return row->worker_bytes * (size_t)row->workers;
}

void cy_decode_row_place(cy_decode_row *row, void *base)
{
    for (int i = 0; i < row->workers; i++) {
        char *at = (char *)base + (size_t)i * row->worker_bytes;
        cy_arena_place(&row->each[i].scratch, "row", at, row->worker_bytes);
        open_queue(row, i, false);
    }
}

void cy_decode_row_forward(cy_decode_row *row, cy_view logits, const cy_decode_batch *batch)
{
    CY_ASSERT(batch->tokens == 1);
    walk at = {.row = row, .batch = batch, .logits = logits};
    cy_pool_team(row->context->queue->pool, walk_all, &at);
}
