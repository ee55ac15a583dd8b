// kernel/strict/step.h: the optimizer's operators over gradients in fixed point.
// Included by the tables of this folder only, which give it its vectors.

#ifndef CY_KERNEL_STRICT_STEP_H
#define CY_KERNEL_STRICT_STEP_H

#include "kernel/cpu/vector/optimizer.h"
#include "kernel/strict/fixed.h"
#include "kernel/strict/math.h"

// ---- sums of squares in cells: each square is cut into digits of CY_STRICT_SQUARE_BITS bits, and
// each cell sums one digit. Everything after the square's cut at one unit is exact.

#define SQUARE_PIECE 4096
#define SQUARE_RUN   128 // that go through each step together, so that compilers make vectors

typedef struct square_cells {
    cy_queue *queue;
    cy_view x, out;
    int64_t across;
    int64_t *parts; // [pieces, CY_STRICT_SQUARE_CELLS], in scratch
} square_cells;

// Sums of each digit, one for each place of a run. A digit is below 2^28, so that 2^25 of them are
// exact in fp64.
typedef struct digit_sums {
    double cells[CY_STRICT_SQUARE_CELLS][SQUARE_RUN];
} digit_sums;

static bool add_digits(digit_sums *sums, const float x[SQUARE_RUN], double unit)
{
    static const double digit[] = {1.0, 0x1p28, 0x1p56, 0x1p84};
    static const double inverse[] = {1.0, 0x1p-28, 0x1p-56, 0x1p-84};
    double rest[SQUARE_RUN];
    int out = 0;
    for (int i = 0; i < SQUARE_RUN; i++) {
        rest[i] = (double)x[i] * (double)x[i] * unit; // 48 bits, then a power of two: exact
        out |= !(rest[i] < 0x1p112);
    }
    if (out != 0) return false;
    for (int j = CY_STRICT_SQUARE_CELLS - 1; j >= 0; j--) {
        for (int i = 0; i < SQUARE_RUN; i++) {
            const double count = floor(rest[i] * inverse[j]);
            rest[i] -= count * digit[j];
            sums->cells[j][i] += count;
        }
    }
    return true;
}

static void square_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const square_cells *of = context;
    const int64_t row = number / of->across, first = number % of->across * SQUARE_PIECE;
    const int64_t end = first + SQUARE_PIECE < of->x.cols ? first + SQUARE_PIECE : of->x.cols;
    const double unit = ldexp(1.0, -of->out.exponent);
    const double x_unit = is_fixed(of->x) ? ldexp(1.0, of->x.exponent) : 0.0;
    int64_t *cells = of->parts + number * CY_STRICT_SQUARE_CELLS;
    digit_sums sums = {0};
    bool fits = true;
    for (int64_t run = first; run < end; run += SQUARE_RUN) {
        float x[SQUARE_RUN] = {0};
        for (int64_t i = run; i < end && i < run + SQUARE_RUN; i += LANES) {
            const int64_t lanes = lanes_left(end, i);
            if (is_fixed(of->x)) {
                vec_spread(x + i - run, fixed_load(fixed_at(of->x, row, i), x_unit, lanes, &fits));
            } else {
                vec_spread(x + i - run, load(cy_view_at(of->x, row, 0), of->x.dtype, i, lanes));
            }
        }
        fits &= add_digits(&sums, x, unit);
    }
    for (int j = 0; j < CY_STRICT_SQUARE_CELLS; j++) {
        cells[j] = 0;
        for (int i = 0; i < SQUARE_RUN; i++)
            cells[j] += (int64_t)sums.cells[j][i];
    }
    flag_unless(of->queue, fits);
}

static void strict_sum_squares(cy_queue *queue, cy_view out, cy_view x)
{
    if (!is_fixed(out) || out.cols != CY_STRICT_SQUARE_CELLS || (!served(x) && !is_fixed(x))) {
        sum_squares(queue, out, x);
        return;
    }
    if (cy_view_is_dense(x)) flatten(&x);
    const size_t mark = cy_arena_mark(queue->scratch);
    square_cells of = {
        .queue = queue, .x = x, .out = out, .across = pieces_of(x.cols, SQUARE_PIECE)};
    const int64_t count = of.across * x.rows;
    of.parts =
        cy_arena_take(queue->scratch, (size_t)(count * CY_STRICT_SQUARE_CELLS) * sizeof(int64_t));
    cy_queue_run(queue, square_piece, &of, count);
    if (!queue->dry) {
        for (int64_t i = 0; i < count; i++) {
            const int64_t *cells = of.parts + i * CY_STRICT_SQUARE_CELLS;
            flag_unless(queue, add_integers(out.data, out.data, cells, CY_STRICT_SQUARE_CELLS));
        }
    }
    cy_arena_rewind(queue->scratch, mark);
}

static void strict_clip_scale(cy_queue *queue, cy_view scale, cy_view length, cy_view squares_sum,
    double divisor, double max_norm)
{
    if (!is_fixed(squares_sum) || squares_sum.cols != CY_STRICT_SQUARE_CELLS) {
        cy_ref_clip_scale(queue, scale, length, squares_sum, divisor, max_norm);
        return;
    }
    double total = 0.0;
    if (!queue->dry) {
        const int64_t *cells = squares_sum.data;
        for (int j = CY_STRICT_SQUARE_CELLS - 1; j >= 0; j--)
            total = total * 0x1p28 + (double)cells[j];
        total = ldexp(total, squares_sum.exponent);
    }
    const cy_view one = cy_view_of(&total, CY_F64, 1, 1);
    cy_ref_clip_scale(queue, scale, length, one, divisor, max_norm);
}

// ---- AdamW: as in kernel/cpu/vector/optimizer.h, with powers of our own and gradients in fixed point

typedef struct strict_adamw_range {
    cy_queue *queue;
    adamw_range range;
} strict_adamw_range;

static void strict_adamw_piece(void *context, int64_t number, int worker)
{
    (void)worker;
    const strict_adamw_range *of = context;
    adamw_range range = of->range;
    const piece at = piece_at(range.cut, 1, range.master.cols, number);
    const bool fixed = is_fixed(of->range.grad);
    const double unit = fixed ? ldexp(1.0, of->range.grad.exponent) : 0.0;
    float grads[PIECE];
    bool fits = true;
    if (fixed) {
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            store_f32(grads + i - at.col,
                fixed_load(fixed_at(of->range.grad, 0, i), unit, lanes, &fits), lanes);
        }
        // One piece of each, so that the gradients count from 0 as well.
        const int64_t count = at.col_end - at.col;
        range.grad = cy_view_of(grads, CY_F32, 1, count);
        range.master = cy_view_cols(range.master, at.col, count);
        range.m = cy_view_cols(range.m, at.col, count);
        range.v = cy_view_cols(range.v, at.col, count);
        if (!cy_view_is_none(range.weight)) {
            range.weight = cy_view_cols(range.weight, at.col, count);
        }
    }
    const int64_t first = fixed ? 0 : at.col, end = fixed ? at.col_end - at.col : at.col_end;
    for (int64_t i = first; i < end; i += LANES) {
        adamw_vector(&range, i, lanes_left(end, i), range.grad.dtype);
    }
    flag_unless(of->queue, fits);
}

static void strict_adamw(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, cy_view scale, const cy_adamw_spec *spec)
{
    const bool has_weight = !cy_view_is_none(weight);
    const bool grads = served(grad) || is_fixed(grad);
    if (master.dtype != CY_F32 || !grads || (has_weight && !served(weight))) {
        adamw(queue, weight, master, m, v, grad, scale, spec);
        return;
    }
    if (queue->dry) return;
    const double factor = *(const double *)scale.data;
    if (!isfinite(factor)) return;
    strict_adamw_range of = {
        .queue = queue,
        .range = adamw_range_of(weight, master, m, v, grad, factor, spec, cy_strict_power),
    };
    cy_queue_run(queue, strict_adamw_piece, &of, of.range.cut.count);
}

#endif
