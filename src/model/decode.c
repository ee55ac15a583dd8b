// Runs the forward pass of generation, for a batch of tokens and for one token by a team of
// threads.

#include "model/decode.h"

#include "base/memory.h"
#include "base/status.h"

// ---- a batch of tokens

static cy_block_stash stash_alloc(const cy_model_context *context, int64_t tokens)
{
    cy_block_stash stash = {0};
    cy_block_stash_alloc_to_input(&stash, context, context->queue->scratch, tokens);
    cy_block_stash_alloc_to_weight(&stash, context, context->queue->scratch, tokens, true);
    return stash;
}

cy_status cy_decode_forward(const cy_model_context *context, const cy_storage *storage, cy_view x,
    const cy_microbatch *batch)
{
    cy_arena *scratch = context->queue->scratch;
    const size_t mark = cy_arena_mark(scratch);
    const int layers = context->shape.layers;
    // Each layer reads one of these and writes the other; the last one writes x.
    const cy_view other = cy_view_alloc(scratch, context->dtype, x.rows, x.cols);
    cy_block_stash stash = stash_alloc(context, batch->tokens);
    cy_tensor_reduce_state pending = {0};
    cy_view in = layers % 2 == 0 ? x : other, out = layers % 2 == 0 ? other : x;
    CY_TRY(cy_embed_start(context, storage, in, batch, &pending));
    for (int i = 0; i < layers; i++) {
        const cy_layer layer = {context, storage, cy_storage_unit(storage, i)};
        stash.attention.x = in;
        CY_TRY(cy_block_forward(&layer, out, &stash, batch, &pending));
        // The next layer writes the residual that is added to what arrives.
        CY_TRY(cy_tensor_reduce_finish(&pending));
        in = out;
        out = out.data == x.data ? other : x;
    }
    cy_arena_rewind(scratch, mark);
    return CY_OK;
}

// ---- one token by a team of threads

// What a waiting thread asks for at most, of what it reads next: it has to fit into the cache that
// is its own, beside what is in use.
#define PREFETCH_BYTES  ((int64_t)512 << 10)
#define PREFETCH_RANGES 24 // of memory, at one meeting

#define PREFETCH_STEP 256 // bytes between two looks at the meeting

struct cy_decode_token_layer {
    cy_view norm1, qkv, qkv_bias, q_norm, k_norm, out, out_bias, norm2, gate, up, down;
};

typedef struct share {
    int64_t first, count;
} share;

typedef struct range {
    const char *at, *end;
} range;

struct cy_decode_token_worker {
    cy_queue queue; // without a pool: this thread alone
    cy_arena scratch;
    range expected[PREFETCH_RANGES]; // what is read next and has yet to be asked for
    int expected_count, expected_at;
    int64_t expected_bytes;
    share parts;     // of the token's attention
    cy_view x;       // [1, hidden]: the residual stream, the same in every thread
    cy_view n;       // [1, hidden]: normed
    cy_view inv_rms; // [1, 1]
    cy_view qkv;     // [1, (heads + 2 kv_heads) head_dim]: with positions
    cy_view o;       // [1, heads * head_dim]
};

// One token on its way; what the threads of a team share while it lasts.
typedef struct walk {
    cy_decode_token *row;
    const cy_microbatch *batch;
    cy_view logits;
} walk;

// ---- a thread's share of the work

// A worker's part of `count` columns: whole cache lines of 16-bit data, so that no line is written
// by two.
static share share_of(const cy_decode_token *row, int worker, int64_t count)
{
    const int64_t step = 32, steps = (count + step - 1) / step;
    const int64_t first = steps * worker / row->workers * step;
    const int64_t end = steps * (worker + 1) / row->workers * step;
    return (share){first, (end < count ? end : count) - first};
}

// Keys of all heads before part `number` of the attention of a token at `position`.
static int64_t keys_before(const cy_attention_spec *spec, int64_t position, int64_t number)
{
    const int64_t seen = cy_attention_first(spec, position);
    const int64_t start = seen / CY_ATTENTION_PART * CY_ATTENTION_PART;
    int64_t bound[2]; // of the part: the first is of those before, too
    for (int i = 0; i < 2; i++) {
        bound[i] = start + (number / spec->kv_heads + i) * CY_ATTENTION_PART;
        if (bound[i] < seen) bound[i] = seen;
        if (bound[i] > position + 1) bound[i] = position + 1;
    }
    return spec->kv_heads * (bound[0] - seen) + number % spec->kv_heads * (bound[1] - bound[0]);
}

// The number of the first part of worker `worker`: as many keys for each as whole parts allow.
static int64_t first_part(const cy_decode_token *row, int64_t position, int worker)
{
    const cy_attention_spec spec = cy_model_attention(row->context);
    const int64_t count = cy_attention_part_count(&spec, position);
    const int64_t wanted = keys_before(&spec, position, count) * worker / row->workers;
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = keys_before(&spec, position, i);
        const int64_t end = keys_before(&spec, position, i + 1);
        if (begin + end >= 2 * wanted) return i;
    }
    return count;
}

static share parts_of(const cy_decode_token *row, int worker, int64_t position)
{
    const int64_t first = first_part(row, position, worker);
    return (share){first, first_part(row, position, worker + 1) - first};
}

static cy_view rows_of(cy_view weight, share mine)
{
    return cy_view_rows(weight, mine.first, mine.count);
}

static cy_view cols_of(cy_view view, share mine)
{
    return cy_view_cols(view, mine.first, mine.count);
}

// ---- barriers, and prefetching while a thread waits

// Asks for a few lines of what is expected.
static void ask(void *context)
{
    cy_decode_token_worker *self = context;
    for (int i = 0; i < PREFETCH_STEP && self->expected_at < self->expected_count; i += 64) {
        range *from = &self->expected[self->expected_at];
        __builtin_prefetch(from->at);
        from->at += 64;
        if (from->at >= from->end) self->expected_at++;
    }
}

// What the thread reads after the next meeting, as far as there is room for it.
static void prefetch(cy_decode_token_worker *self, const void *data, int64_t bytes)
{
    const int64_t room = PREFETCH_BYTES - self->expected_bytes;
    const int64_t taken = bytes < room ? bytes : room;
    if (taken <= 0 || self->expected_count == PREFETCH_RANGES) return;
    self->expected[self->expected_count++] = (range){data, (const char *)data + taken};
    self->expected_bytes += taken;
}

static void prefetch_rows(const walk *at, int worker, cy_view weight)
{
    const cy_view mine = rows_of(weight, share_of(at->row, worker, weight.rows));
    prefetch(&at->row->each[worker], mine.data, (int64_t)cy_view_bytes(mine));
}

// The rows of keys or values, of all heads, at the first of these positions and those after it, as
// far as its page goes.
static cy_view page_rows(const walk *at, const cy_kv_pages *pages, cy_view rows, share positions)
{
    const cy_microbatch *batch = at->batch;
    const int64_t room = pages->page_size - positions.first % pages->page_size;
    const int64_t row = cy_kv_row(
        pages, batch->cache->page_table_host, batch->cache->sequences_host[0], positions.first);
    return cy_view_rows(rows, row, positions.count < room ? positions.count : room);
}

// The positions that this thread's parts are of.
static share positions_of(const walk *at, int worker)
{
    const cy_attention_spec spec = cy_model_attention(at->row->context);
    const int64_t position = at->batch->cache->positions_host[0];
    const share parts = at->row->each[worker].parts;
    if (parts.count == 0) return (share){0};
    const int64_t seen = cy_attention_first(&spec, position), base = seen / CY_ATTENTION_PART;
    int64_t first = (base + parts.first / spec.kv_heads) * CY_ATTENTION_PART;
    int64_t end = (base + (parts.first + parts.count - 1) / spec.kv_heads + 1) * CY_ATTENTION_PART;
    if (first < seen) first = seen;
    if (end > position + 1) end = position + 1;
    return (share){first, end - first};
}

static void prefetch_cache(const walk *at, int worker, int layer)
{
    cy_decode_token_worker *self = &at->row->each[worker];
    const cy_kv_pages *pages = &at->row->pages[layer];
    share left = positions_of(at, worker);
    while (left.count > 0) {
        const cy_view keys = page_rows(at, pages, pages->keys, left);
        const cy_view values = page_rows(at, pages, pages->values, left);
        prefetch(self, keys.data, (int64_t)cy_view_bytes(keys));
        prefetch(self, values.data, (int64_t)cy_view_bytes(values));
        left = (share){left.first + keys.rows, left.count - keys.rows};
    }
}

static void prefetch_none(cy_decode_token_worker *self)
{
    self->expected_count = 0;
    self->expected_at = 0;
    self->expected_bytes = 0;
}

// All threads have written what they had to; meanwhile this one asks for what it expects.
static void meet(const walk *at, int worker)
{
    cy_decode_token_worker *self = &at->row->each[worker];
    if (!self->queue.dry) cy_thread_pool_barrier(at->row->context->queue->pool, ask, self);
    prefetch_none(self);
}

// ---- one layer of one token

// This thread's columns of y = x W^T, with a bias where there is one. What it expects is read next.
static void multiply(const walk *at, int worker, cy_view y, cy_view x, cy_view weight, cy_view bias)
{
    cy_decode_token_worker *self = &at->row->each[worker];
    const share mine = share_of(at->row, worker, weight.rows);
    if (mine.count == 0) return;
    const cy_view part = cols_of(y, mine);
    const cy_matmul_spec spec = {
        .transpose_b = true,
        .next = self->expected_count > 0 ? self->expected[0].at : NULL,
    };
    cy_matmul(&self->queue, part, x, rows_of(weight, mine), spec);
    if (!cy_view_is_none(bias)) cy_add_bias(&self->queue, part, cols_of(bias, mine));
}

// Heads [cols of one row] under the norm of Qwen3: rows of one head are what the kernel wants.
static void norm_heads(const walk *at, cy_decode_token_worker *self, cy_view heads, cy_view weight)
{
    if (cy_view_is_none(weight)) return;
    const int64_t dim = at->row->context->shape.head_dim, count = heads.cols / dim;
    cy_arena *scratch = self->queue.scratch;
    const size_t mark = cy_arena_mark(scratch);
    const cy_view x = cy_view_of(heads.data, heads.dtype, count, dim);
    const cy_view y = cy_view_alloc(scratch, heads.dtype, count, dim);
    const cy_view inv_rms = cy_view_alloc(scratch, self->inv_rms.dtype, 1, count);
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

// Writes the token's key and value for the heads whose last part is this thread's: no other reads
// them.
static void write_pages(const walk *at, int worker, int layer, cy_view k, cy_view v, int64_t parts)
{
    const cy_decode_token *row = at->row;
    const share mine = row->each[worker].parts;
    const int64_t dim = row->context->shape.head_dim;
    const int64_t last = parts - row->context->kv_heads_local; // the first that has this position
    const int64_t first = mine.first > last ? mine.first : last;
    const share cols = {(first - last) * dim, (mine.first + mine.count - first) * dim};
    if (cols.count <= 0) return;
    const cy_kv_pages pages = pages_of(&row->pages[layer], cols);
    cy_kv_pages_write(
        &row->each[worker].queue, &pages, cols_of(k, cols), cols_of(v, cols), at->batch->cache, 0);
}

// This thread's parts of the attention of all heads.
static void attend(const walk *at, int worker, int layer)
{
    const cy_model_context *context = at->row->context;
    const cy_decode_token_layer *weights = &at->row->layers[layer];
    const cy_microbatch *batch = at->batch;
    cy_decode_token_worker *self = &at->row->each[worker];
    const share mine = self->parts;
    if (mine.count == 0) return;
    const int64_t q_cols = cy_model_q_cols(context), kv_cols = cy_model_kv_cols(context);
    const cy_view q = cy_view_cols(self->qkv, 0, q_cols);
    const cy_view k = cy_view_cols(self->qkv, q_cols, kv_cols);
    const cy_view v = cy_view_cols(self->qkv, q_cols + kv_cols, kv_cols);
    const cy_attention_spec spec = cy_model_attention(context);

    cy_copy(&self->queue, self->qkv, at->row->qkv);
    norm_heads(at, self, q, weights->q_norm);
    norm_heads(at, self, k, weights->k_norm);
    cy_rope(&self->queue, self->qkv, context->rope, batch->positions, spec.heads + spec.kv_heads,
        false);
    write_pages(
        at, worker, layer, k, v, cy_attention_part_count(&spec, batch->cache->positions_host[0]));
    cy_attention_split(&self->queue, rows_of(at->row->parts, mine), q, &at->row->pages[layer],
        batch->cache->sequences, batch->positions, &spec, mine.first);
}

// o, the same in every thread, from the parts of all.
static void join(const walk *at, cy_decode_token_worker *self)
{
    const cy_attention_spec spec = cy_model_attention(at->row->context);
    const int64_t count = cy_attention_part_count(&spec, at->batch->cache->positions_host[0]);
    cy_attention_combine(&self->queue, self->o, cy_view_rows(at->row->parts, 0, count), &spec);
}

// This thread's columns of act = swiglu(gate, up).
static void feed(const walk *at, int worker, const cy_decode_token_layer *weights)
{
    cy_decode_token_worker *self = &at->row->each[worker];
    const share mine = share_of(at->row, worker, weights->gate.rows);
    if (mine.count == 0) return;
    cy_arena *scratch = self->queue.scratch;
    const size_t mark = cy_arena_mark(scratch);
    const cy_view gate_up = cy_view_alloc(scratch, at->row->act.dtype, 1, 2 * mine.count);
    const cy_view gate = rows_of(weights->gate, mine), up = rows_of(weights->up, mine);
    cy_matmul(&self->queue, cy_view_cols(gate_up, 0, mine.count), self->n, gate,
        (cy_matmul_spec){.transpose_b = true, .next = up.data});
    cy_matmul(&self->queue, cy_view_cols(gate_up, mine.count, mine.count), self->n, up,
        (cy_matmul_spec){
            .transpose_b = true, .next = self->expected_count > 0 ? self->expected[0].at : NULL});
    cy_swiglu_forward(&self->queue, cols_of(at->row->act, mine), gate_up);
    cy_arena_rewind(scratch, mark);
}

// n = norm of x, which the branch is added to before, except where there is none yet.
static void norm(const walk *at, cy_decode_token_worker *self, cy_view branch, cy_view weight)
{
    cy_norm_forward(&self->queue, self->n, self->inv_rms, self->x, branch, weight,
        at->row->context->shape.norm_eps);
}

static void walk_layer(const walk *at, int worker, int layer)
{
    const cy_decode_token *row = at->row;
    const cy_decode_token_layer *weights = &row->layers[layer];
    cy_decode_token_worker *self = &row->each[worker];
    const bool last = layer + 1 == row->context->shape.layers;

    norm(at, self, layer == 0 ? cy_view_none() : row->branch, weights->norm1);
    prefetch_cache(at, worker, layer);
    prefetch_rows(at, worker, weights->out);
    multiply(at, worker, row->qkv, self->n, weights->qkv, weights->qkv_bias);
    meet(at, worker);
    attend(at, worker, layer);
    prefetch_rows(at, worker, weights->out);
    meet(at, worker);
    join(at, self);
    prefetch_rows(at, worker, weights->gate);
    multiply(at, worker, row->branch, self->o, weights->out, weights->out_bias);
    meet(at, worker);
    norm(at, self, row->branch, weights->norm2);
    prefetch_rows(at, worker, weights->down);
    feed(at, worker, weights);
    meet(at, worker);
    prefetch_rows(at, worker, last ? row->head : row->layers[layer + 1].qkv);
    multiply(at, worker, row->branch, row->act, weights->down, cy_view_none());
    meet(at, worker);
}

static void walk_all(void *context, int64_t task, int worker)
{
    (void)task;
    const walk *at = context;
    const cy_decode_token *row = at->row;
    cy_decode_token_worker *self = &row->each[worker];
    prefetch_none(self);
    self->parts = parts_of(row, worker, at->batch->cache->positions_host[0]);
    cy_embedding_forward(&self->queue, self->x, row->embedding, at->batch->inputs, 0);
    for (int layer = 0; layer < row->context->shape.layers; layer++)
        walk_layer(at, worker, layer);
    norm(at, self, row->branch, row->final_norm);
    prefetch_rows(at, worker, row->layers[0].qkv); // of the next token
    multiply(at, worker, at->logits, self->n, row->head, cy_view_none());
}

// ---- opening, planning and placing

cy_status cy_decode_token_open(cy_decode_token *row, const cy_model_context *context)
{
    CY_ASSERT(cy_group_size(context->tp.group) == 1);
    *row = (cy_decode_token){.context = context, .workers = cy_queue_workers(context->queue)};
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)context->shape.layers, sizeof(cy_decode_token_layer)));
    row->layers = block;
    const cy_status status =
        cy_memory_alloc(&block, (size_t)row->workers, sizeof(cy_decode_token_worker));
    if (status == CY_OK) row->each = block;
    if (status != CY_OK) cy_decode_token_close(row);
    return status;
}

void cy_decode_token_close(cy_decode_token *row)
{
    cy_memory_free(row->layers);
    cy_memory_free(row->each);
    *row = (cy_decode_token){0};
}

static cy_decode_token_layer weights_of(const cy_head *head, int layer)
{
    const cy_storage *storage = head->storage;
    const cy_model_shape *shape = &head->context->shape;
    const int unit = cy_storage_unit(storage, layer);
    const int more = shape->qkv_bias ? 2 : 0;
    return (cy_decode_token_layer){
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

// As many parts as the attention of a token can have: of all pages, or of the window, which may
// begin and end within a part.
static cy_view take_parts(const cy_model_context *context, cy_arena *run, const cy_kv_pages *pages)
{
    cy_attention_spec spec = cy_model_attention(context);
    const int64_t positions = pages[0].page_size * pages[0].pages_per_sequence;
    const int64_t window = spec.window > 0 ? spec.window + CY_ATTENTION_PART : positions;
    spec.window = 0;
    const int64_t most = window < positions ? window : positions;
    return cy_view_alloc(run, context->sum_dtype, cy_attention_part_count(&spec, most - 1),
        cy_attention_split_cols(&spec));
}

void cy_decode_token_alloc(
    cy_decode_token *row, cy_arena *run, const cy_head *head, const cy_kv_pages *pages)
{
    const cy_model_context *context = row->context;
    const cy_model_shape *shape = &context->shape;
    const int64_t q_cols = cy_model_q_cols(context);
    const int64_t kv_cols = cy_model_kv_cols(context);
    row->qkv = cy_view_alloc(run, context->dtype, 1, q_cols + 2 * kv_cols);
    row->parts = take_parts(context, run, pages);
    row->branch = cy_view_alloc(run, context->dtype, 1, shape->hidden);
    row->act = cy_view_alloc(run, context->dtype, 1, context->ffn_local);
    for (int i = 0; i < row->workers; i++) {
        cy_decode_token_worker *self = &row->each[i];
        self->x = cy_view_alloc(run, context->dtype, 1, shape->hidden);
        self->n = cy_view_alloc(run, context->dtype, 1, shape->hidden);
        self->inv_rms = cy_view_alloc(run, context->sum_dtype, 1, 1);
        self->qkv = cy_view_alloc(run, context->dtype, 1, q_cols + 2 * kv_cols);
        self->o = cy_view_alloc(run, context->dtype, 1, q_cols);
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

static void open_queue(cy_decode_token *row, int worker, bool dry)
{
    cy_decode_token_worker *self = &row->each[worker];
    const cy_queue *from = row->context->queue;
    self->queue = (cy_queue){
        .kernels = from->kernels,
        .kernel_state = from->kernel_state,
        .scratch = &self->scratch,
        .dry = dry,
    };
}

size_t cy_decode_token_plan(cy_decode_token *row)
{
    static const int32_t zero[1] = {0};
    const cy_cache_batch cache = {
        .sequences = zero,
        .positions_host = zero,
        .sequences_host = zero,
        .page_table_host = zero,
        .pages = row->pages,
    };
    const cy_microbatch batch = {.tokens = 1, .inputs = zero, .positions = zero, .cache = &cache};
    walk at = {.row = row, .batch = &batch};
    row->worker_bytes = 0;
    for (int i = 0; i < row->workers; i++) {
        cy_arena_measure(&row->each[i].scratch, "row");
        open_queue(row, i, true);
        at.logits =
            cy_view_alloc(&row->each[i].scratch, row->context->sum_dtype, 1, row->head.rows);
        walk_all(&at, i, i);
        const size_t bytes = row->each[i].scratch.peak;
        if (bytes > row->worker_bytes) row->worker_bytes = bytes;
    }
    return row->worker_bytes * (size_t)row->workers;
}

void cy_decode_token_bind(cy_decode_token *row, void *base)
{
    for (int i = 0; i < row->workers; i++) {
        char *at = (char *)base + (size_t)i * row->worker_bytes;
        cy_arena_init(&row->each[i].scratch, "row", at, row->worker_bytes);
        open_queue(row, i, false);
    }
}

void cy_decode_token_forward(cy_decode_token *row, cy_view logits, const cy_microbatch *batch)
{
    CY_ASSERT(batch->tokens == 1);
    walk at = {.row = row, .batch = batch, .logits = logits};
    cy_thread_pool_run_team(row->context->queue->pool, walk_all, &at);
}
