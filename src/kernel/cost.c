// Computes the floating-point operations and bytes of each operator from shapes and dtypes.

#include "kernel/cost.h"

static double bytes(cy_view view)
{
    return cy_view_is_none(view) ? 0.0 : (double)cy_view_bytes(view);
}

static double count(cy_view view)
{
    return cy_view_is_none(view) ? 0.0 : (double)view.rows * (double)view.cols;
}

cy_cost cy_cost_sum(cy_cost a, cy_cost b)
{
    return (cy_cost){.flops = a.flops + b.flops, .bytes = a.bytes + b.bytes};
}

cy_cost cy_cost_matmul(cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const int64_t k = spec.transpose_a ? a.rows : a.cols;
    return (cy_cost){
        .flops = 2.0 * count(c) * (double)k,
        .bytes = bytes(a) + bytes(b) + bytes(c) * (spec.accumulate ? 2.0 : 1.0),
    };
}

// ---- normalisation

cy_cost cy_cost_norm_forward(cy_view y, cy_view inv_rms, cy_view x, cy_view branch, cy_view weight)
{
    // Square and add, times inv_rms, times weight; the branch adds one and writes x again.
    const bool adds = !cy_view_is_none(branch);
    return (cy_cost){
        .flops = count(x) * (adds ? 5.0 : 4.0),
        .bytes = bytes(y) + bytes(inv_rms) + bytes(x) * (adds ? 2.0 : 1.0) + bytes(branch) +
            bytes(weight),
    };
}

cy_cost cy_cost_norm_apply(cy_view y, cy_view x, cy_view inv_rms, cy_view weight)
{
    return (cy_cost){
        .flops = 2.0 * count(x),
        .bytes = bytes(y) + bytes(x) + bytes(inv_rms) + bytes(weight),
    };
}

cy_cost cy_cost_norm_backward(
    cy_view dx, cy_view dweight, cy_view dy, cy_view x, cy_view inv_rms, cy_view weight)
{
    return (cy_cost){
        .flops = 8.0 * count(dx) + 3.0 * (cy_view_is_none(dweight) ? 0.0 : count(x)),
        .bytes = 2.0 * (bytes(dx) + bytes(dweight)) + bytes(dy) + bytes(x) + bytes(inv_rms) +
            bytes(weight),
    };
}

// ---- positions

cy_cost cy_cost_rope_table(cy_view table)
{
    return (cy_cost){.flops = 2.5 * count(table), .bytes = bytes(table)};
}

cy_cost cy_cost_rope(cy_view x, cy_view table, int heads)
{
    const double turned = (double)x.rows * (double)heads * (double)table.cols;
    const double row = (double)table.cols * (double)cy_dtype_size(table.dtype) + sizeof(int32_t);
    return (cy_cost){
        .flops = 3.0 * turned,
        .bytes = 2.0 * turned * (double)cy_dtype_size(x.dtype) + (double)x.rows * row,
    };
}

// ---- attention

// Keys that `queries` queries see when they are the last positions of `keys` keys.
static double span_pairs(int64_t queries, int64_t keys, int64_t window)
{
    double pairs = 0.0;
    for (int64_t i = 0; i < queries; i++) {
        int64_t seen = keys - queries + i + 1;
        if (seen < 0) seen = 0;
        if (window > 0 && seen > window) seen = window;
        pairs += (double)seen;
    }
    return pairs;
}

double cy_attention_pairs(const cy_attention_spec *spec)
{
    if (spec->pairs > 0.0) return spec->pairs;
    double pairs = 0.0;
    for (int i = 0; i < spec->span_count; i++) {
        pairs += span_pairs(spec->spans[i].q_count, spec->spans[i].k_count, spec->window);
    }
    return pairs;
}

static double pair_flops(double pairs, const cy_attention_spec *spec)
{
    return pairs * (double)spec->heads * (double)spec->head_dim;
}

cy_cost cy_cost_attention_forward(
    cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    return (cy_cost){
        .flops = 4.0 * pair_flops(cy_attention_pairs(spec), spec),
        .bytes = bytes(o) + bytes(lse) + bytes(q) + bytes(k) + bytes(v),
    };
}

cy_cost cy_cost_attention_merge(cy_view o, cy_view lse, cy_view o_part, cy_view lse_part)
{
    return (cy_cost){
        .flops = 3.0 * count(o) + 6.0 * count(lse),
        .bytes = 2.0 * (bytes(o) + bytes(lse)) + bytes(o_part) + bytes(lse_part),
    };
}

cy_cost cy_cost_attention_delta(cy_view delta, cy_view d_o, cy_view o)
{
    return (cy_cost){.flops = 2.0 * count(o), .bytes = bytes(delta) + bytes(d_o) + bytes(o)};
}

cy_cost cy_cost_attention_backward(cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse,
    cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    // Five products over the pairs: the scores again, dP, dV, dQ and dK.
    const double written = bytes(dq) + bytes(dk) + bytes(dv);
    return (cy_cost){
        .flops = 10.0 * pair_flops(cy_attention_pairs(spec), spec),
        .bytes = written * (spec->accumulate ? 2.0 : 1.0) + bytes(d_o) + bytes(lse) + bytes(delta) +
            bytes(q) + bytes(k) + bytes(v),
    };
}

cy_cost cy_cost_attention_paged(
    cy_view o, cy_view q, const cy_kv_pages *pages, const cy_attention_spec *spec)
{
    double pairs = spec->pairs;
    if (pairs <= 0.0) {
        double positions = (double)pages->page_size * (double)pages->pages_per_sequence;
        if (spec->window > 0 && positions > (double)spec->window) positions = (double)spec->window;
        pairs = (double)q.rows * positions;
    }
    const double kv_row = (double)spec->kv_heads * (double)spec->head_dim *
        (double)(cy_dtype_size(pages->keys.dtype) + cy_dtype_size(pages->values.dtype));
    return (cy_cost){
        .flops = 4.0 * pair_flops(pairs, spec),
        .bytes = bytes(o) + bytes(q) + pairs * kv_row,
    };
}

cy_cost cy_cost_attention_split(
    cy_view parts, cy_view q, const cy_kv_pages *pages, const cy_attention_spec *spec)
{
    const double keys = (double)parts.rows * CY_ATTENTION_PART;
    const double key = (double)spec->head_dim *
        (double)(cy_dtype_size(pages->keys.dtype) + cy_dtype_size(pages->values.dtype));
    return (cy_cost){
        .flops = 4.0 * pair_flops(keys / (double)spec->kv_heads, spec),
        .bytes = bytes(parts) + bytes(q) + keys * key,
    };
}

cy_cost cy_cost_attention_combine(cy_view o, cy_view parts)
{
    return (cy_cost){
        .flops = 2.0 * (double)cy_view_count(parts),
        .bytes = bytes(o) + bytes(parts),
    };
}

// ---- feed-forward and embedding

cy_cost cy_cost_swiglu_forward(cy_view y, cy_view gate_up)
{
    return (cy_cost){.flops = 5.0 * count(y), .bytes = bytes(y) + bytes(gate_up)};
}

cy_cost cy_cost_swiglu_backward(cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up)
{
    return (cy_cost){
        .flops = 10.0 * count(dy) + count(y),
        .bytes = bytes(d_gate_up) + bytes(y) + bytes(dy) + bytes(gate_up),
    };
}

static double token_bytes(int64_t rows)
{
    return (double)rows * sizeof(int32_t);
}

cy_cost cy_cost_embedding_forward(cy_view y, cy_view table)
{
    const double read = count(y) * (double)cy_dtype_size(table.dtype);
    return (cy_cost){.flops = 0.0, .bytes = bytes(y) + read + token_bytes(y.rows)};
}

cy_cost cy_cost_embedding_backward(cy_view d_table, cy_view dy)
{
    const double touched = count(dy) * (double)cy_dtype_size(d_table.dtype);
    return (cy_cost){
        .flops = count(dy),
        .bytes = 2.0 * touched + bytes(dy) + token_bytes(dy.rows),
    };
}

// ---- softmax cross-entropy

cy_cost cy_cost_softmax_max(cy_view max, cy_view logits)
{
    return (cy_cost){.flops = count(logits), .bytes = bytes(max) + bytes(logits)};
}

cy_cost cy_cost_softmax_sum(cy_view sum, cy_view target, cy_view logits, cy_view max)
{
    return (cy_cost){
        .flops = 3.0 * count(logits),
        .bytes = bytes(sum) + bytes(target) + bytes(logits) + bytes(max) + token_bytes(logits.rows),
    };
}

cy_cost cy_cost_softmax_loss(cy_view max, cy_view sum, cy_view target)
{
    return (cy_cost){
        .flops = 4.0 * count(max),
        .bytes = bytes(max) + bytes(sum) + bytes(target) + token_bytes(max.cols),
    };
}

cy_cost cy_cost_softmax_grad(cy_view d_logits, cy_view logits, cy_view max, cy_view sum)
{
    return (cy_cost){
        .flops = 3.0 * count(logits),
        .bytes =
            bytes(d_logits) + bytes(logits) + bytes(max) + bytes(sum) + token_bytes(logits.rows),
    };
}

// ---- element by element

cy_cost cy_cost_fill(cy_view y)
{
    return (cy_cost){.flops = 0.0, .bytes = bytes(y)};
}

cy_cost cy_cost_copy(cy_view y, cy_view x)
{
    return (cy_cost){.flops = 0.0, .bytes = bytes(y) + bytes(x)};
}

cy_cost cy_cost_add(cy_view y, cy_view a, cy_view b)
{
    return (cy_cost){.flops = count(y), .bytes = bytes(y) + bytes(a) + bytes(b)};
}

cy_cost cy_cost_add_bias(cy_view y, cy_view bias)
{
    return (cy_cost){.flops = count(y), .bytes = 2.0 * bytes(y) + bytes(bias)};
}

cy_cost cy_cost_sum_rows(cy_view sum, cy_view x)
{
    return (cy_cost){.flops = count(x), .bytes = 2.0 * bytes(sum) + bytes(x)};
}

// ---- optimizer

cy_cost cy_cost_sum_squares(cy_view x)
{
    return (cy_cost){.flops = 2.0 * count(x), .bytes = bytes(x)};
}

cy_cost cy_cost_clip_scale(void)
{
    return (cy_cost){.flops = 4.0, .bytes = 3.0 * sizeof(double)};
}

cy_cost cy_cost_adamw(cy_view weight, cy_view master, cy_view m, cy_view v, cy_view grad)
{
    return (cy_cost){
        .flops = 15.0 * count(master),
        .bytes = bytes(weight) + 2.0 * (bytes(master) + bytes(m) + bytes(v)) + bytes(grad),
    };
}

cy_cost cy_cost_random_fill(cy_view x)
{
    return (cy_cost){.flops = 20.0 * count(x), .bytes = bytes(x)};
}

cy_cost cy_cost_hash(cy_view x)
{
    return (cy_cost){.flops = 0.0, .bytes = bytes(x)};
}

// ---- compression

cy_cost cy_cost_step_ahead(cy_view weight, cy_view master, cy_view residual, cy_view v)
{
    return (cy_cost){
        .flops = 8.0 * count(master),
        .bytes = bytes(weight) + bytes(master) + bytes(residual) + bytes(v),
    };
}

cy_cost cy_cost_topk(cy_view values, cy_view indices, cy_view residual, cy_view grad)
{
    return (cy_cost){
        .flops = 2.0 * count(grad),
        .bytes = bytes(grad) + 2.0 * bytes(residual) + bytes(values) + bytes(indices),
    };
}

cy_cost cy_cost_scatter_add(cy_view y, cy_view indices, cy_view values)
{
    const double touched = count(values) * (double)cy_dtype_size(y.dtype);
    return (cy_cost){
        .flops = count(values), .bytes = 2.0 * touched + bytes(indices) + bytes(values)};
}

cy_cost cy_cost_quantize(cy_view codes, cy_view scales, cy_view x)
{
    return (cy_cost){.flops = 2.0 * count(x), .bytes = bytes(codes) + bytes(scales) + bytes(x)};
}

cy_cost cy_cost_dequantize(cy_view y, cy_view codes, cy_view scales, bool accumulate)
{
    return (cy_cost){
        .flops = count(y) * (accumulate ? 2.0 : 1.0),
        .bytes = bytes(y) * (accumulate ? 2.0 : 1.0) + bytes(codes) + bytes(scales),
    };
}
