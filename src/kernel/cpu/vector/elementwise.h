// kernel/cpu/vector/elementwise.h: operators that compute element by element, and the grid that
// cuts a matrix into chunks for the thread pool: fill, copy, sums, embedding, rope and swiglu.
//
// Memory bandwidth limits all of them except swiglu with AVX2, which its exponential limits.

#ifndef CY_KERNEL_CPU_VECTOR_ELEMENTWISE_H
#define CY_KERNEL_CPU_VECTOR_ELEMENTWISE_H

#include "base/numbers.h"
#include "kernel/cpu/vector/vector.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

// ---- the grid: it depends on the matrix alone, never on the number of threads, and neither do the
// results

// Elements of a chunk: enough to be worth handing out, small enough to stay in L2.
#define CHUNK 16384

typedef struct grid {
    int64_t row_step, col_step;
    int64_t across; // chunks side by side
    int64_t count;
} grid;

typedef struct chunk {
    int64_t row, row_end;
    int64_t col, col_end;
} chunk;

// Whole rows where a row is not longer than a chunk.
static inline grid grid_of(int64_t rows, int64_t cols)
{
    grid made = {.row_step = cols >= CHUNK ? 1 : CHUNK / cols, .col_step = CHUNK};
    made.across = cy_ceil_div(cols, made.col_step);
    made.count = made.across * cy_ceil_div(rows, made.row_step);
    return made;
}

// Whole rows always: for what needs a row at a time.
static inline grid grid_of_rows(int64_t rows, int64_t cols)
{
    grid made = {.row_step = cols >= CHUNK ? 1 : CHUNK / cols, .col_step = cols, .across = 1};
    made.count = cy_ceil_div(rows, made.row_step);
    return made;
}

static inline chunk chunk_at(grid of, int64_t rows, int64_t cols, int64_t number)
{
    chunk at = {
        .row = number / of.across * of.row_step,
        .col = number % of.across * of.col_step,
    };
    at.row_end = at.row + of.row_step < rows ? at.row + of.row_step : rows;
    at.col_end = at.col + of.col_step < cols ? at.col + of.col_step : cols;
    return at;
}

// ---- fill, copy and sums

// The dtypes that the vector loops read and write; the reference serves the others.
static inline bool supported(cy_view view)
{
    return view.dtype == CY_F32 || view.dtype == CY_BF16;
}

typedef struct elementwise {
    grid cut;
    cy_view y, a, b;
    float value;
} elementwise;

// One long row where no matrix has gaps.
static void flatten(cy_view *view)
{
    view->cols *= view->rows;
    view->stride = view->cols;
    view->rows = 1;
}

static void run_elementwise(cy_queue *queue, cy_task task, elementwise *of)
{
    const bool dense = cy_view_is_dense(of->y) &&
        (cy_view_is_none(of->a) || cy_view_is_dense(of->a)) &&
        (cy_view_is_none(of->b) || cy_view_is_dense(of->b));
    if (dense) {
        flatten(&of->y);
        flatten(&of->a);
        flatten(&of->b);
    }
    of->cut = grid_of(of->y.rows, of->y.cols);
    cy_queue_run(queue, task, of, of->cut.count);
}

static void fill_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    const vec value = vec_all(of->value);
    for (int64_t t = at.row; t < at.row_end; t++) {
        void *y = cy_view_at(of->y, t, 0);
        if (of->value == 0.0f && !signbit(of->value)) {
            // memset reads no cache line before it writes it.
            memset(cy_view_at(of->y, t, at.col), 0,
                (size_t)(at.col_end - at.col) * cy_dtype_size(of->y.dtype));
            continue;
        }
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            store(y, of->y.dtype, i, value, lanes_left(at.col_end, i));
        }
    }
}

static void fill(cy_queue *queue, cy_view y, double value)
{
    if (!supported(y)) {
        cy_ref_fill(queue, y, value);
        return;
    }
    elementwise of = {.y = y, .value = (float)value};
    run_elementwise(queue, fill_chunk, &of);
}

FORCE_INLINE void copy_chunk_of(
    const elementwise *of, int64_t number, cy_dtype y_dtype, cy_dtype x_dtype)
{
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        void *y = cy_view_at(of->y, t, 0);
        const void *x = cy_view_at(of->a, t, 0);
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            store(y, y_dtype, i, load(x, x_dtype, i, lanes), lanes);
        }
    }
}

static void copy_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    if (of->y.dtype == CY_BF16) {
        if (of->a.dtype == CY_BF16) {
            copy_chunk_of(of, number, CY_BF16, CY_BF16);
        } else {
            copy_chunk_of(of, number, CY_BF16, CY_F32);
        }
    } else if (of->a.dtype == CY_BF16) {
        copy_chunk_of(of, number, CY_F32, CY_BF16);
    } else {
        copy_chunk_of(of, number, CY_F32, CY_F32);
    }
}

static void copy(cy_queue *queue, cy_view y, cy_view x)
{
    if (!supported(y) || !supported(x)) {
        cy_ref_copy(queue, y, x);
        return;
    }
    elementwise of = {.y = y, .a = x};
    run_elementwise(queue, copy_chunk, &of);
}

static void add_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        void *y = cy_view_at(of->y, t, 0);
        const void *a = cy_view_at(of->a, t, 0), *b = cy_view_at(of->b, t, 0);
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            const vec sum = vec_add(load(a, of->a.dtype, i, lanes), load(b, of->b.dtype, i, lanes));
            store(y, of->y.dtype, i, sum, lanes);
        }
    }
}

static void add(cy_queue *queue, cy_view y, cy_view a, cy_view b)
{
    if (!supported(y) || !supported(a) || !supported(b)) {
        cy_ref_add(queue, y, a, b);
        return;
    }
    elementwise of = {.y = y, .a = a, .b = b};
    run_elementwise(queue, add_chunk, &of);
}

static void add_bias_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        void *y = cy_view_at(of->y, t, 0);
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            const vec sum =
                vec_add(load(y, of->y.dtype, i, lanes), load(of->a.data, of->a.dtype, i, lanes));
            store(y, of->y.dtype, i, sum, lanes);
        }
    }
}

static void add_bias(cy_queue *queue, cy_view y, cy_view bias)
{
    if (!supported(y) || !supported(bias)) {
        cy_ref_add_bias(queue, y, bias);
        return;
    }
    elementwise of = {.cut = grid_of(y.rows, y.cols), .y = y, .a = bias};
    cy_queue_run(queue, add_bias_chunk, &of, of.cut.count);
}

// ---- sums over rows: parts of at least 64 rows, and at most 32 of them, each summed on its own,
// then the parts in ascending order. norm_backward's dweight is made the same way.

#define PARTS_MAX    32
#define PART_ROWS    64
#define COLUMN_BLOCK 256 // columns of a part that one task sums: their sums stay in L1

typedef struct row_parts {
    int64_t rows;  // in a part
    int64_t count; // parts
    cy_view sums;  // [count, cols], fp32, in scratch
} row_parts;

static row_parts take_parts(cy_queue *queue, int64_t rows, int64_t cols)
{
    row_parts parts = {.rows = cy_ceil_div(rows, PARTS_MAX)};
    if (parts.rows < PART_ROWS) parts.rows = PART_ROWS;
    parts.count = cy_ceil_div(rows, parts.rows);
    parts.sums = cy_view_alloc(queue->scratch, CY_F32, parts.count, cols);
    return parts;
}

typedef struct parts_total {
    row_parts parts;
    cy_view sum; // [1, cols]
} parts_total;

static void add_parts_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const parts_total *of = context;
    const int64_t first = number * COLUMN_BLOCK;
    const int64_t end = first + COLUMN_BLOCK < of->sum.cols ? first + COLUMN_BLOCK : of->sum.cols;
    for (int64_t i = first; i < end; i += LANES) {
        const int64_t lanes = lanes_left(end, i);
        vec total = vec_all(0.0f);
        for (int64_t p = 0; p < of->parts.count; p++) {
            total = vec_add(total, load_f32((float *)cy_view_at(of->parts.sums, p, i), lanes));
        }
        float *sum = (float *)of->sum.data + i;
        store_f32(sum, vec_add(load_f32(sum, lanes), total), lanes);
    }
}

static void add_parts(cy_queue *queue, cy_view sum, row_parts parts)
{
    parts_total of = {.parts = parts, .sum = sum};
    cy_queue_run(queue, add_parts_chunk, &of, cy_ceil_div(sum.cols, COLUMN_BLOCK));
}

typedef struct rows_sum {
    row_parts parts;
    cy_view x;
    int64_t blocks; // of columns
} rows_sum;

static void sum_rows_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const rows_sum *of = context;
    const int64_t part = number / of->blocks, first = number % of->blocks * COLUMN_BLOCK;
    const int64_t end = first + COLUMN_BLOCK < of->x.cols ? first + COLUMN_BLOCK : of->x.cols;
    const int64_t row = part * of->parts.rows;
    const int64_t row_end = row + of->parts.rows < of->x.rows ? row + of->parts.rows : of->x.rows;
    for (int64_t i = first; i < end; i += LANES) {
        const int64_t lanes = lanes_left(end, i);
        vec sum = vec_all(0.0f);
        for (int64_t t = row; t < row_end; t++) {
            sum = vec_add(sum, load(cy_view_at(of->x, t, 0), of->x.dtype, i, lanes));
        }
        store_f32((float *)cy_view_at(of->parts.sums, part, i), sum, lanes);
    }
}

static void sum_rows(cy_queue *queue, cy_view sum, cy_view x)
{
    if (sum.dtype != CY_F32 || !supported(x)) {
        cy_ref_sum_rows(queue, sum, x);
        return;
    }
    const size_t mark = cy_arena_mark(queue->scratch);
    rows_sum of = {
        .parts = take_parts(queue, x.rows, x.cols),
        .x = x,
        .blocks = cy_ceil_div(x.cols, COLUMN_BLOCK),
    };
    cy_queue_run(queue, sum_rows_chunk, &of, of.parts.count * of.blocks);
    add_parts(queue, sum, of.parts);
    cy_arena_rewind(queue->scratch, mark);
}

// ---- embedding: rows of the vocabulary

typedef struct lookup {
    grid cut;
    cy_view y, table; // of the gradients in the backward pass
    const int32_t *tokens;
    int64_t first;
} lookup;

static void embedding_forward_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const lookup *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        const int64_t row = of->tokens[t] - of->first;
        const bool here = row >= 0 && row < of->table.rows;
        const void *from = here ? cy_view_at(of->table, row, 0) : NULL;
        void *y = cy_view_at(of->y, t, 0);
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            const vec value = here ? load(from, of->table.dtype, i, lanes) : vec_all(0.0f);
            store(y, of->y.dtype, i, value, lanes);
        }
    }
}

static void embedding_forward(
    cy_queue *queue, cy_view y, cy_view table, const int32_t *tokens, int64_t first)
{
    if (!supported(y) || !supported(table)) {
        cy_ref_embedding_forward(queue, y, table, tokens, first);
        return;
    }
    lookup of = {
        .cut = grid_of(y.rows, y.cols),
        .y = y,
        .table = table,
        .tokens = tokens,
        .first = first,
    };
    cy_queue_run(queue, embedding_forward_chunk, &of, of.cut.count);
}

// A task has all tokens and a range of columns: the terms of a row are added in their order, and no
// two tasks meet.
#define LOOKUP_COLUMNS 64

static void embedding_backward_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const lookup *of = context;
    const int64_t first = number * LOOKUP_COLUMNS;
    const int64_t end = first + LOOKUP_COLUMNS < of->y.cols ? first + LOOKUP_COLUMNS : of->y.cols;
    for (int64_t t = 0; t < of->y.rows; t++) {
        const int64_t row = of->tokens[t] - of->first;
        if (row < 0 || row >= of->table.rows) continue;
        const void *dy = cy_view_at(of->y, t, 0);
        float *sum = cy_view_at(of->table, row, 0);
        for (int64_t i = first; i < end; i += LANES) {
            const int64_t lanes = lanes_left(end, i);
            const vec term = load(dy, of->y.dtype, i, lanes);
            store_f32(sum + i, vec_add(load_f32(sum + i, lanes), term), lanes);
        }
    }
}

static void embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first)
{
    if (d_table.dtype != CY_F32 || !supported(dy)) {
        cy_ref_embedding_backward(queue, d_table, dy, tokens, first);
        return;
    }
    lookup of = {.y = dy, .table = d_table, .tokens = tokens, .first = first};
    cy_queue_run(queue, embedding_backward_chunk, &of, cy_ceil_div(dy.cols, LOOKUP_COLUMNS));
}

// ---- rope: rotating queries and keys by their positions

typedef struct rotation {
    grid cut; // of rows
    cy_view x, table;
    const int32_t *positions; // [rows of x]
    int heads;
    bool inverse;
} rotation;

FORCE_INLINE void rotate_row(const rotation *of, int64_t t, cy_dtype dtype)
{
    const int64_t dim = of->table.cols, half = dim / 2;
    const float *cosines = cy_view_at(of->table, of->positions[t], 0);
    const float *sines = cosines + half;
    const vec sign = vec_all(of->inverse ? -1.0f : 1.0f);
    void *x = cy_view_at(of->x, t, 0);
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t lanes = lanes_left(half, i);
        const vec cosine = load_f32(cosines + i, lanes);
        const vec sine = vec_mul(sign, load_f32(sines + i, lanes));
        for (int64_t col = i; col < of->heads * dim; col += dim) {
            const vec a = load(x, dtype, col, lanes), b = load(x, dtype, col + half, lanes);
            prefetch(x, dtype, of->x.stride + col);
            prefetch(x, dtype, of->x.stride + col + half);
            store(x, dtype, col, vec_fnma(b, sine, vec_mul(a, cosine)), lanes);
            store(x, dtype, col + half, vec_fma(a, sine, vec_mul(b, cosine)), lanes);
        }
    }
}

static void rotate_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const rotation *of = context;
    const chunk at = chunk_at(of->cut, of->x.rows, of->heads * of->table.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->x.dtype == CY_BF16) {
            rotate_row(of, t, CY_BF16);
        } else {
            rotate_row(of, t, CY_F32);
        }
    }
}

static void rope(
    cy_queue *queue, cy_view x, cy_view table, const int32_t *positions, int heads, bool inverse)
{
    if (!supported(x) || table.dtype != CY_F32) {
        cy_ref_rope(queue, x, table, positions, heads, inverse);
        return;
    }
    rotation of = {
        .cut = grid_of_rows(x.rows, heads * table.cols),
        .x = x,
        .table = table,
        .positions = positions,
        .heads = heads,
        .inverse = inverse,
    };
    cy_queue_run(queue, rotate_piece, &of, of.cut.count);
}

// ---- swiglu: silu(gate) * up and its gradient

typedef struct gated {
    grid cut;
    cy_view y, gate_up, dy, d_gate_up;
} gated;

// The one place that makes y, so that both passes give the same bits.
FORCE_INLINE vec gated_output(vec gate, vec up, vec sigmoid)
{
    return vec_mul(vec_mul(gate, sigmoid), up);
}

FORCE_INLINE void swiglu_forward_row(const gated *of, chunk at, int64_t t, cy_dtype dtype)
{
    const int64_t cols = of->y.cols;
    const void *gate_up = cy_view_at(of->gate_up, t, 0);
    void *y = cy_view_at(of->y, t, 0);
    for (int64_t i = at.col; i < at.col_end; i += LANES) {
        const int64_t lanes = lanes_left(at.col_end, i);
        const vec gate = load(gate_up, dtype, i, lanes);
        const vec up = load(gate_up, dtype, cols + i, lanes);
        prefetch(gate_up, dtype, of->gate_up.stride + i);
        prefetch(gate_up, dtype, of->gate_up.stride + cols + i);
        prefetch(y, dtype, of->y.stride + i);
        store(y, dtype, i, gated_output(gate, up, vec_sigmoid(gate)), lanes);
    }
}

static void swiglu_forward_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const gated *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->y.dtype == CY_BF16) {
            swiglu_forward_row(of, at, t, CY_BF16);
        } else {
            swiglu_forward_row(of, at, t, CY_F32);
        }
    }
}

static void swiglu_forward(cy_queue *queue, cy_view y, cy_view gate_up)
{
    if (!supported(y)) {
        cy_ref_swiglu_forward(queue, y, gate_up);
        return;
    }
    gated of = {.cut = grid_of(y.rows, y.cols), .y = y, .gate_up = gate_up};
    cy_queue_run(queue, swiglu_forward_chunk, &of, of.cut.count);
}

FORCE_INLINE void swiglu_backward_row(const gated *of, chunk at, int64_t t, cy_dtype dtype)
{
    const int64_t cols = of->dy.cols;
    const void *gate_up = cy_view_at(of->gate_up, t, 0), *dy = cy_view_at(of->dy, t, 0);
    void *y = cy_view_is_none(of->y) ? NULL : cy_view_at(of->y, t, 0);
    void *d_gate_up = cy_view_at(of->d_gate_up, t, 0);
    for (int64_t i = at.col; i < at.col_end; i += LANES) {
        const int64_t lanes = lanes_left(at.col_end, i);
        const vec gate = load(gate_up, dtype, i, lanes);
        const vec up = load(gate_up, dtype, cols + i, lanes);
        const vec d = load(dy, of->dy.dtype, i, lanes);
        prefetch(gate_up, dtype, of->gate_up.stride + i);
        prefetch(gate_up, dtype, of->gate_up.stride + cols + i);
        prefetch(dy, of->dy.dtype, of->dy.stride + i);
        const vec s = vec_sigmoid(gate);
        const vec silu = vec_mul(gate, s);
        if (y != NULL) {
            store(y, dtype, i, gated_output(gate, up, s), lanes);
            prefetch(y, dtype, of->y.stride + i);
        }
        // The slope of silu: s + gate s (1 - s).
        const vec slope = vec_fma(silu, vec_sub(vec_all(1.0f), s), s);
        store(d_gate_up, of->d_gate_up.dtype, i, vec_mul(vec_mul(d, up), slope), lanes);
        store(d_gate_up, of->d_gate_up.dtype, cols + i, vec_mul(d, silu), lanes);
    }
}

static void swiglu_backward_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const gated *of = context;
    const chunk at = chunk_at(of->cut, of->dy.rows, of->dy.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->gate_up.dtype == CY_BF16) {
            swiglu_backward_row(of, at, t, CY_BF16);
        } else {
            swiglu_backward_row(of, at, t, CY_F32);
        }
    }
}

static void swiglu_backward(
    cy_queue *queue, cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up)
{
    if (!supported(gate_up) || !supported(dy) || !supported(d_gate_up)) {
        cy_ref_swiglu_backward(queue, d_gate_up, y, dy, gate_up);
        return;
    }
    gated of = {
        .cut = grid_of(dy.rows, dy.cols),
        .y = y,
        .gate_up = gate_up,
        .dy = dy,
        .d_gate_up = d_gate_up,
    };
    cy_queue_run(queue, swiglu_backward_chunk, &of, of.cut.count);
}

#endif
