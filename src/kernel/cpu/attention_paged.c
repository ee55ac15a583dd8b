// Attention over paged keys and values. A row alone (decoding) reads keys and values once, for all
// query heads that share them, so memory's bandwidth is its bound; consecutive rows of one sequence
// (a prompt) go through blocks of products.

#include "kernel/cpu/attention.h"

#include <math.h>
#include <string.h>

#define TASK_ROWS 64 // rows of a task: one block of a prompt
#define RUN_MIN   4  // fewer rows than this are cheaper one by one

#define RUN_KEYS 16 // keys that are asked for while as many are used

typedef struct paged_call {
    const cy_attention_ops *ops;
    const cy_block_ops *block;
    cy_view o, q;
    const cy_kv_pages *pages;
    const int32_t *sequences, *positions; // [rows of q]
    const cy_attention_spec *spec;
    char *scratch; // [workers, bytes]
    size_t bytes;
} paged_call;

typedef struct paged_state {
    cy_flash_state flash;
    void *keys, *values; // [CY_FLASH_KEYS, head_dim], gathered from pages
    float *queries;      // [group, head_dim] of one row
    float *scores;       // [group, CY_FLASH_KEYS]
} paged_state;

static void layout(paged_state *s, char *base, size_t *used, const paged_call *self)
{
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    const size_t element = cy_dtype_size(self->pages->keys.dtype);
    const size_t rows = (size_t)(CY_FLASH_KEYS * dim);
    cy_flash_layout(&s->flash, base, used, TASK_ROWS * group);
    s->keys = cy_flash_piece(base, used, rows * element);
    s->values = cy_flash_piece(base, used, rows * element);
    s->queries = cy_flash_piece(base, used, (size_t)(group * dim) * sizeof(float));
    s->scores = cy_flash_piece(base, used, (size_t)(group * CY_FLASH_KEYS) * sizeof(float));
}

static int64_t page_row(const cy_kv_pages *pages, int64_t sequence, int64_t position)
{
    const int64_t page = position / pages->page_size;
    const int64_t number = pages->page_table[sequence * pages->pages_per_sequence + page];
    return number * pages->page_size + position % pages->page_size;
}

static int64_t first_seen(const cy_attention_spec *spec, int64_t position)
{
    return spec->window > 0 && position >= spec->window ? position - spec->window + 1 : 0;
}

// One head of up to RUN_KEYS rows of the cache from `position` on, as far as they lie in one page.
static cy_view head_run(const paged_call *self, cy_view rows, int64_t sequence, int64_t position,
    int64_t end, int64_t kv_col)
{
    const int64_t page_end =
        position / self->pages->page_size * self->pages->page_size + self->pages->page_size;
    int64_t count = end < page_end ? end - position : page_end - position;
    if (count > RUN_KEYS) count = RUN_KEYS;
    const int64_t row = page_row(self->pages, sequence, position);
    return cy_view_cols(cy_view_rows(rows, row, count), kv_col, self->spec->head_dim);
}

// Asks for rows that lie apart, among those of other heads: no prefetcher of the processor's
// foresees them.
static inline void expect_run(cy_view run)
{
    const int64_t size = (int64_t)cy_dtype_size(run.dtype);
    const int64_t bytes = run.cols * size, stride = run.stride * size;
    const char *at = run.data;
    for (int64_t i = 0; i < run.rows; i++, at += stride) {
        for (int64_t j = 0; j < bytes; j += 64)
            __builtin_prefetch(at + j);
    }
}

// Scores, weights and sums of up to CY_FLASH_KEYS keys for the query heads of one key head.
static void row_block(paged_state *s, const paged_call *self, int64_t sequence, int64_t first,
    int64_t count, int64_t kv_col)
{
    const cy_attention_rows *rows = self->ops->rows;
    const int64_t group = self->spec->heads / self->spec->kv_heads;
    const cy_view keys = self->pages->keys, values = self->pages->values;
    const int64_t end = first + count;
    cy_view run = head_run(self, keys, sequence, first, end, kv_col);
    expect_run(run);
    for (int64_t at = first; at < end;) {
        // A block of values stays in a cache until it is added.
        expect_run(head_run(self, values, sequence, at, end, kv_col));
        const cy_view now = run;
        if (at + now.rows < end) {
            run = head_run(self, keys, sequence, at + now.rows, end, kv_col);
            expect_run(run);
        }
        rows->dot(s->scores + (at - first), CY_FLASH_KEYS, s->queries, group, now);
        at += now.rows;
    }
    for (int64_t q = 0; q < group; q++)
        s->flash.seen[q] = (cy_row_range){0, (int32_t)count};
    const cy_softmax_block block = {
        .scores = s->scores,
        .weights = s->flash.scores, // fp32, whatever the blocks' dtype is
        .out = s->flash.out,
        .max = s->flash.max,
        .sum = s->flash.sum,
        .seen = s->flash.seen,
        .rows = group,
        .stride = CY_FLASH_KEYS,
        .out_cols = s->flash.out_cols,
        .factor = s->flash.factor,
        .dtype = CY_F32,
    };
    rows->softmax(&block);
    for (int64_t at = first; at < end;) {
        const cy_view run_values = head_run(self, values, sequence, at, end, kv_col);
        rows->add(s->flash.out, s->flash.out_cols, s->flash.scores + (at - first), CY_FLASH_KEYS,
            group, run_values);
        at += run_values.rows;
    }
}

static void store_rows(
    const paged_call *self, const paged_state *s, int64_t row, int64_t count, int64_t kv_head)
{
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    for (int64_t i = 0; i < group; i++) {
        cy_view from = cy_view_of(s->flash.out + i * count * s->flash.out_cols, CY_F32, count, dim);
        from.stride = s->flash.out_cols;
        const int64_t col = (kv_head * group + i) * dim;
        self->block->convert(cy_view_cols(cy_view_rows(self->o, row, count), col, dim), from);
    }
}

static void one_row(paged_state *s, const paged_call *self, int64_t row, int64_t kv_head)
{
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    const int64_t last = self->positions[row], first = first_seen(self->spec, last);
    self->block->convert(cy_view_of(s->queries, CY_F32, 1, group * dim),
        cy_view_cols(cy_view_rows(self->q, row, 1), kv_head * group * dim, group * dim));
    s->flash.row_count = group;
    cy_flash_start(&s->flash);
    for (int64_t i = 0; i < group; i++) {
        s->flash.ranges[i] = (cy_row_range){(int32_t)first, (int32_t)(last + 1)};
    }
    for (int64_t key = first; key <= last; key += CY_FLASH_KEYS) {
        const int64_t count = last + 1 - key < CY_FLASH_KEYS ? last + 1 - key : CY_FLASH_KEYS;
        row_block(s, self, self->sequences[row], key, count, kv_head * dim);
    }
    cy_flash_finish(&s->flash, NULL);
    store_rows(self, s, row, 1, kv_head);
}

static void gather(void *to, const paged_call *self, cy_view from, int64_t sequence, int64_t first,
    int64_t count, int64_t kv_col)
{
    const size_t bytes = (size_t)self->spec->head_dim * cy_dtype_size(from.dtype);
    for (int64_t i = 0; i < count; i++) {
        memcpy((char *)to + (size_t)i * bytes,
            cy_view_at(from, page_row(self->pages, sequence, first + i), kv_col), bytes);
    }
}

// Rows [row, row + count) are of one sequence.
static void many_rows(
    paged_state *s, const paged_call *self, int64_t row, int64_t count, int64_t kv_head)
{
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    const int64_t sequence = self->sequences[row];
    int64_t first = INT64_MAX, last = 0;
    s->flash.row_count = count * group;
    for (int64_t i = 0; i < count * group; i++) {
        const int64_t position = self->positions[row + i % count];
        const int64_t from = first_seen(self->spec, position);
        s->flash.ranges[i] = (cy_row_range){(int32_t)from, (int32_t)(position + 1)};
        if (from < first) first = from;
        if (position + 1 > last) last = position + 1;
    }
    for (int64_t i = 0; i < group; i++) {
        const cy_view head =
            cy_view_cols(cy_view_rows(self->q, row, count), (kv_head * group + i) * dim, dim);
        const int64_t bytes = count * s->flash.depth * (int64_t)cy_dtype_size(self->block->dtype);
        self->block->pack_left((char *)s->flash.queries + i * bytes, head, false);
    }
    cy_flash_start(&s->flash);
    const cy_dtype dtype = self->pages->keys.dtype;
    for (int64_t key = first / CY_FLASH_KEYS * CY_FLASH_KEYS; key < last; key += CY_FLASH_KEYS) {
        const int64_t keys = last - key < CY_FLASH_KEYS ? last - key : CY_FLASH_KEYS;
        gather(s->keys, self, self->pages->keys, sequence, key, keys, kv_head * dim);
        gather(s->values, self, self->pages->values, sequence, key, keys, kv_head * dim);
        cy_flash_step(&s->flash, cy_view_of(s->keys, dtype, keys, dim),
            cy_view_of(s->values, self->pages->values.dtype, keys, dim), key);
    }
    cy_flash_finish(&s->flash, NULL);
    store_rows(self, s, row, count, kv_head);
}

static void paged_task(void *context, int64_t task, int worker)
{
    const paged_call *self = context;
    const int64_t kv_head = task % self->spec->kv_heads;
    int64_t row = task / self->spec->kv_heads * TASK_ROWS;
    const int64_t end = row + TASK_ROWS < self->q.rows ? row + TASK_ROWS : self->q.rows;
    paged_state s = {.flash = {
                         .ops = self->block,
                         .rows = self->ops->rows,
                         .head_dim = self->spec->head_dim,
                         .factor = (float)(self->spec->scale * CY_LOG2_E),
                     }};
    size_t used = 0;
    layout(&s, self->scratch + (size_t)worker * self->bytes, &used, self);
    self->block->enter();
    while (row < end) {
        int64_t count = 1;
        while (row + count < end && self->sequences[row + count] == self->sequences[row])
            count++;
        if (count >= RUN_MIN) {
            many_rows(&s, self, row, count, kv_head);
        } else {
            for (int64_t i = 0; i < count; i++)
                one_row(&s, self, row + i, kv_head);
        }
        row += count;
    }
    self->block->leave();
}

void cy_flash_paged(cy_queue *queue, const cy_attention_ops *ops, cy_view o, cy_view q,
    const cy_kv_pages *pages, const int32_t *sequences, const int32_t *positions,
    const cy_attention_spec *spec)
{
    if (!cy_flash_takes(q.dtype) || !cy_flash_takes(o.dtype) ||
        !cy_flash_takes(pages->keys.dtype) || !cy_flash_takes(pages->values.dtype) ||
        spec->head_dim > CY_FLASH_HEAD_MAX) {
        cy_kernels_ref()->attention_paged(queue, o, q, pages, sequences, positions, spec);
        return;
    }
    paged_call self = {
        .ops = ops,
        .block = cy_flash_block(ops, q.dtype),
        .o = o,
        .q = q,
        .pages = pages,
        .sequences = sequences,
        .positions = positions,
        .spec = spec,
    };
    paged_state s = {.flash = {.ops = self.block, .head_dim = spec->head_dim}};
    layout(&s, NULL, &self.bytes, &self);
    const size_t mark = cy_arena_mark(queue->scratch);
    self.scratch = cy_arena_take(queue->scratch, self.bytes * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, paged_task, &self, (q.rows + TASK_ROWS - 1) / TASK_ROWS * spec->kv_heads);
    cy_arena_rewind(queue->scratch, mark);
}
