// kernel/strict/operators.h: the operators of strict mode except products and attention.
// Included by the table.c of each instruction set in this folder and by portable.c only. The
// function at the end fills a table with all operators of strict mode.

#ifndef CY_KERNEL_STRICT_OPERATORS_H
#define CY_KERNEL_STRICT_OPERATORS_H

#define CY_SIXTEEN_LANES // before kernel/cpu/vector/vector.h

#include "kernel/cpu/vector/elementwise.h"
#include "kernel/cpu/vector/norm.h"
#include "kernel/cpu/vector/optimizer.h"
#include "kernel/strict/attention.h"
#include "kernel/strict/fixed.h"
#include "kernel/strict/math.h"

// ---- gradients of norm weights and embeddings, and the table of positions

// dweight: one term a token, dy * (x * inv_rms).
static void norm_weight_columns(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_columns *of = context;
    const int64_t first = number * FIXED_COLUMNS;
    const int64_t end = first + FIXED_COLUMNS < of->x.cols ? first + FIXED_COLUMNS : of->x.cols;
    const vec factor = vec_all(units_in_one(of->sum));
    const float *inv_rms = of->inv_rms.data;
    term_sizes sizes = no_terms();
    for (int64_t t = 0; t < of->x.rows; t++) {
        const void *x = cy_view_at(of->x, t, 0), *dy = cy_view_at(of->dy, t, 0);
        for (int64_t i = first; i < end; i += LANES) {
            const int64_t lanes = lanes_left(end, i);
            const vec share = vec_mul(load(x, of->x.dtype, i, lanes), vec_all(inv_rms[t]));
            const vec term = vec_mul(load(dy, of->dy.dtype, i, lanes), share);
            fixed_add(fixed_at(of->sum, 0, i), vec_mul(term, factor), lanes, &sizes);
        }
    }
    note_terms(of->queue, of->sum, sizes);
}

static void strict_norm_backward(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy,
    cy_view x, cy_view inv_rms, cy_view weight)
{
    if (!is_fixed(dweight) || !norm_supported(x, inv_rms, weight) || !supported(dy)) {
        norm_backward(queue, dx, dweight, dy, x, inv_rms, weight);
        return;
    }
    // dweight first, because dx may overwrite dy.
    fixed_columns of = {.queue = queue, .sum = dweight, .x = x, .dy = dy, .inv_rms = inv_rms};
    cy_queue_run(queue, norm_weight_columns, &of, cy_ceil_div(x.cols, FIXED_COLUMNS));
    if (!cy_view_is_none(dx)) {
        norm_backward(queue, dx, cy_view_none(), dy, x, inv_rms, weight);
    }
}

static void embedding_columns(void *context, int64_t number, int worker)
{
    (void)worker;
    const fixed_columns *of = context;
    const int64_t first = number * FIXED_COLUMNS;
    const int64_t end = first + FIXED_COLUMNS < of->dy.cols ? first + FIXED_COLUMNS : of->dy.cols;
    const float factor = units_in_one(of->sum);
    term_sizes sizes = no_terms();
    for (int64_t t = 0; t < of->dy.rows; t++) {
        const int64_t row = of->tokens[t] - of->first;
        if (row < 0 || row >= of->sum.rows) continue;
        fixed_add_row(fixed_at(of->sum, row, first), cy_view_at(of->dy, t, 0), of->dy.dtype, first,
            end, factor, &sizes);
    }
    note_terms(of->queue, of->sum, sizes);
}

static void strict_embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first)
{
    if (!is_fixed(d_table) || !supported(dy)) {
        embedding_backward(queue, d_table, dy, tokens, first);
        return;
    }
    fixed_columns of = {.queue = queue, .sum = d_table, .dy = dy, .tokens = tokens, .first = first};
    cy_queue_run(queue, embedding_columns, &of, cy_ceil_div(dy.cols, FIXED_COLUMNS));
}

typedef struct angle_rows {
    cy_queue *queue;
    cy_view table;
    const double *inv_freq; // [head_dim / 2]
    double scale;
} angle_rows;

static void angle_row(void *context, int64_t p, int worker)
{
    (void)worker;
    const angle_rows *of = context;
    const int64_t half = of->table.cols / 2;
    for (int64_t i = 0; i < half; i++) {
        double sine, cosine;
        cy_strict_sine_cosine(&sine, &cosine, (double)p * of->inv_freq[i]);
        cy_ref_store(of->queue, of->table, p, i, of->scale * cosine);
        cy_ref_store(of->queue, of->table, p, half + i, of->scale * sine);
    }
}

static void strict_rope_table(cy_queue *queue, cy_view table, const double *inv_freq, double scale)
{
    angle_rows of = {.queue = queue, .table = table, .inv_freq = inv_freq, .scale = scale};
    cy_queue_run(queue, angle_row, &of, table.rows);
}

// ---- cross-entropy whose sums do not depend on where the vocabulary is cut
//
// exp(logit - max) is at most 1. The sum of a row is made in fixed point always: in the units of
// `sum`, or in units of 2^-39 where sum is fp32 and no other rank adds to it. The target's logit
// may be added over ranks as it is, since all but one hold 0.

#define OWN_SUM_EXPONENT (-39)

typedef struct logit_rows {
    cy_queue *queue;
    grid cut; // of rows
    cy_view out, target, logits, max, sum;
    const int32_t *targets; // [rows]
    int64_t first;          // global index of column 0
    int64_t valid;          // columns here that are not padding
    double scale;
} logit_rows;

static float logit_at(cy_view logits, int64_t t, int64_t column)
{
    const void *at = cy_view_at(logits, t, column);
    return logits.dtype == CY_BF16 ? cy_bf16_to_f32(*(const cy_bf16 *)at) : *(const float *)at;
}

static void head_max_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const chunk at = chunk_at(of->cut, of->logits.rows, of->logits.cols, number);
    const vec lowest = vec_all(-INFINITY);
    for (int64_t t = at.row; t < at.row_end; t++) {
        const void *logits = cy_view_at(of->logits, t, 0);
        vec max = lowest;
        for (int64_t i = 0; i < of->valid; i += LANES) {
            const int64_t lanes = lanes_left(of->valid, i);
            // A NaN is passed over, and shows in the sum.
            max = vec_max(vec_first(load(logits, of->logits.dtype, i, lanes), lowest, lanes), max);
        }
        // -0 and 0 are equal but have different bits: plus zero, so that the maximum does not
        // depend on which of them came first.
        ((float *)of->out.data)[t] = vec_largest(max) + 0.0f;
    }
}

static void strict_softmax_max(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range)
{
    if (!supported(logits) || max.dtype != CY_F32) {
        cy_ref_softmax_max(queue, max, logits, range);
        return;
    }
    logit_rows of = {
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = max,
        .logits = logits,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, head_max_chunk, &of, of.cut.count);
}

// Units of the sum of a row's exponentials.
FORCE_INLINE int64_t exponential_units(
    term_sizes *sizes, const logit_rows *of, int64_t t, float factor, cy_dtype dtype)
{
    int64_t sums[2][LANES] = {{0}}; // two, so that one addition need not wait for the last
    const void *logits = cy_view_at(of->logits, t, 0);
    const vec max = vec_all(((const float *)of->max.data)[t]), scale = vec_all(factor);
    const vec zero = vec_all(0.0f);
    for (int64_t i = 0; i < of->valid; i += LANES) {
        const int64_t lanes = lanes_left(of->valid, i);
        const vec power = vec_exp(vec_sub(load(logits, dtype, i, lanes), max));
        const vec term = vec_first(vec_mul(power, scale), zero, lanes);
        fixed_add(sums[i / LANES % 2], term, LANES, sizes);
    }
    // Unsigned: a NaN becomes the smallest integer, and two of these would overflow. Their
    // sum is never used, because `sizes` records them.
    uint64_t units = 0;
    for (int i = 0; i < LANES; i++)
        units += (uint64_t)sums[0][i] + (uint64_t)sums[1][i];
    return (int64_t)units;
}

static void head_sum_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const chunk at = chunk_at(of->cut, of->logits.rows, of->logits.cols, number);
    const int exponent = is_fixed(of->out) ? of->out.exponent : OWN_SUM_EXPONENT;
    const float factor = ldexpf(1.0f, -exponent);
    term_sizes sizes = no_terms();
    for (int64_t t = at.row; t < at.row_end; t++) {
        const int64_t units = of->logits.dtype == CY_BF16
            ? exponential_units(&sizes, of, t, factor, CY_BF16)
            : exponential_units(&sizes, of, t, factor, CY_F32);
        if (is_fixed(of->out)) {
            ((int64_t *)of->out.data)[t] = units;
        } else {
            ((float *)of->out.data)[t] = (float)ldexp((double)units, exponent);
        }
        const int64_t column = of->targets[t] - of->first;
        const bool here = of->targets[t] >= 0 && column >= 0 && column < of->valid;
        ((float *)of->target.data)[t] = here ? logit_at(of->logits, t, column) : 0.0f;
    }
    note_terms(of->queue, of->out, sizes);
}

static void strict_softmax_sum(cy_queue *queue, cy_view sum, cy_view target, cy_view logits,
    cy_view max, const int32_t *targets, cy_vocab_range range)
{
    const bool fp32 = max.dtype == CY_F32 && target.dtype == CY_F32;
    if (!supported(logits) || !fp32 || (sum.dtype != CY_F32 && !is_fixed(sum))) {
        cy_ref_softmax_sum(queue, sum, target, logits, max, targets, range);
        return;
    }
    logit_rows of = {
        .queue = queue,
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = sum,
        .target = target,
        .logits = logits,
        .max = max,
        .targets = targets,
        .first = range.first,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, head_sum_chunk, &of, of.cut.count);
}

static void strict_softmax_loss(
    cy_queue *queue, cy_view loss, cy_view max, cy_view sum, cy_view target, const int32_t *targets)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < max.cols; t++) {
        if (targets[t] < 0) continue;
        const double of_token = cy_ref_load(max, 0, t) + cy_strict_log(cy_ref_load(sum, 0, t)) -
            cy_ref_load(target, 0, t);
        if (is_fixed(loss) &&
            !(fabs(ldexp(of_token, -loss.exponent)) < (double)CY_STRICT_TERM_LIMIT)) {
            cy_queue_note_overflow(queue);
            continue;
        }
        cy_ref_accumulate(queue, loss, 0, 0, of_token);
    }
}

FORCE_INLINE void head_grad_row(const logit_rows *of, int64_t t, cy_dtype out_dtype, cy_dtype dtype)
{
    const void *logits = cy_view_at(of->logits, t, 0);
    void *out = cy_view_at(of->out, t, 0);
    const bool counts = of->targets[t] >= 0;
    const int64_t column = of->targets[t] - of->first;
    const int64_t valid = counts ? of->valid : 0;
    const bool has_target = counts && column >= 0 && column < valid;
    // The gradient may take the logits' place.
    const float target = has_target ? logit_at(of->logits, t, column) : 0.0f;
    const double sum = cy_ref_load(of->sum, 0, t);
    const float row_max = ((const float *)of->max.data)[t];
    const vec max = vec_all(row_max), factor = vec_all((float)(of->scale / sum));
    const vec zero = vec_all(0.0f);
    for (int64_t i = 0; i < of->logits.cols; i += LANES) {
        const int64_t lanes = lanes_left(of->logits.cols, i), left = valid - i;
        const vec power = vec_exp(vec_sub(load(logits, dtype, i, lanes), max));
        const vec gradient = vec_first(vec_mul(factor, power), zero, left < 0 ? 0 : left);
        store(out, out_dtype, i, gradient, lanes);
    }
    if (!has_target) return;
    // Computed apart: otherwise exp / sum - 1 would lose its digits to rounding.
    const double power = cy_strict_exp((double)target - (double)row_max);
    const float gradient = (float)(of->scale * (power / sum - 1.0));
    if (out_dtype == CY_BF16) {
        ((cy_bf16 *)out)[column] = cy_bf16_from_f32(gradient);
    } else {
        ((float *)out)[column] = gradient;
    }
}

static void head_grad_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const logit_rows *of = context;
    const chunk at = chunk_at(of->cut, of->logits.rows, of->logits.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        if (of->logits.dtype == CY_BF16) {
            head_grad_row(of, t, of->out.dtype, CY_BF16);
        } else if (of->out.dtype == CY_BF16) {
            head_grad_row(of, t, CY_BF16, CY_F32);
        } else {
            head_grad_row(of, t, CY_F32, CY_F32);
        }
    }
}

static void strict_softmax_grad(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max,
    cy_view sum, const int32_t *targets, cy_vocab_range range, double scale)
{
    const bool statistics = max.dtype == CY_F32 && (sum.dtype == CY_F32 || is_fixed(sum));
    if (!supported(d_logits) || !supported(logits) || !statistics) {
        cy_ref_softmax_grad(queue, d_logits, logits, max, sum, targets, range, scale);
        return;
    }
    logit_rows of = {
        .cut = grid_of_rows(logits.rows, logits.cols),
        .out = d_logits,
        .logits = logits,
        .max = max,
        .sum = sum,
        .targets = targets,
        .first = range.first,
        .valid = cy_vocab_columns(range, logits.cols),
        .scale = scale,
    };
    cy_queue_run(queue, head_grad_chunk, &of, of.cut.count);
}

// ---- the optimizer, over gradients in fixed point

// ---- sums of squares in cells: each square is cut into digits of CY_STRICT_SQUARE_BITS bits, and
// each cell sums one digit. Everything after the square's cut at one unit is exact.

#define SQUARE_CHUNK 4096
#define SQUARE_RUN   128 // that go through each step together, so that compilers make vectors

typedef struct square_cells {
    cy_queue *queue;
    cy_view x, out;
    int64_t across;
    int64_t *parts; // [chunks, CY_STRICT_SQUARE_CELLS], in scratch
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

static void square_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const square_cells *of = context;
    const int64_t row = number / of->across, first = number % of->across * SQUARE_CHUNK;
    const int64_t end = first + SQUARE_CHUNK < of->x.cols ? first + SQUARE_CHUNK : of->x.cols;
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
                vec_spread(
                    x + (i - run), fixed_load(fixed_at(of->x, row, i), x_unit, lanes, &fits));
            } else {
                vec_spread(x + (i - run), load(cy_view_at(of->x, row, 0), of->x.dtype, i, lanes));
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
    if (!is_fixed(out) || out.cols != CY_STRICT_SQUARE_CELLS || (!supported(x) && !is_fixed(x))) {
        sum_squares(queue, out, x);
        return;
    }
    if (cy_view_is_dense(x)) flatten(&x);
    const size_t mark = cy_arena_mark(queue->scratch);
    square_cells of = {
        .queue = queue, .x = x, .out = out, .across = cy_ceil_div(x.cols, SQUARE_CHUNK)};
    const int64_t count = of.across * x.rows;
    of.parts =
        cy_arena_alloc(queue->scratch, (size_t)(count * CY_STRICT_SQUARE_CELLS) * sizeof(int64_t));
    cy_queue_run(queue, square_chunk, &of, count);
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

// ---- AdamW: as in kernel/cpu/vector/optimizer.h, with powers of our own and gradients in fixed
// point

typedef struct strict_adamw_range {
    cy_queue *queue;
    adamw_range range;
} strict_adamw_range;

static void strict_adamw_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const strict_adamw_range *of = context;
    adamw_range range = of->range;
    const chunk at = chunk_at(range.cut, 1, range.master.cols, number);
    const bool fixed = is_fixed(of->range.grad);
    const double unit = fixed ? ldexp(1.0, of->range.grad.exponent) : 0.0;
    float grads[CHUNK];
    bool fits = true;
    if (fixed) {
        for (int64_t i = at.col; i < at.col_end; i += LANES) {
            const int64_t lanes = lanes_left(at.col_end, i);
            store_f32(grads + (i - at.col),
                fixed_load(fixed_at(of->range.grad, 0, i), unit, lanes, &fits), lanes);
        }
        // One chunk of each, so that the gradients count from 0 as well.
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
    const bool grads = supported(grad) || is_fixed(grad);
    if (master.dtype != CY_F32 || !grads || (has_weight && !supported(weight))) {
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
    cy_queue_run(queue, strict_adamw_chunk, &of, of.range.cut.count);
}

// ---- the table

// The reference serves attention_merge and attention_paged, which strict training does not use, and
// all dtypes other than fp32, bf16 and fixed point.
static void override_with_strict(cy_kernels *table)
{
    table->matmul = strict_matmul;
    table->norm_forward = norm_forward;
    table->norm_apply = norm_apply;
    table->norm_backward = strict_norm_backward;
    table->rope_table = strict_rope_table;
    table->rope = rope;
    table->attention_forward = strict_attention_forward;
    table->attention_delta = strict_attention_delta;
    table->attention_backward = strict_attention_backward;
    table->swiglu_forward = swiglu_forward;
    table->swiglu_backward = swiglu_backward;
    table->embedding_forward = embedding_forward;
    table->embedding_backward = strict_embedding_backward;
    table->softmax_max = strict_softmax_max;
    table->softmax_sum = strict_softmax_sum;
    table->softmax_loss = strict_softmax_loss;
    table->softmax_grad = strict_softmax_grad;
    table->fill = strict_fill;
    table->copy = strict_copy;
    table->add = strict_add;
    table->add_bias = add_bias;
    table->sum_rows = strict_sum_rows;
    table->sum_squares = strict_sum_squares;
    table->clip_scale = strict_clip_scale;
    table->adamw = strict_adamw;
    table->adamw_unfused = strict_adamw;
    table->random_fill = random_fill;
    table->hash = hash;
}

#endif
