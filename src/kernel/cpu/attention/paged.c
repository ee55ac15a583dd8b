// Computes attention over paged keys and values. A single row (decoding) reads keys and values once
// for all query heads that share them, so memory bandwidth limits it; consecutive rows of one
// sequence (a prompt) go through blocks of products.

#include "kernel/cpu/cpu.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

#define TASK_ROWS 128 // rows of a task: one block of a prompt
#define RUN_MIN   4   // fewer rows than this are cheaper one by one

#define RUN_KEYS   8  // keys at once
#define AHEAD_KEYS 16 // keys by which prefetches are ahead of their use

_Static_assert(CY_ATTENTION_PART <= CY_FLASH_KEYS, "a part has its scores in one block");

typedef struct paged_call {
    const cy_attention_ops *ops;
    const cy_microkernel *block;
    cy_view o, q;
    const cy_kv_pages *pages;
    const int32_t *sequences, *positions; // [rows of q]
    const cy_attention_spec *spec;
    cy_view parts; // of one row, from number `first` on
    int64_t first;
    int64_t rows;  // of a task
    char *scratch; // [workers, bytes]
    size_t bytes;
} paged_call;

typedef struct paged_state {
    cy_flash_state flash;
    void *keys, *values; // [CY_FLASH_KEYS, head_dim], gathered from pages
    float *queries;      // [heads, head_dim] of one row
    float *scores;       // [heads, CY_FLASH_KEYS]
    float *weights;      // likewise
    float *part;         // [cy_attention_split_cols]
} paged_state;

static void layout(paged_state *s, char *base, size_t *used, const paged_call *self)
{
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    const size_t part = (size_t)cy_attention_split_cols(self->spec);
    const size_t heads = (size_t)self->spec->heads;
    const size_t rows = (size_t)(CY_FLASH_KEYS * dim);
    cy_flash_layout(&s->flash, base, used, self->rows * group);
    s->keys = cy_flash_alloc(base, used, rows * sizeof(float));
    s->values = cy_flash_alloc(base, used, rows * sizeof(float));
    s->queries = cy_flash_alloc(base, used, heads * (size_t)dim * sizeof(float));
    s->scores = cy_flash_alloc(base, used, heads * CY_FLASH_KEYS * sizeof(float));
    s->weights = cy_flash_alloc(base, used, heads * CY_FLASH_KEYS * sizeof(float));
    s->part = cy_flash_alloc(base, used, part * sizeof(float));
}

static paged_state state_of(const paged_call *self)
{
    return (paged_state){.flash = {
                             .ops = self->block,
                             .rows = self->ops->rows,
                             .head_dim = self->spec->head_dim,
                             .factor = (float)(self->spec->scale * CY_LOG2_E),
                         }};
}

// The state of a worker, in its scratch memory.
static paged_state worker_state(const paged_call *self, int worker)
{
    paged_state s = state_of(self);
    size_t used = 0;
    layout(&s, self->scratch + (size_t)worker * self->bytes, &used, self);
    return s;
}

static int64_t row_of(const paged_call *self, int64_t sequence, int64_t position)
{
    return cy_kv_row(self->pages, self->pages->page_table, sequence, position);
}

// ---- parts of a row

// Keys that the row sees, at consecutive positions, of some key heads: the keys of several
// consecutive parts.
typedef struct part {
    int64_t sequence, first, count;
    int64_t kv_first, kv_count;
} part;

// Of the heads of part number `number` and those after it, `heads` in all.
static part part_of(const paged_call *self, int64_t row, int64_t number, int64_t heads)
{
    const int64_t last = self->positions[row], seen = cy_attention_first(self->spec, last);
    const int64_t index = seen / CY_ATTENTION_PART + number / self->spec->kv_heads;
    const int64_t start = index * CY_ATTENTION_PART, end = start + CY_ATTENTION_PART;
    part made = {.sequence = self->sequences[row]};
    made.first = start > seen ? start : seen;
    made.count = (end <= last ? end : last + 1) - made.first;
    made.kv_first = number % self->spec->kv_heads;
    made.kv_count = heads;
    return made;
}

// Up to RUN_KEYS rows of a part from number `at` on, and those in one page only.
static cy_view run_of(const paged_call *self, cy_view rows, const part *of, int64_t at)
{
    const int64_t position = of->first + at, page_size = self->pages->page_size;
    const int64_t in_page = page_size - position % page_size;
    int64_t count = of->count - at < in_page ? of->count - at : in_page;
    if (count > RUN_KEYS) count = RUN_KEYS;
    const int64_t row = row_of(self, of->sequence, position);
    const int64_t dim = self->spec->head_dim;
    return cy_view_cols(cy_view_rows(rows, row, count), of->kv_first * dim, of->kv_count * dim);
}

// The row that is read AHEAD_KEYS after row `at` of the part: one of this part or of the next. NULL
// where there is none.
static const char *ahead_of(const paged_call *self, cy_view rows, const part *of, int64_t at,
    cy_view next_rows, const part *next)
{
    const int64_t ahead = at + AHEAD_KEYS;
    if (ahead < of->count) return run_of(self, rows, of, ahead).data;
    if (next == NULL || ahead - of->count >= next->count) return NULL;
    return run_of(self, next_rows, next, ahead - of->count).data;
}

// Column `col` of the row at `ahead`, if there is one.
static const char *beside(const char *ahead, cy_view run, int64_t col)
{
    return ahead == NULL ? NULL : ahead + col * (int64_t)cy_dtype_size(run.dtype);
}

static void load_queries(const paged_state *s, const paged_call *self, int64_t row)
{
    const int64_t cols = self->spec->heads * self->spec->head_dim;
    self->block->convert(cy_view_of(s->queries, CY_F32, 1, cols), cy_view_rows(self->q, row, 1));
}

// Weights of a part's keys for the query heads of one of its key heads; to: see make_parts.
static void weigh(const paged_state *s, const paged_call *self, float *to, int64_t keys, int64_t at)
{
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    float *max = to + group * dim, *sum = max + group;
    memset(to, 0, (size_t)(group * dim) * sizeof(float));
    for (int64_t q = 0; q < group; q++) {
        s->flash.seen[q] = (cy_row_range){0, (int32_t)keys};
        max[q] = -INFINITY;
        sum[q] = 0.0f;
    }
    const cy_softmax_block block = {
        .scores = s->scores + at,
        .weights = s->weights + at, // fp32, whatever the blocks' dtype is
        .out = to,
        .max = max,
        .sum = sum,
        .seen = s->flash.seen,
        .rows = group,
        .stride = CY_FLASH_KEYS,
        .out_cols = 0, // no sums yet that a larger maximum would make smaller
        .factor = s->flash.factor,
        .dtype = CY_F32,
    };
    self->ops->rows->softmax(&block);
}

// to [kv_count, cy_attention_split_cols]: what the part's keys add to the sums of the query heads,
// which are in s->queries. Reads the rows of all its heads together in ascending order, so that
// hardware prefetchers can follow; `next`, unless NULL, is the part after this one.
static void make_parts(
    const paged_state *s, const paged_call *self, float *to, const part *of, const part *next)
{
    const cy_attention_rows *rows = self->ops->rows;
    const cy_view keys = self->pages->keys, values = self->pages->values;
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    const int64_t cols = cy_attention_split_cols(self->spec), scores = group * CY_FLASH_KEYS;
    for (int64_t at = 0; at < of->count;) {
        const cy_view run = run_of(self, keys, of, at);
        const char *ahead = ahead_of(self, keys, of, at, values, of);
        for (int64_t i = 0; i < of->kv_count; i++) {
            rows->dot(s->scores + i * scores + at, CY_FLASH_KEYS,
                s->queries + (of->kv_first + i) * group * dim, group,
                cy_view_cols(run, i * dim, dim), beside(ahead, run, i * dim));
        }
        at += run.rows;
    }
    for (int64_t i = 0; i < of->kv_count; i++)
        weigh(s, self, to + i * cols, of->count, i * scores);
    for (int64_t at = 0; at < of->count;) {
        const cy_view run = run_of(self, values, of, at);
        const char *ahead = ahead_of(self, values, of, at, keys, next);
        for (int64_t i = 0; i < of->kv_count; i++) {
            rows->add(to + i * cols, dim, s->weights + i * scores + at, CY_FLASH_KEYS, group,
                cy_view_cols(run, i * dim, dim), beside(ahead, run, i * dim));
        }
        at += run.rows;
    }
}

// Adds a part to the sums of its query heads, both against the larger of their maxima.
static void join_part(const paged_state *s, const paged_call *self, const float *from)
{
    const int64_t dim = self->spec->head_dim, group = self->spec->heads / self->spec->kv_heads;
    const float *max = from + group * dim, *sum = max + group;
    for (int64_t q = 0; q < group; q++) {
        const float before = s->flash.max[q];
        const bool grows = max[q] > before;
        const float a = grows ? exp2f(before - max[q]) : 1.0f;
        const float b = grows ? 1.0f : exp2f(max[q] - before);
        s->flash.max[q] = grows ? max[q] : before;
        s->flash.sum[q] = s->flash.sum[q] * a + sum[q] * b;
        self->ops->rows->blend(
            s->flash.out + q * s->flash.out_cols, CY_F32, a, from + q * dim, CY_F32, b, dim);
    }
}

static void start_joining(paged_state *s, const paged_call *self)
{
    s->flash.row_count = self->spec->heads / self->spec->kv_heads;
    cy_flash_start(&s->flash);
    for (int64_t i = 0; i < s->flash.row_count; i++)
        s->flash.ranges[i] = (cy_row_range){0, 1}; // each sees itself at least
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
    const int64_t kv_heads = self->spec->kv_heads;
    const int64_t count = cy_attention_part_count(self->spec, self->positions[row]);
    load_queries(s, self, row);
    start_joining(s, self);
    for (int64_t number = kv_head; number < count; number += kv_heads) {
        const part now = part_of(self, row, number, 1);
        make_parts(s, self, s->part, &now, NULL);
        join_part(s, self, s->part);
    }
    cy_flash_finish(&s->flash, NULL);
    store_rows(self, s, row, 1, kv_head);
}

// ---- a prompt

// Whether the pages of positions [first, first + count) follow each other.
static bool lie_together(const paged_call *self, int64_t sequence, int64_t first, int64_t count)
{
    const int64_t page_size = self->pages->page_size, row = row_of(self, sequence, first);
    for (int64_t at = page_size - first % page_size; at < count; at += page_size) {
        if (row_of(self, sequence, first + at) != row + at) return false;
    }
    return true;
}

// Positions [first, first + count) of one head: as they lie, or gathered in `room`.
static cy_view head_of(const paged_call *self, void *room, cy_view from, int64_t sequence,
    int64_t first, int64_t count, int64_t kv_head)
{
    const int64_t dim = self->spec->head_dim;
    if (lie_together(self, sequence, first, count)) {
        const int64_t row = row_of(self, sequence, first);
        return cy_view_cols(cy_view_rows(from, row, count), kv_head * dim, dim);
    }
    const size_t bytes = (size_t)dim * cy_dtype_size(from.dtype);
    for (int64_t i = 0; i < count; i++) {
        memcpy((char *)room + (size_t)i * bytes,
            cy_view_at(from, row_of(self, sequence, first + i), kv_head * dim), bytes);
    }
    return cy_view_of(room, from.dtype, count, dim);
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
        const int64_t from = cy_attention_first(self->spec, position);
        s->flash.ranges[i] = (cy_row_range){(int32_t)from, (int32_t)(position + 1)};
        if (from < first) first = from;
        if (position + 1 > last) last = position + 1;
    }
    for (int64_t i = 0; i < group; i++) {
        const cy_view head =
            cy_view_cols(cy_view_rows(self->q, row, count), (kv_head * group + i) * dim, dim);
        const int64_t bytes = count * s->flash.depth * self->block->packed_bytes;
        self->block->pack_left((char *)s->flash.queries + i * bytes, head, false);
    }
    cy_flash_start(&s->flash);
    for (int64_t key = first / CY_FLASH_KEYS * CY_FLASH_KEYS; key < last; key += CY_FLASH_KEYS) {
        const int64_t keys = last - key < CY_FLASH_KEYS ? last - key : CY_FLASH_KEYS;
        cy_flash_step(&s->flash,
            head_of(self, s->keys, self->pages->keys, sequence, key, keys, kv_head),
            head_of(self, s->values, self->pages->values, sequence, key, keys, kv_head), key);
    }
    cy_flash_finish(&s->flash, NULL);
    store_rows(self, s, row, count, kv_head);
}

static void paged_task(void *context, int64_t task, int worker)
{
    const paged_call *self = context;
    const int64_t kv_head = task % self->spec->kv_heads;
    // Late rows of a prompt see most keys, so the long tasks come first.
    const int64_t block = (self->q.rows - 1) / TASK_ROWS - task / self->spec->kv_heads;
    int64_t row = block * TASK_ROWS;
    const int64_t end = row + TASK_ROWS < self->q.rows ? row + TASK_ROWS : self->q.rows;
    paged_state s = worker_state(self, worker);
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

static bool takes(cy_view q, const cy_kv_pages *pages, const cy_attention_spec *spec)
{
    return cy_flash_supports(q.dtype) && cy_flash_supports(pages->keys.dtype) &&
        cy_flash_supports(pages->values.dtype) && spec->head_dim <= CY_FLASH_HEAD_MAX;
}

static void run_tasks(cy_queue *queue, paged_call *self, cy_task task, int64_t count)
{
    paged_state s = state_of(self);
    layout(&s, NULL, &self->bytes, self);
    const size_t mark = cy_arena_mark(queue->scratch);
    self->scratch = cy_arena_alloc(queue->scratch, self->bytes * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, task, self, count);
    cy_arena_rewind(queue->scratch, mark);
}

void cy_flash_paged(cy_queue *queue, cy_view o, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec)
{
    if (!takes(q, pages, spec) || !cy_flash_supports(o.dtype)) {
        cy_ref_attention_paged(queue, o, q, pages, sequences, positions, spec);
        return;
    }
    paged_call self = {
        .ops = cy_flash_ops(queue),
        .block = cy_flash_microkernel(cy_flash_ops(queue), q.dtype),
        .o = o,
        .q = q,
        .pages = pages,
        .sequences = sequences,
        .positions = positions,
        .spec = spec,
        .rows = TASK_ROWS,
    };
    run_tasks(queue, &self, paged_task, (q.rows + TASK_ROWS - 1) / TASK_ROWS * spec->kv_heads);
}

// ---- a row that several share

// The parts of task `task` of a call are those of as many of its heads as come before the next
// positions.
static part parts_of(const paged_call *self, int64_t task)
{
    const int64_t kv_heads = self->spec->kv_heads, end = self->first + self->parts.rows;
    const int64_t start = (self->first / kv_heads + task) * kv_heads;
    const int64_t number = task == 0 ? self->first : start;
    const int64_t after = start + kv_heads < end ? start + kv_heads : end;
    return part_of(self, 0, number, after - number);
}

static void split_task(void *context, int64_t task, int worker)
{
    const paged_call *self = context;
    const paged_state s = worker_state(self, worker);
    const int64_t kv_heads = self->spec->kv_heads;
    const int64_t after = (self->first / kv_heads + task + 1) * kv_heads;
    const bool last = after >= self->first + self->parts.rows;
    const part now = parts_of(self, task), next = last ? now : parts_of(self, task + 1);
    const int64_t row = after - kv_heads + now.kv_first - self->first;
    self->block->enter();
    load_queries(&s, self, 0);
    make_parts(&s, self, cy_view_at(self->parts, row, 0), &now, last ? NULL : &next);
    self->block->leave();
}

void cy_flash_split(cy_queue *queue, cy_view parts, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec,
    int64_t first)
{
    if (!takes(q, pages, spec)) {
        cy_ref_attention_split(queue, parts, q, pages, sequences, positions, spec, first);
        return;
    }
    paged_call self = {
        .ops = cy_flash_ops(queue),
        .block = cy_flash_microkernel(cy_flash_ops(queue), q.dtype),
        .q = q,
        .pages = pages,
        .sequences = sequences,
        .positions = positions,
        .spec = spec,
        .parts = parts,
        .first = first,
        .rows = 1,
    };
    const int64_t end = first + parts.rows, kv_heads = spec->kv_heads;
    run_tasks(queue, &self, split_task, (end + kv_heads - 1) / kv_heads - first / kv_heads);
}

static void combine_task(void *context, int64_t kv_head, int worker)
{
    const paged_call *self = context;
    paged_state s = worker_state(self, worker);
    self->block->enter();
    start_joining(&s, self);
    for (int64_t row = kv_head; row < self->parts.rows; row += self->spec->kv_heads)
        join_part(&s, self, cy_view_at(self->parts, row, 0));
    cy_flash_finish(&s.flash, NULL);
    store_rows(self, &s, 0, 1, kv_head);
    self->block->leave();
}

void cy_flash_combine(cy_queue *queue, cy_view o, cy_view parts, const cy_attention_spec *spec)
{
    if (parts.dtype != CY_F32 || !cy_flash_supports(o.dtype) ||
        spec->head_dim > CY_FLASH_HEAD_MAX) {
        cy_ref_attention_combine(queue, o, parts, spec);
        return;
    }
    paged_call self = {
        .ops = cy_flash_ops(queue),
        .block = cy_flash_microkernel(cy_flash_ops(queue), o.dtype),
        .o = o,
        .spec = spec,
        .parts = parts,
        .rows = 1,
    };
    run_tasks(queue, &self, combine_task, spec->kv_heads);
}
