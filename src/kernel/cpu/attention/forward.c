// Computes attention forward over spans of queries and keys, merges the results over two sets of
// keys, and computes the row sums (delta) that the backward pass needs. Holds the attention slots
// of the table.

#include "kernel/cpu/cpu.h"
#include "kernel/ref/ref.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

// Query rows of a task: enough to pay for packing a block of keys, and few enough that scores,
// weights and sums stay in L2.
#define TASK_ROWS 384

typedef struct forward_call {
    cy_queue *queue;
    const cy_attention_ops *ops;
    cy_view o, lse, q, k, v;
    const cy_attention_spec *spec;
    int64_t block;    // query positions of a task
    int64_t task_max; // query blocks of the longest span
    char *scratch;    // [workers, bytes]
    size_t bytes;
} forward_call;

void cy_flash_layout(cy_flash_state *state, char *base, size_t *used, int64_t rows)
{
    const cy_microkernel *ops = state->ops;
    const size_t row_count = (size_t)rows, keys = CY_FLASH_KEYS, floats = sizeof(float);
    state->depth = cy_round_up(state->head_dim, ops->depth_step);
    state->out_cols = cy_round_up(state->head_dim, CY_MICROKERNEL_COLS);
    state->queries =
        cy_flash_alloc(base, used, cy_microkernel_left_bytes(ops, rows, state->head_dim));
    state->keys =
        cy_flash_alloc(base, used, cy_microkernel_right_bytes(ops, CY_FLASH_KEYS, state->head_dim));
    state->values =
        cy_flash_alloc(base, used, cy_microkernel_right_bytes(ops, state->head_dim, CY_FLASH_KEYS));
    state->scores = cy_flash_alloc(base, used, row_count * keys * floats);
    state->weights = cy_flash_alloc(base, used, row_count * keys * cy_dtype_size(ops->dtype));
    state->left = cy_flash_alloc(base, used, cy_microkernel_left_bytes(ops, rows, CY_FLASH_KEYS));
    state->out = cy_flash_alloc(base, used, row_count * (size_t)state->out_cols * floats);
    state->max = cy_flash_alloc(base, used, row_count * floats);
    state->sum = cy_flash_alloc(base, used, row_count * floats);
    state->ranges = cy_flash_alloc(base, used, row_count * sizeof(cy_row_range));
    state->seen = cy_flash_alloc(base, used, row_count * sizeof(cy_row_range));
}

void cy_flash_start(cy_flash_state *state)
{
    memset(state->out, 0, (size_t)(state->row_count * state->out_cols) * sizeof(float));
    for (int64_t i = 0; i < state->row_count; i++) {
        state->max[i] = -INFINITY;
        state->sum[i] = 0.0f;
    }
}

// Rows of a block that are multiplied together. Along the diagonal their products end at the last
// key that any of them sees, on average half this many keys too late.
#define STEP_ROWS 32

// The next rows from `row` on, STEP_ROWS or a multiple of it, that see no key of a block behind the
// same one: behind *last.
static int64_t rows_of_step(const cy_flash_state *state, int64_t row, int64_t *last)
{
    int64_t end = row;
    *last = 0;
    while (end < state->row_count) {
        const int64_t stop =
            end + STEP_ROWS < state->row_count ? end + STEP_ROWS : state->row_count;
        int64_t most = 0;
        for (int64_t i = end; i < stop; i++) {
            if (state->seen[i].last > most) most = state->seen[i].last;
        }
        if (end > row && most != *last) break;
        *last = most;
        end = stop;
    }
    return end - row;
}

// out += weights times the first `seen` of `depth` packed values, for some of the rows.
static void add_values(const cy_flash_state *state, int64_t row, int64_t rows, int64_t stride,
    int64_t depth, int64_t seen)
{
    if (seen == 0) return; // masked rows
    const cy_microkernel *ops = state->ops;
    const size_t panel = cy_microkernel_right_bytes(ops, CY_MICROKERNEL_COLS, depth);
    cy_view weights = cy_view_of(state->weights, ops->dtype, row + rows, seen);
    weights.stride = stride;
    int64_t left_stride;
    const void *left =
        cy_microkernel_left(ops, state->left, &left_stride, cy_view_rows(weights, row, rows));
    float *out = state->out + row * state->out_cols;
    // A part of the depth lies together in one panel only.
    const int64_t step = seen < depth ? CY_MICROKERNEL_COLS : state->out_cols;
    for (int64_t col = 0; col < state->out_cols; col += step) {
        ops->multiply(out + col, state->out_cols, left, left_stride,
            (char *)state->values + (size_t)(col / CY_MICROKERNEL_COLS) * panel, rows, step, seen,
            true);
    }
}

void cy_flash_step(cy_flash_state *state, cy_view keys, cy_view values, int64_t first)
{
    const cy_microkernel *ops = state->ops;
    bool any = false;
    for (int64_t i = 0; i < state->row_count; i++) {
        const cy_row_range range = state->ranges[i];
        state->seen[i] = cy_flash_visible(range, first, keys.rows);
        any = any || state->seen[i].first < state->seen[i].last;
    }
    if (!any) return;

    // Columns up to a multiple of 32 are there (zeros in the packed keys), which spares the
    // products an edge; the softmax leaves them out.
    const int64_t cols = cy_round_up(keys.rows, CY_MICROKERNEL_COLS);
    const int64_t row_bytes = state->depth * ops->packed_bytes;
    ops->pack_right(state->keys, keys, true);
    for (int64_t row = 0, rows, last; row < state->row_count; row += rows) {
        rows = rows_of_step(state, row, &last);
        ops->multiply(state->scores + row * cols, cols, (char *)state->queries + row * row_bytes,
            state->depth, state->keys, rows, cy_round_up(last, CY_MICROKERNEL_COLS), state->depth,
            false);
    }
    const cy_softmax_block block = {
        .scores = state->scores,
        .weights = state->weights,
        .out = state->out,
        .max = state->max,
        .sum = state->sum,
        .seen = state->seen,
        .rows = state->row_count,
        .stride = cols,
        .out_cols = state->out_cols,
        .factor = state->factor,
        .dtype = ops->dtype,
    };
    state->rows->softmax(&block);
    ops->pack_right(state->values, values, false);
    for (int64_t row = 0, rows, last; row < state->row_count; row += rows) {
        rows = rows_of_step(state, row, &last);
        add_values(state, row, rows, cols, cy_round_up(keys.rows, ops->depth_step),
            cy_round_up(last, ops->depth_step));
    }
}

void cy_flash_finish(cy_flash_state *state, float *lse)
{
    for (int64_t i = 0; i < state->row_count; i++) {
        const bool saw = state->ranges[i].first < state->ranges[i].last;
        const float scale = saw ? 1.0f / state->sum[i] : 0.0f;
        float *out = state->out + i * state->out_cols;
        for (int64_t j = 0; j < state->head_dim; j++)
            out[j] *= scale;
        if (lse == NULL) continue;
        lse[i] =
            saw ? (float)((double)state->max[i] * CY_LN_2 + log((double)state->sum[i])) : -INFINITY;
    }
}

// Ranges of keys that the queries of a block see, and of keys that any of them sees.
static cy_row_range find_ranges(cy_row_range *ranges, const cy_attention_spec *spec,
    const cy_attention_span *span, int64_t first, int64_t count)
{
    const int32_t *keys = spec->k_positions + span->k_first;
    cy_row_range all = {INT32_MAX, 0};
    for (int64_t i = 0; i < count; i++) {
        const int64_t p = spec->q_positions[span->q_first + first + i];
        const int64_t last = cy_flash_lower_bound(keys, span->k_count, p + 1);
        const int64_t from =
            spec->window == 0 ? 0 : cy_flash_lower_bound(keys, last, p - spec->window + 1);
        ranges[i] = (cy_row_range){(int32_t)from, (int32_t)last};
        if (from >= last) continue;
        if (ranges[i].first < all.first) all.first = ranges[i].first;
        if (ranges[i].last > all.last) all.last = ranges[i].last;
    }
    return all;
}

static void store_head(const forward_call *self, const cy_flash_state *state, const float *lse,
    int64_t row, int64_t first, int64_t count, int64_t head)
{
    const int64_t dim = self->spec->head_dim;
    const cy_view from = {.data = state->out + first * state->out_cols,
        .dtype = CY_F32,
        .rows = count,
        .cols = dim,
        .stride = state->out_cols};
    state->ops->convert(cy_view_cols(cy_view_rows(self->o, row, count), head * dim, dim), from);
    for (int64_t i = 0; i < count; i++) {
        *(float *)cy_view_at(self->lse, head, row + i) = lse[first + i];
    }
}

// One block of queries of one span, all query heads of one key head. Tasks are (block from the last
// one down, span, key head): late blocks see most keys, so the long tasks come first.
static void forward_task(void *context, int64_t task, int worker)
{
    const forward_call *self = context;
    const cy_attention_spec *spec = self->spec;
    const int64_t kv_head = task % spec->kv_heads, group = spec->heads / spec->kv_heads;
    const int64_t at = task / spec->kv_heads;
    const cy_attention_span *span = &spec->spans[at % spec->span_count];
    const int64_t first = (self->task_max - 1 - at / spec->span_count) * self->block;
    if (first >= span->q_count) return;
    const int64_t count = span->q_count - first < self->block ? span->q_count - first : self->block;
    const int64_t dim = spec->head_dim, row = span->q_first + first;

    const cy_microkernel *ops = cy_flash_microkernel(self->ops, self->q.dtype);
    cy_flash_state state = {
        .ops = ops,
        .rows = self->ops->rows,
        .row_count = count * group,
        .head_dim = dim,
        .factor = (float)(spec->scale * CY_LOG2_E),
    };
    size_t used = 0;
    char *base = self->scratch + (size_t)worker * self->bytes;
    cy_flash_layout(&state, base, &used, self->block * group);
    float *lse = cy_flash_alloc(base, &used, (size_t)(self->block * group) * sizeof(float));

    ops->enter();
    const cy_row_range all = find_ranges(state.ranges, spec, span, first, count);
    for (int64_t i = 0; i < group; i++) {
        const cy_view head =
            cy_view_cols(cy_view_rows(self->q, row, count), (kv_head * group + i) * dim, dim);
        const int64_t bytes = count * state.depth * ops->packed_bytes;
        ops->pack_left((char *)state.queries + i * bytes, head, false);
        if (i > 0) {
            memcpy(state.ranges + i * count, state.ranges, (size_t)count * sizeof(cy_row_range));
        }
    }
    cy_flash_start(&state);
    for (int64_t key = all.first / CY_FLASH_KEYS * CY_FLASH_KEYS; key < all.last;
         key += CY_FLASH_KEYS) {
        // None of the rows sees a key after all.last.
        const int64_t keys = all.last - key < CY_FLASH_KEYS ? all.last - key : CY_FLASH_KEYS;
        cy_flash_step(&state,
            cy_view_cols(cy_view_rows(self->k, span->k_first + key, keys), kv_head * dim, dim),
            cy_view_cols(cy_view_rows(self->v, span->k_first + key, keys), kv_head * dim, dim),
            key);
    }
    cy_flash_finish(&state, lse);
    for (int64_t i = 0; i < group; i++) {
        store_head(self, &state, lse, row, i * count, count, kv_head * group + i);
    }
    ops->leave();
}

// Rows that are in no span.
static void clear_rows(const forward_call *self)
{
    for (int64_t row = 0; row < self->o.rows; row++) {
        memset(cy_view_at(self->o, row, 0), 0, (size_t)self->o.cols * cy_dtype_size(self->o.dtype));
        for (int64_t head = 0; head < self->spec->heads; head++) {
            *(float *)cy_view_at(self->lse, head, row) = -INFINITY;
        }
    }
}

void cy_flash_forward(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec)
{
    if (!cy_flash_supports(q.dtype) || !cy_flash_supports(o.dtype) || lse.dtype != CY_F32 ||
        spec->head_dim > CY_FLASH_HEAD_MAX) {
        cy_ref_attention_forward(queue, o, lse, q, k, v, spec);
        return;
    }
    const int64_t group = spec->heads / spec->kv_heads;
    forward_call self = {
        .queue = queue,
        .ops = cy_flash_ops(queue),
        .o = o,
        .lse = lse,
        .q = q,
        .k = k,
        .v = v,
        .spec = spec,
        .block = cy_round_up(TASK_ROWS / (group < 16 ? group : 16), 16),
    };
    int64_t rows = 0, longest = 0;
    for (int i = 0; i < spec->span_count; i++) {
        rows += spec->spans[i].q_count;
        if (spec->spans[i].q_count > longest) longest = spec->spans[i].q_count;
    }
    self.task_max = (longest + self.block - 1) / self.block;
    cy_flash_state state = {
        .ops = cy_flash_microkernel(self.ops, q.dtype), .head_dim = spec->head_dim};
    cy_flash_layout(&state, NULL, &self.bytes, self.block * group);
    cy_flash_alloc(NULL, &self.bytes, (size_t)(self.block * group) * sizeof(float));

    const size_t mark = cy_arena_mark(queue->scratch);
    self.scratch = cy_arena_alloc(queue->scratch, self.bytes * (size_t)cy_queue_workers(queue));
    if (rows < q.rows && !queue->dry) clear_rows(&self);
    cy_queue_run(queue, forward_task, &self, self.task_max * spec->span_count * spec->kv_heads);
    cy_arena_rewind(queue->scratch, mark);
}

// ---- merging two parts, and what the backward pass needs of the output

typedef struct rows_call {
    const cy_attention_ops *ops;
    cy_view o, lse, part, lse_part; // or d_o in `part` and delta in `lse`
    int heads;
} rows_call;

#define ROWS_OF_TASK 32

static int64_t row_tasks(int64_t rows)
{
    return (rows + ROWS_OF_TASK - 1) / ROWS_OF_TASK;
}

static void merge_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const rows_call *self = context;
    const int64_t dim = self->o.cols / self->heads;
    const int64_t end = (task + 1) * ROWS_OF_TASK;
    for (int64_t row = task * ROWS_OF_TASK; row < end && row < self->o.rows; row++) {
        for (int head = 0; head < self->heads; head++) {
            float *lse = cy_view_at(self->lse, head, row);
            const double a = (double)*lse;
            const double b = (double)*(const float *)cy_view_at(self->lse_part, head, row);
            const double max = fmax(a, b);
            if (max == (double)-INFINITY) continue; // neither saw a key: o is 0 already
            const double of_a = exp(a - max), of_b = exp(b - max), sum = of_a + of_b;
            self->ops->rows->blend(cy_view_at(self->o, row, head * dim), self->o.dtype,
                (float)(of_a / sum), cy_view_at(self->part, row, head * dim), self->part.dtype,
                (float)(of_b / sum), dim);
            *lse = (float)(max + log(sum));
        }
    }
}

void cy_flash_merge(
    cy_queue *queue, cy_view o, cy_view lse, cy_view o_part, cy_view lse_part, int heads)
{
    if (!cy_flash_supports(o.dtype) || !cy_flash_supports(o_part.dtype) || lse.dtype != CY_F32 ||
        lse_part.dtype != CY_F32) {
        cy_ref_attention_merge(queue, o, lse, o_part, lse_part, heads);
        return;
    }
    rows_call self = {cy_flash_ops(queue), o, lse, o_part, lse_part, heads};
    cy_queue_run(queue, merge_task, &self, row_tasks(o.rows));
}

static void delta_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const rows_call *self = context;
    const int64_t dim = self->o.cols / self->heads;
    const int64_t end = (task + 1) * ROWS_OF_TASK;
    for (int64_t row = task * ROWS_OF_TASK; row < end && row < self->o.rows; row++) {
        self->ops->rows->inner(cy_view_at(self->lse, 0, row), self->lse.stride,
            cy_view_at(self->part, row, 0), self->part.dtype, cy_view_at(self->o, row, 0),
            self->o.dtype, self->heads, dim);
    }
}

void cy_flash_delta(cy_queue *queue, cy_view delta, cy_view d_o, cy_view o, int heads)
{
    if (!cy_flash_supports(o.dtype) || !cy_flash_supports(d_o.dtype) || delta.dtype != CY_F32) {
        cy_ref_attention_delta(queue, delta, d_o, o, heads);
        return;
    }
    rows_call self = {
        .ops = cy_flash_ops(queue), .o = o, .lse = delta, .part = d_o, .heads = heads};
    cy_queue_run(queue, delta_task, &self, row_tasks(o.rows));
}

void cy_cpu_attention_override(cy_kernels *table)
{
    table->attention_forward = cy_flash_forward;
    table->attention_backward = cy_flash_backward;
    table->attention_paged = cy_flash_paged;
    table->attention_split = cy_flash_split;
    table->attention_combine = cy_flash_combine;
    table->attention_merge = cy_flash_merge;
    table->attention_delta = cy_flash_delta;
}
