// The operators that layers call: what kernel.h promises of them, checked. Those of attention are
// in attention.c, those that make gradients small in compress.c.

#include "kernel/kernel.h"

#include "base/assert.h"
#include "kernel/call.h"
#include "kernel/check.h"
#include "kernel/cost.h"

// ---- products

void cy_matmul(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const int64_t m = c.rows, n = c.cols;
    const int64_t k = spec.transpose_a ? a.rows : a.cols;
    CY_ASSERT(is_float(a) && a.dtype == b.dtype);
    CY_ASSERT(c.dtype == a.dtype || c.dtype == CY_F32 || c.dtype == CY_FX64);
    CY_ASSERT(has_shape(c, m, n));
    CY_ASSERT(spec.transpose_a ? has_shape(a, k, m) : has_shape(a, m, k));
    CY_ASSERT(spec.transpose_b ? has_shape(b, n, k) : has_shape(b, k, n));
    CY_ASSERT(apart(queue, c, a) && apart(queue, c, b));

    if (m == 0 || n == 0) return;
    if (k == 0) { // an empty sum: no backend need know of it
        if (!spec.accumulate) cy_fill(queue, c, 0.0);
        return;
    }
    CY_CALL(queue, matmul, cy_cost_matmul(c, a, b, spec), c, a, b, spec);
}

// ---- normalisation

void cy_norm_forward(cy_queue *queue, cy_view y, cy_view inv_rms, cy_view x, cy_view branch,
    cy_view weight, double eps)
{
    const bool has_branch = !cy_view_is_none(branch);
    CY_ASSERT(is_float(x) && y.dtype == x.dtype && is_float(weight) && is_wide(inv_rms));
    CY_ASSERT(same_shape(y, x) && has_shape(x, x.rows, x.cols));
    CY_ASSERT(has_shape(inv_rms, 1, x.rows) && has_shape(weight, 1, x.cols));
    CY_ASSERT(!has_branch || (same_shape(branch, x) && branch.dtype == x.dtype));
    CY_ASSERT(apart(queue, y, x) && apart(queue, y, branch) && apart(queue, x, branch));
    CY_ASSERT(apart(queue, inv_rms, x) && apart(queue, inv_rms, y));

    if (cy_view_count(x) == 0) return;
    CY_CALL(queue, norm_forward, cy_cost_norm_forward(y, inv_rms, x, branch, weight), y, inv_rms, x,
        branch, weight, eps);
}

void cy_norm_apply(cy_queue *queue, cy_view y, cy_view x, cy_view inv_rms, cy_view weight)
{
    CY_ASSERT(is_float(x) && y.dtype == x.dtype && is_float(weight) && is_wide(inv_rms));
    CY_ASSERT(same_shape(y, x) && has_shape(x, x.rows, x.cols));
    CY_ASSERT(has_shape(inv_rms, 1, x.rows) && has_shape(weight, 1, x.cols));
    CY_ASSERT(apart(queue, y, x));

    if (cy_view_count(x) == 0) return;
    CY_CALL(queue, norm_apply, cy_cost_norm_apply(y, x, inv_rms, weight), y, x, inv_rms, weight);
}

void cy_norm_backward(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy, cy_view x,
    cy_view inv_rms, cy_view weight)
{
    const bool to_x = !cy_view_is_none(dx), to_weight = !cy_view_is_none(dweight);
    CY_ASSERT(is_float(x) && is_float(dy) && is_float(weight) && is_wide(inv_rms));
    CY_ASSERT(same_shape(dy, x) && has_shape(x, x.rows, x.cols));
    CY_ASSERT(has_shape(inv_rms, 1, x.rows) && has_shape(weight, 1, x.cols));
    CY_ASSERT(!to_x || (same_shape(dx, x) && is_float(dx)));
    CY_ASSERT(!to_weight || (has_shape(dweight, 1, x.cols) && is_accumulator(dweight)));
    CY_ASSERT(apart(queue, dx, dy) && apart(queue, dx, x) && apart(queue, dx, dweight));

    if (cy_view_count(x) == 0 || (!to_x && !to_weight)) return;
    CY_CALL(queue, norm_backward, cy_cost_norm_backward(dx, dweight, dy, x, inv_rms, weight), dx,
        dweight, dy, x, inv_rms, weight);
}

// ---- positions

void cy_rope_table(cy_queue *queue, cy_view table, const double *inv_freq, double scale)
{
    CY_ASSERT(is_wide(table) && has_shape(table, table.rows, table.cols) && table.cols % 2 == 0);
    CY_ASSERT(inv_freq != NULL);
    CY_CALL(queue, rope_table, cy_cost_rope_table(table), table, inv_freq, scale);
}

void cy_rope(
    cy_queue *queue, cy_view x, cy_view table, const int32_t *positions, int heads, bool inverse)
{
    CY_ASSERT(is_float(x) && has_shape(x, x.rows, x.cols));
    CY_ASSERT(is_wide(table) && has_shape(table, table.rows, table.cols) && table.cols % 2 == 0);
    CY_ASSERT(positions != NULL && heads > 0 && x.cols >= heads * table.cols);
    CY_ASSERT(apart(queue, x, table));

    if (x.rows == 0) return;
    CY_CALL(queue, rope, cy_cost_rope(x, table, heads), x, table, positions, heads, inverse);
}

// ---- feed-forward and embedding

void cy_swiglu_forward(cy_queue *queue, cy_view y, cy_view gate_up)
{
    CY_ASSERT(is_float(y) && y.dtype == gate_up.dtype);
    CY_ASSERT(has_shape(y, y.rows, y.cols) && has_shape(gate_up, y.rows, 2 * y.cols));
    CY_ASSERT(apart(queue, y, gate_up));

    if (cy_view_count(y) == 0) return;
    CY_CALL(queue, swiglu_forward, cy_cost_swiglu_forward(y, gate_up), y, gate_up);
}

void cy_swiglu_backward(cy_queue *queue, cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up)
{
    CY_ASSERT(is_float(dy) && is_float(gate_up) && is_float(d_gate_up));
    CY_ASSERT(has_shape(dy, dy.rows, dy.cols) && has_shape(gate_up, dy.rows, 2 * dy.cols));
    CY_ASSERT(same_shape(d_gate_up, gate_up));
    CY_ASSERT(cy_view_is_none(y) || (same_shape(y, dy) && y.dtype == gate_up.dtype));
    CY_ASSERT(same_view(d_gate_up, gate_up) || apart(queue, d_gate_up, gate_up));
    CY_ASSERT(apart(queue, d_gate_up, dy) && apart(queue, d_gate_up, y));
    CY_ASSERT(apart(queue, y, dy) && apart(queue, y, gate_up));

    if (cy_view_count(dy) == 0) return;
    CY_CALL(queue, swiglu_backward, cy_cost_swiglu_backward(d_gate_up, y, dy, gate_up), d_gate_up,
        y, dy, gate_up);
}

void cy_embedding_forward(
    cy_queue *queue, cy_view y, cy_view table, const int32_t *tokens, int64_t first)
{
    CY_ASSERT(is_float(y) && is_float(table) && tokens != NULL && first >= 0);
    CY_ASSERT(has_shape(y, y.rows, table.cols) && has_shape(table, table.rows, table.cols));
    CY_ASSERT(apart(queue, y, table));

    if (cy_view_count(y) == 0) return;
    CY_CALL(queue, embedding_forward, cy_cost_embedding_forward(y, table), y, table, tokens, first);
}

void cy_embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first)
{
    CY_ASSERT(is_accumulator(d_table) && is_float(dy) && tokens != NULL && first >= 0);
    CY_ASSERT(has_shape(dy, dy.rows, d_table.cols));
    CY_ASSERT(has_shape(d_table, d_table.rows, d_table.cols));
    CY_ASSERT(apart(queue, d_table, dy));

    if (cy_view_count(dy) == 0 || d_table.rows == 0) return;
    CY_CALL(queue, embedding_backward, cy_cost_embedding_backward(d_table, dy), d_table, dy, tokens,
        first);
}

// ---- softmax cross-entropy

static void check_logits(cy_view logits, cy_vocab_range range)
{
    CY_ASSERT(is_float(logits) && has_shape(logits, logits.rows, logits.cols));
    CY_ASSERT(range.first >= 0 && range.valid > 0 && logits.cols > 0);
}

static bool is_statistic(cy_view statistic, int64_t tokens)
{
    return is_wide(statistic) && has_shape(statistic, 1, tokens);
}

static bool is_row_sum(cy_view sum, int64_t tokens)
{
    return is_accumulator(sum) && has_shape(sum, 1, tokens);
}

void cy_softmax_max(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range)
{
    check_logits(logits, range);
    CY_ASSERT(is_statistic(max, logits.rows) && apart(queue, max, logits));

    if (logits.rows == 0) return;
    CY_CALL(queue, softmax_max, cy_cost_softmax_max(max, logits), max, logits, range);
}

void cy_softmax_sum(cy_queue *queue, cy_view sum, cy_view target, cy_view logits, cy_view max,
    const int32_t *targets, cy_vocab_range range)
{
    check_logits(logits, range);
    CY_ASSERT(is_row_sum(sum, logits.rows) && is_statistic(max, logits.rows));
    CY_ASSERT(is_statistic(target, logits.rows) && targets != NULL);
    CY_ASSERT(apart(queue, sum, logits) && apart(queue, sum, max) && apart(queue, sum, target));

    if (logits.rows == 0) return;
    CY_CALL(queue, softmax_sum, cy_cost_softmax_sum(sum, target, logits, max), sum, target, logits,
        max, targets, range);
}

void cy_softmax_loss(
    cy_queue *queue, cy_view loss, cy_view max, cy_view sum, cy_view target, const int32_t *targets)
{
    CY_ASSERT((loss.dtype == CY_F64 || loss.dtype == CY_FX64) && has_shape(loss, 1, 1));
    CY_ASSERT(is_statistic(max, max.cols) && is_row_sum(sum, max.cols));
    CY_ASSERT(is_statistic(target, max.cols) && targets != NULL);

    if (max.cols == 0) return;
    CY_CALL(queue, softmax_loss, cy_cost_softmax_loss(max, sum, target), loss, max, sum, target,
        targets);
}

void cy_softmax_grad(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max, cy_view sum,
    const int32_t *targets, cy_vocab_range range, double scale)
{
    check_logits(logits, range);
    CY_ASSERT(is_float(d_logits) && same_shape(d_logits, logits));
    CY_ASSERT(is_statistic(max, logits.rows) && is_row_sum(sum, logits.rows) && targets != NULL);
    CY_ASSERT(same_view(d_logits, logits) || apart(queue, d_logits, logits));

    if (cy_view_count(logits) == 0) return;
    CY_CALL(queue, softmax_grad, cy_cost_softmax_grad(d_logits, logits, max, sum), d_logits, logits,
        max, sum, targets, range, scale);
}

// ---- element by element

void cy_fill(cy_queue *queue, cy_view y, double value)
{
    CY_ASSERT(is_number(y) && has_shape(y, y.rows, y.cols));

    if (cy_view_count(y) == 0) return;
    CY_CALL(queue, fill, cy_cost_fill(y), y, value);
}

void cy_copy(cy_queue *queue, cy_view y, cy_view x)
{
    CY_ASSERT(is_number(y) && is_number(x) && same_shape(y, x) && has_shape(x, x.rows, x.cols));
    CY_ASSERT(same_view(y, x) || apart(queue, y, x));

    if (cy_view_count(y) == 0) return;
    CY_CALL(queue, copy, cy_cost_copy(y, x), y, x);
}

void cy_add(cy_queue *queue, cy_view y, cy_view a, cy_view b)
{
    CY_ASSERT(is_number(y) && is_number(a) && is_number(b));
    CY_ASSERT(same_shape(a, y) && same_shape(b, y) && has_shape(y, y.rows, y.cols));
    CY_ASSERT(same_view(y, a) || apart(queue, y, a));
    CY_ASSERT(same_view(y, b) || apart(queue, y, b));

    if (cy_view_count(y) == 0) return;
    CY_CALL(queue, add, cy_cost_add(y, a, b), y, a, b);
}

void cy_add_bias(cy_queue *queue, cy_view y, cy_view bias)
{
    CY_ASSERT(is_number(y) && is_number(bias) && has_shape(y, y.rows, y.cols));
    CY_ASSERT(has_shape(bias, 1, y.cols) && apart(queue, y, bias));

    if (cy_view_count(y) == 0) return;
    CY_CALL(queue, add_bias, cy_cost_add_bias(y, bias), y, bias);
}

void cy_sum_rows(cy_queue *queue, cy_view sum, cy_view x)
{
    CY_ASSERT(is_number(sum) && is_number(x) && has_shape(x, x.rows, x.cols));
    CY_ASSERT(has_shape(sum, 1, x.cols) && apart(queue, sum, x));

    if (cy_view_count(x) == 0) return;
    CY_CALL(queue, sum_rows, cy_cost_sum_rows(sum, x), sum, x);
}

// ---- optimizer

static bool is_scalar(cy_view view)
{
    return view.dtype == CY_F64 && has_shape(view, 1, 1);
}

// One fp64 number, or one of fixed point, or strict mode's cells.
static bool is_square_sum(cy_view sum)
{
    if (sum.dtype == CY_F64) return has_shape(sum, 1, 1);
    return sum.dtype == CY_FX64 && (has_shape(sum, 1, 1) || has_shape(sum, 1, 4));
}

void cy_sum_squares(cy_queue *queue, cy_view out, cy_view x)
{
    CY_ASSERT(is_square_sum(out));
    CY_ASSERT(is_number(x) && has_shape(x, x.rows, x.cols));

    if (cy_view_count(x) == 0) return;
    CY_CALL(queue, sum_squares, cy_cost_sum_squares(x), out, x);
}

void cy_clip_scale(cy_queue *queue, cy_view scale, cy_view norm, cy_view sum_squares,
    double divisor, double max_norm)
{
    CY_ASSERT(is_scalar(scale) && is_scalar(norm) && is_square_sum(sum_squares));
    CY_ASSERT(divisor > 0.0 && max_norm >= 0.0);
    CY_CALL(queue, clip_scale, cy_cost_clip_scale(), scale, norm, sum_squares, divisor, max_norm);
}

void cy_adamw(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v, cy_view grad,
    cy_view scale, const cy_adamw_spec *spec)
{
    const int64_t n = master.cols;
    CY_ASSERT(is_wide(master) && m.dtype == master.dtype && v.dtype == master.dtype);
    CY_ASSERT(has_shape(master, 1, n) && has_shape(m, 1, n) && has_shape(v, 1, n));
    CY_ASSERT(is_number(grad) && has_shape(grad, 1, n) && is_scalar(scale));
    CY_ASSERT(cy_view_is_none(weight) || (is_float(weight) && has_shape(weight, 1, n)));
    CY_ASSERT(apart(queue, master, m) && apart(queue, master, v) && apart(queue, m, v));
    CY_ASSERT(apart(queue, weight, master) && apart(queue, weight, m) && apart(queue, weight, v));
    CY_ASSERT(apart(queue, grad, master) && apart(queue, grad, m) && apart(queue, grad, v));
    CY_ASSERT(spec->step >= 1);

    if (n == 0) return;
    CY_CALL(queue, adamw, cy_cost_adamw(weight, master, m, v, grad), weight, master, m, v, grad,
        scale, spec);
}

void cy_random_fill(
    cy_queue *queue, cy_view x, uint64_t key, uint64_t first, int64_t global_cols, double std)
{
    CY_ASSERT(is_float(x) && has_shape(x, x.rows, x.cols) && global_cols >= x.cols);

    if (cy_view_count(x) == 0) return;
    CY_CALL(queue, random_fill, cy_cost_random_fill(x), x, key, first, global_cols, std);
}

void cy_hash(
    cy_queue *queue, cy_view hash, cy_view x, uint64_t key, uint64_t first, int64_t global_cols)
{
    CY_ASSERT(hash.dtype == CY_I64 && has_shape(hash, 1, 1));
    CY_ASSERT(is_float(x) && has_shape(x, x.rows, x.cols) && global_cols >= x.cols);

    if (cy_view_count(x) == 0) return;
    CY_CALL(queue, hash, cy_cost_hash(x), hash, x, key, first, global_cols);
}
