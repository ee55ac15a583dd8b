// The operators that layers call. Each asserts the shapes, dtypes and aliasing that kernel.h
// demands, returns early where there is nothing to do, makes the one indirect call into the queue's
// table, and adds the operator's cost to the trace.

#include "kernel/kernel.h"

#include "kernel/cost.h"

// ---- the indirect call

static void cy_call_finish(cy_queue *queue, const char *name, int64_t start_ns, cy_cost cost)
{
    if (queue->dry) {
        queue->planned = cy_cost_sum(queue->planned, cost);
        return;
    }
    cy_trace_add(queue->trace, name, CY_SPAN_COMPUTE, start_ns, cost, 0);
}

// Calls the operator of the table. `cost` is evaluated only on a dry or traced queue.
#define CY_CALL(queue, operator, cost, ...)                                                        \
    do {                                                                                           \
        const int64_t call_start_ns = cy_trace_start((queue)->trace);                              \
        (queue)->kernels->operator((queue), __VA_ARGS__);                                          \
        if ((queue)->dry || (queue)->trace != NULL) {                                              \
            cy_call_finish((queue), #operator, call_start_ns, (cost));                             \
        }                                                                                          \
    } while (0)

// ---- what is asserted of arguments

static bool is_float(cy_view view)
{
    return cy_dtype_is_float(view.dtype) != 0;
}

// fp32 or fp64: statistics, accumulators outside strict mode.
static bool is_wide(cy_view view)
{
    return view.dtype == CY_F32 || view.dtype == CY_F64;
}

static bool is_accumulator(cy_view view)
{
    return is_wide(view) || view.dtype == CY_FX64;
}

static bool is_number(cy_view view)
{
    return is_float(view) || view.dtype == CY_FX64;
}

static bool has_shape(cy_view view, int64_t rows, int64_t cols)
{
    return view.data != NULL && view.rows == rows && view.cols == cols &&
        (view.stride >= cols || rows <= 1);
}

static bool same_shape(cy_view a, cy_view b)
{
    return has_shape(a, b.rows, b.cols);
}

static bool same_view(cy_view a, cy_view b)
{
    return a.data == b.data && a.dtype == b.dtype && (a.stride == b.stride || a.rows <= 1);
}

// Whether two matrices share an element. Ranges of columns of one wider matrix do not.
static bool overlap(cy_view a, cy_view b)
{
    if (cy_view_is_none(a) || cy_view_is_none(b)) return false;
    if (cy_view_count(a) == 0 || cy_view_count(b) == 0) return false;
    const uintptr_t a_first = (uintptr_t)a.data, b_first = (uintptr_t)b.data;
    const size_t a_size = cy_dtype_size(a.dtype), b_size = cy_dtype_size(b.dtype);
    const uintptr_t a_end = a_first + (size_t)((a.rows - 1) * a.stride + a.cols) * a_size;
    const uintptr_t b_end = b_first + (size_t)((b.rows - 1) * b.stride + b.cols) * b_size;
    if (a_end <= b_first || b_end <= a_first) return false;
    const size_t pitch = (size_t)a.stride * a_size;
    if (pitch != (size_t)b.stride * b_size || pitch == 0) return true;
    const size_t a_row = (size_t)a.cols * a_size, b_row = (size_t)b.cols * b_size;
    const size_t offset = b_first >= a_first ? (b_first - a_first) % pitch
                                             : (pitch - (a_first - b_first) % pitch) % pitch;
    return offset < a_row || offset + b_row > pitch;
}

// Pieces of measuring arenas have no addresses of their own, so a dry queue cannot tell.
static bool apart(const cy_queue *queue, cy_view a, cy_view b)
{
    return queue->dry || !overlap(a, b);
}

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

// ---- attention

static void check_spec(const cy_attention_spec *spec, cy_view q, cy_view k, cy_view v)
{
    CY_ASSERT(spec->heads > 0 && spec->kv_heads > 0 && spec->heads % spec->kv_heads == 0);
    CY_ASSERT(spec->head_dim > 0 && spec->head_dim <= CY_HEAD_DIM_MAX && spec->window >= 0);
    CY_ASSERT(is_float(q) && q.dtype == k.dtype && q.dtype == v.dtype);
    CY_ASSERT(has_shape(q, q.rows, spec->heads * spec->head_dim));
    CY_ASSERT(has_shape(k, k.rows, spec->kv_heads * spec->head_dim) && same_shape(v, k));
    CY_ASSERT(spec->span_count == 0 || spec->spans != NULL);
    CY_ASSERT(spec->q_positions != NULL && spec->k_positions != NULL);
    for (int i = 0; i < spec->span_count; i++) {
        const cy_attention_span span = spec->spans[i];
        CY_ASSERT(span.q_first >= 0 && span.q_count >= 0 && span.q_first + span.q_count <= q.rows);
        CY_ASSERT(span.k_first >= 0 && span.k_count >= 0 && span.k_first + span.k_count <= k.rows);
    }
}

void cy_attention_forward(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec)
{
    check_spec(spec, q, k, v);
    CY_ASSERT(same_shape(o, q) && (o.dtype == q.dtype || o.dtype == CY_F32));
    CY_ASSERT(is_wide(lse) && has_shape(lse, spec->heads, q.rows));
    CY_ASSERT(apart(queue, o, q) && apart(queue, o, k) && apart(queue, o, v));
    CY_ASSERT(apart(queue, lse, o));

    if (q.rows == 0) return;
    CY_CALL(queue, attention_forward, cy_cost_attention_forward(o, lse, q, k, v, spec), o, lse, q,
        k, v, spec);
}

void cy_attention_merge(
    cy_queue *queue, cy_view o, cy_view lse, cy_view o_part, cy_view lse_part, int heads)
{
    CY_ASSERT(is_float(o) && is_float(o_part) && is_wide(lse) && is_wide(lse_part));
    CY_ASSERT(same_shape(o_part, o) && has_shape(o, o.rows, o.cols));
    CY_ASSERT(heads > 0 && o.cols % heads == 0);
    CY_ASSERT(has_shape(lse, heads, o.rows) && has_shape(lse_part, heads, o.rows));
    CY_ASSERT(apart(queue, o, o_part) && apart(queue, lse, lse_part));

    if (o.rows == 0) return;
    CY_CALL(queue, attention_merge, cy_cost_attention_merge(o, lse, o_part, lse_part), o, lse,
        o_part, lse_part, heads);
}

void cy_attention_delta(cy_queue *queue, cy_view delta, cy_view d_o, cy_view o, int heads)
{
    CY_ASSERT(is_wide(delta) && is_float(d_o) && is_float(o));
    CY_ASSERT(same_shape(d_o, o) && heads > 0 && o.cols % heads == 0);
    CY_ASSERT(has_shape(delta, heads, o.rows));
    CY_ASSERT(apart(queue, delta, d_o) && apart(queue, delta, o));

    if (o.rows == 0) return;
    CY_CALL(queue, attention_delta, cy_cost_attention_delta(delta, d_o, o), delta, d_o, o, heads);
}

static bool is_gradient(cy_view gradient, cy_view of)
{
    return same_shape(gradient, of) &&
        (gradient.dtype == of.dtype || gradient.dtype == CY_F32 || gradient.dtype == CY_FX64);
}

void cy_attention_backward(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o,
    cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    check_spec(spec, q, k, v);
    CY_ASSERT(is_gradient(dq, q) && is_gradient(dk, k) && is_gradient(dv, v));
    CY_ASSERT(is_float(d_o) && same_shape(d_o, q) && is_wide(lse) && is_wide(delta));
    CY_ASSERT(has_shape(lse, spec->heads, q.rows) && has_shape(delta, spec->heads, q.rows));
    CY_ASSERT(apart(queue, dq, dk) && apart(queue, dq, dv) && apart(queue, dk, dv));
    CY_ASSERT(apart(queue, dq, q) && apart(queue, dq, k) && apart(queue, dq, v));
    CY_ASSERT(apart(queue, dk, q) && apart(queue, dk, k) && apart(queue, dk, v));
    CY_ASSERT(apart(queue, dv, q) && apart(queue, dv, k) && apart(queue, dv, v));
    CY_ASSERT(apart(queue, dq, d_o) && apart(queue, dk, d_o) && apart(queue, dv, d_o));

    if (q.rows == 0 && k.rows == 0) return;
    CY_CALL(queue, attention_backward,
        cy_cost_attention_backward(dq, dk, dv, d_o, lse, delta, q, k, v, spec), dq, dk, dv, d_o,
        lse, delta, q, k, v, spec);
}

// A q of whole rows and pages of keys and values for it.
static void check_pages(cy_view q, const cy_kv_pages *pages, const int32_t *sequences,
    const int32_t *positions, const cy_attention_spec *spec)
{
    CY_ASSERT(spec->heads > 0 && spec->kv_heads > 0 && spec->heads % spec->kv_heads == 0);
    CY_ASSERT(spec->head_dim > 0 && spec->head_dim <= CY_HEAD_DIM_MAX && spec->window >= 0);
    CY_ASSERT(is_float(q) && is_float(pages->keys) && is_float(pages->values));
    CY_ASSERT(has_shape(q, q.rows, spec->heads * spec->head_dim));
    CY_ASSERT(has_shape(pages->keys, pages->keys.rows, spec->kv_heads * spec->head_dim));
    CY_ASSERT(same_shape(pages->values, pages->keys));
    CY_ASSERT(pages->page_size > 0 && pages->keys.rows % pages->page_size == 0);
    CY_ASSERT(pages->page_table != NULL && sequences != NULL && positions != NULL);
}

void cy_attention_paged(cy_queue *queue, cy_view o, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec)
{
    check_pages(q, pages, sequences, positions, spec);
    CY_ASSERT(same_shape(o, q) && (o.dtype == q.dtype || o.dtype == CY_F32));
    CY_ASSERT(apart(queue, o, q));

    if (q.rows == 0) return;
    CY_CALL(queue, attention_paged, cy_cost_attention_paged(o, q, pages, spec), o, q, pages,
        sequences, positions, spec);
}

void cy_attention_split(cy_queue *queue, cy_view parts, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec,
    int64_t first)
{
    check_pages(q, pages, sequences, positions, spec);
    CY_ASSERT(q.rows == 1 && first >= 0);
    CY_ASSERT(has_shape(parts, parts.rows, cy_attention_split_cols(spec)));
    CY_ASSERT(parts.dtype == cy_sum_dtype(q.dtype));
    CY_ASSERT((pages->keys.dtype == CY_F64) == (q.dtype == CY_F64)); // one table makes and joins
    CY_ASSERT((pages->values.dtype == CY_F64) == (q.dtype == CY_F64));

    if (parts.rows == 0) return;
    CY_CALL(queue, attention_split, cy_cost_attention_split(parts, q, pages, spec), parts, q, pages,
        sequences, positions, spec, first);
}

void cy_attention_combine(cy_queue *queue, cy_view o, cy_view parts, const cy_attention_spec *spec)
{
    CY_ASSERT(is_float(o) && has_shape(o, 1, spec->heads * spec->head_dim));
    CY_ASSERT(parts.rows > 0 && parts.rows % spec->kv_heads == 0);
    CY_ASSERT(has_shape(parts, parts.rows, cy_attention_split_cols(spec)));
    CY_ASSERT(parts.dtype == CY_F32 || parts.dtype == CY_F64);

    CY_CALL(queue, attention_combine, cy_cost_attention_combine(o, parts), o, parts, spec);
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

// ---- compression of gradients

static bool is_row(cy_view view, cy_dtype dtype, int64_t cols)
{
    return view.data != NULL && view.dtype == dtype && view.rows == 1 && view.cols == cols;
}

void cy_topk(cy_queue *queue, cy_view values, cy_view indices, cy_view residual, cy_view grad,
    cy_view sum_squares, double max_norm)
{
    CY_ASSERT(is_wide(grad) && is_row(grad, grad.dtype, grad.cols) && grad.cols <= INT32_MAX);
    CY_ASSERT(is_row(residual, grad.dtype, grad.cols) && residual.data != grad.data);
    CY_ASSERT(is_row(values, grad.dtype, values.cols) && is_row(indices, CY_I32, values.cols));
    CY_ASSERT(1 <= values.cols && values.cols <= grad.cols);
    CY_ASSERT(cy_view_is_none(sum_squares) || (is_scalar(sum_squares) && max_norm > 0.0));
    CY_CALL(queue, topk, cy_cost_topk(values, indices, residual, grad), values, indices, residual,
        grad, sum_squares, max_norm);
}

void cy_scatter_add(cy_queue *queue, cy_view y, cy_view indices, cy_view values)
{
    CY_ASSERT(is_wide(y) && is_row(y, y.dtype, y.cols) && is_row(values, y.dtype, values.cols));
    CY_ASSERT(is_row(indices, CY_I32, values.cols) && values.cols <= y.cols);
    CY_CALL(queue, scatter_add, cy_cost_scatter_add(y, indices, values), y, indices, values);
}

void cy_step_ahead(cy_queue *queue, cy_view weight, cy_view master, cy_view residual, cy_view v,
    const cy_step_ahead_spec *spec)
{
    CY_ASSERT(is_wide(master) && is_row(master, master.dtype, master.cols));
    CY_ASSERT(is_row(weight, weight.dtype, master.cols) && weight.data != master.data);
    CY_ASSERT(is_row(residual, master.dtype, master.cols) && is_row(v, master.dtype, master.cols));
    CY_CALL(queue, step_ahead, cy_cost_step_ahead(weight, master, residual, v), weight, master,
        residual, v, spec);
}

static bool has_codes(cy_view codes, cy_view scales, cy_view x)
{
    const int64_t blocks = (x.cols + CY_QUANTIZE_BLOCK - 1) / CY_QUANTIZE_BLOCK;
    return is_wide(x) && is_row(x, x.dtype, x.cols) && is_row(codes, CY_U8, x.cols) &&
        is_row(scales, CY_F32, blocks);
}

void cy_quantize(cy_queue *queue, cy_view codes, cy_view scales, cy_view x)
{
    CY_ASSERT(has_codes(codes, scales, x));
    CY_CALL(queue, quantize, cy_cost_quantize(codes, scales, x), codes, scales, x);
}

void cy_dequantize(cy_queue *queue, cy_view y, cy_view codes, cy_view scales, bool accumulate)
{
    CY_ASSERT(has_codes(codes, scales, y));
    CY_CALL(queue, dequantize, cy_cost_dequantize(y, codes, scales, accumulate), y, codes, scales,
        accumulate);
}
