// kernel/cpu/vector/elementwise.h: what is done element by element, and sums of rows. Bound by memory.

#ifndef CY_KERNEL_CPU_VECTOR_ELEMENTWISE_H
#define CY_KERNEL_CPU_VECTOR_ELEMENTWISE_H

#include "kernel/cpu/grid.h"
#include "kernel/cpu/vector/vector.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

// The dtypes that the vector loops read and write; the reference serves the others.
static inline bool served(cy_view view)
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

static void run_elementwise(cy_queue *queue, cy_pool_task task, elementwise *of)
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

static void fill_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    const piece at = piece_at(of->cut, of->y.rows, of->y.cols, number);
    const vec value = vec_all(of->value);
    for (int64_t t = at.row; t < at.row_end; t++) {
        void *y = cy_view_at(of->y, t, 0);
        if (of->value == 0.0f && !signbit(of->value)) {
            // The system's way to clear reads no line before it is written.
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
    if (!served(y)) {
        cy_ref_fill(queue, y, value);
        return;
    }
    elementwise of = {.y = y, .value = (float)value};
    run_elementwise(queue, fill_piece, &of);
}

FORCE_INLINE void copy_piece_of(
    const elementwise *of, int64_t number, cy_dtype y_dtype, cy_dtype x_dtype)
{
    const piece at = piece_at(of->cut, of->y.rows, of->y.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        void *y = cy_view_at(of->y, t, 0);
        const void *x = cy_view_at(of->a, t, 0);
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            store(y, y_dtype, i, load(x, x_dtype, i, lanes), lanes);
        }
    }
}

static void copy_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    if (of->y.dtype == CY_BF16) {
        if (of->a.dtype == CY_BF16) {
            copy_piece_of(of, number, CY_BF16, CY_BF16);
        } else {
            copy_piece_of(of, number, CY_BF16, CY_F32);
        }
    } else if (of->a.dtype == CY_BF16) {
        copy_piece_of(of, number, CY_F32, CY_BF16);
    } else {
        copy_piece_of(of, number, CY_F32, CY_F32);
    }
}

static void copy(cy_queue *queue, cy_view y, cy_view x)
{
    if (!served(y) || !served(x)) {
        cy_ref_copy(queue, y, x);
        return;
    }
    elementwise of = {.y = y, .a = x};
    run_elementwise(queue, copy_piece, &of);
}

static void add_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    const piece at = piece_at(of->cut, of->y.rows, of->y.cols, number);
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
    if (!served(y) || !served(a) || !served(b)) {
        cy_ref_add_views(queue, y, a, b);
        return;
    }
    elementwise of = {.y = y, .a = a, .b = b};
    run_elementwise(queue, add_piece, &of);
}

static void add_bias_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const elementwise *of = context;
    const piece at = piece_at(of->cut, of->y.rows, of->y.cols, number);
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
    if (!served(y) || !served(bias)) {
        cy_ref_add_bias(queue, y, bias);
        return;
    }
    elementwise of = {.cut = grid_of(y.rows, y.cols), .y = y, .a = bias};
    cy_queue_run(queue, add_bias_piece, &of, of.cut.count);
}

// ---- sums over rows: parts of at least 64 rows, and at most 32 of them, each summed on its own,
// then the parts in ascending order. norm_backward's dweight is made the same way.

#define PARTS_MAX    32
#define PART_ROWS    64
#define COLUMN_BLOCK 256 // columns of a part that one task sums: their sums stay in the first cache

typedef struct row_parts {
    int64_t rows;  // in a part
    int64_t count; // parts
    cy_view sums;  // [count, cols], fp32, in scratch
} row_parts;

static row_parts take_parts(cy_queue *queue, int64_t rows, int64_t cols)
{
    row_parts parts = {.rows = pieces_of(rows, PARTS_MAX)};
    if (parts.rows < PART_ROWS) parts.rows = PART_ROWS;
    parts.count = pieces_of(rows, parts.rows);
    parts.sums = cy_view_take(queue->scratch, CY_F32, parts.count, cols);
    return parts;
}

typedef struct parts_total {
    row_parts parts;
    cy_view sum; // [1, cols]
} parts_total;

static void add_parts_piece(void *context, int64_t number, int worker)
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
    cy_queue_run(queue, add_parts_piece, &of, pieces_of(sum.cols, COLUMN_BLOCK));
}

typedef struct rows_sum {
    row_parts parts;
    cy_view x;
    int64_t blocks; // of columns
} rows_sum;

static void sum_rows_piece(void *context, int64_t number, int worker)
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
    if (sum.dtype != CY_F32 || !served(x)) {
        cy_ref_sum_rows(queue, sum, x);
        return;
    }
    const size_t mark = cy_arena_mark(queue->scratch);
    rows_sum of = {
        .parts = take_parts(queue, x.rows, x.cols),
        .x = x,
        .blocks = pieces_of(x.cols, COLUMN_BLOCK),
    };
    cy_queue_run(queue, sum_rows_piece, &of, of.parts.count * of.blocks);
    add_parts(queue, sum, of.parts);
    cy_arena_rewind(queue->scratch, mark);
}

#endif
