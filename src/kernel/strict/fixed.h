// kernel/strict/fixed.h: adds to fixed point and reads it, a row at a time.
//
// Included by the tables of this folder only, as are the other headers that hold operators.

#ifndef CY_KERNEL_STRICT_FIXED_H
#define CY_KERNEL_STRICT_FIXED_H

#include "base/status.h"
#include "kernel/cpu/vector/elementwise.h"
#include "kernel/ref/ref.h"
#include "kernel/strict/strict.h"

static inline bool is_fixed(cy_view view)
{
    return view.dtype == CY_FX64;
}

// The factor that turns a number into units. Exact in fp32.
static inline float units_in_one(cy_view fixed)
{
    CY_ASSERT(fixed.exponent >= -120 && fixed.exponent <= 120);
    return ldexpf(1.0f, -fixed.exponent);
}

static inline int64_t *fixed_at(cy_view view, int64_t row, int64_t col)
{
    return (int64_t *)cy_view_at(view, row, col);
}

// Adds elements [first, end) of fp32 or bf16 data to one sum each.
FORCE_INLINE void fixed_add_row(int64_t *sum, const void *x, cy_dtype dtype, int64_t first,
    int64_t end, float factor, term_sizes *sizes)
{
    for (int64_t i = first; i < end; i += LANES) {
        const int64_t lanes = lanes_left(end, i);
        const vec term = vec_mul(load(x, dtype, i, lanes), vec_all(factor));
        fixed_add(sum + (i - first), term, lanes, sizes);
    }
}

static inline void flag_unless(cy_queue *queue, bool fits)
{
    if (!fits) cy_queue_note_overflow(queue);
}

// Records the largest term that a task has added to a view, and sets the flag where a term reached
// CY_STRICT_TERM_LIMIT. Both results are the same however the terms were spread over tasks.
static inline void note_terms(cy_queue *queue, cy_view view, term_sizes sizes)
{
    const uint32_t largest = largest_term(sizes);
    flag_unless(queue, largest < cy_f32_bits(CY_STRICT_TERM_LIMIT));
    if (view.largest == NULL) return;
    uint32_t noted = atomic_load_explicit(view.largest, memory_order_relaxed);
    while (largest > noted) {
        if (atomic_compare_exchange_weak(view.largest, &noted, largest)) return;
    }
}

// ---- element by element, where a view is fixed point

typedef struct fixed_chunks {
    cy_queue *queue;
    grid cut;
    cy_view y, a, b;
} fixed_chunks;

static void run_fixed(cy_queue *queue, cy_task task, cy_view y, cy_view a, cy_view b)
{
    fixed_chunks of = {.queue = queue, .cut = grid_of(y.rows, y.cols), .y = y, .a = a, .b = b};
    cy_queue_run(queue, task, &of, of.cut.count);
}

static void fill_fixed(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_chunks *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    const int64_t units = *(const int64_t *)of->a.data;
    for (int64_t t = at.row; t < at.row_end; t++) {
        int64_t *y = fixed_at(of->y, t, 0);
        for (int64_t i = at.col; i < at.col_end; i++)
            y[i] = units;
    }
}

static void strict_fill(cy_queue *queue, cy_view y, double value)
{
    if (!is_fixed(y)) {
        fill(queue, y, value);
        return;
    }
    int64_t units = cy_ref_to_fixed(queue, value, y.exponent);
    run_fixed(queue, fill_fixed, y, cy_view_of(&units, CY_FX64, 1, 1), cy_view_none());
}

static void copy_from_fixed(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_chunks *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    const double unit = ldexp(1.0, of->a.exponent);
    bool fits = true;
    for (int64_t t = at.row; t < at.row_end; t++) {
        void *y = cy_view_at(of->y, t, 0);
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            const vec value = fixed_load(fixed_at(of->a, t, i), unit, lanes, &fits);
            store(y, of->y.dtype, i, value, lanes);
        }
    }
    flag_unless(of->queue, fits);
}

static void copy_to_fixed(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_chunks *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    const float factor = units_in_one(of->y);
    term_sizes sizes = no_terms();
    for (int64_t t = at.row; t < at.row_end; t++) {
        int64_t *y = fixed_at(of->y, t, at.col);
        memset(y, 0, (size_t)(at.col_end - at.col) * sizeof(*y));
        fixed_add_row(y, cy_view_at(of->a, t, 0), of->a.dtype, at.col, at.col_end, factor, &sizes);
    }
    note_terms(of->queue, of->y, sizes);
}

static void copy_units(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_chunks *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    const size_t bytes = (size_t)(at.col_end - at.col) * sizeof(int64_t);
    for (int64_t t = at.row; t < at.row_end; t++)
        memmove(fixed_at(of->y, t, at.col), fixed_at(of->a, t, at.col), bytes);
}

static void strict_copy(cy_queue *queue, cy_view y, cy_view x)
{
    if (is_fixed(x) && is_fixed(y) && x.exponent == y.exponent) {
        run_fixed(queue, copy_units, y, x, cy_view_none());
    } else if (is_fixed(x) && supported(y)) {
        run_fixed(queue, copy_from_fixed, y, x, cy_view_none());
    } else if (is_fixed(y) && supported(x)) {
        run_fixed(queue, copy_to_fixed, y, x, cy_view_none());
    } else {
        copy(queue, y, x);
    }
}

static bool add_integers(int64_t *y, const int64_t *a, const int64_t *b, int64_t count)
{
    int out = 0;
    for (int64_t i = 0; i < count; i++) {
        y[i] = (int64_t)((uint64_t)a[i] + (uint64_t)b[i]);
        out |= y[i] >= CY_FIXED_LIMIT || y[i] <= -CY_FIXED_LIMIT;
    }
    return out == 0;
}

static void add_fixed_pair(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_chunks *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    bool fits = true;
    for (int64_t t = at.row; t < at.row_end; t++) {
        fits &= add_integers(fixed_at(of->y, t, at.col), fixed_at(of->a, t, at.col),
            fixed_at(of->b, t, at.col), at.col_end - at.col);
    }
    flag_unless(of->queue, fits);
}

static void add_to_fixed(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_chunks *of = context;
    const chunk at = chunk_at(of->cut, of->y.rows, of->y.cols, number);
    const float factor = units_in_one(of->y);
    term_sizes sizes = no_terms();
    for (int64_t t = at.row; t < at.row_end; t++) {
        fixed_add_row(fixed_at(of->y, t, at.col), cy_view_at(of->b, t, 0), of->b.dtype, at.col,
            at.col_end, factor, &sizes);
    }
    note_terms(of->queue, of->y, sizes);
}

static void strict_add(cy_queue *queue, cy_view y, cy_view a, cy_view b)
{
    const bool pair = is_fixed(y) && is_fixed(a) && is_fixed(b);
    if (pair) {
        CY_ASSERT(a.exponent == y.exponent && b.exponent == y.exponent);
        run_fixed(queue, add_fixed_pair, y, a, b);
    } else if (is_fixed(y) && y.data == a.data && supported(b)) {
        run_fixed(queue, add_to_fixed, y, a, b);
    } else {
        add(queue, y, a, b);
    }
}

// ---- sums over rows: a task has all rows and a range of columns

#define FIXED_COLUMNS 64

typedef struct fixed_columns {
    cy_queue *queue;
    cy_view sum, x, dy, inv_rms;
    const int32_t *tokens;
    int64_t first;
} fixed_columns;

static void sum_rows_columns(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_columns *of = context;
    const int64_t first = number * FIXED_COLUMNS;
    const int64_t end = first + FIXED_COLUMNS < of->x.cols ? first + FIXED_COLUMNS : of->x.cols;
    const float factor = units_in_one(of->sum);
    term_sizes sizes = no_terms();
    for (int64_t t = 0; t < of->x.rows; t++) {
        fixed_add_row(fixed_at(of->sum, 0, first), cy_view_at(of->x, t, 0), of->x.dtype, first, end,
            factor, &sizes);
    }
    note_terms(of->queue, of->sum, sizes);
}

static void strict_sum_rows(cy_queue *queue, cy_view sum, cy_view x)
{
    if (!is_fixed(sum) || !supported(x)) {
        sum_rows(queue, sum, x);
        return;
    }
    fixed_columns of = {.queue = queue, .sum = sum, .x = x};
    cy_queue_run(queue, sum_rows_columns, &of, cy_ceil_div(x.cols, FIXED_COLUMNS));
}

#endif
