// kernel/cost.h: the least work of each operator: floating-point operations and memory traffic.
//
// Pure functions of shapes and dtypes; the data of a view is never read, so a planner may pass
// views that have no memory. They count the mathematics and not an implementation: a kernel
// that computes something twice has no higher cost. An addition, a product, a quotient, a root and
// a transcendental function count one each; bytes count every operand once for reading and once for
// writing.

#ifndef CY_KERNEL_COST_H
#define CY_KERNEL_COST_H

#include "kernel/kernel.h"

cy_cost cy_cost_sum(cy_cost a, cy_cost b);

cy_cost cy_cost_matmul(cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

cy_cost cy_cost_norm_forward(cy_view y, cy_view inv_rms, cy_view x, cy_view branch, cy_view weight);
cy_cost cy_cost_norm_apply(cy_view y, cy_view x, cy_view inv_rms, cy_view weight);
cy_cost cy_cost_norm_backward(
    cy_view dx, cy_view dweight, cy_view dy, cy_view x, cy_view inv_rms, cy_view weight);

cy_cost cy_cost_rope_table(cy_view table);
cy_cost cy_cost_rope(cy_view x, cy_view table, int heads);

// Pairs of a query and a key that it sees: spec->pairs, or, where that is 0, the number of pairs if
// the queries of each span are the last positions of its keys.
double cy_attention_pairs(const cy_attention_spec *spec);
cy_cost cy_cost_attention_forward(
    cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec);
cy_cost cy_cost_attention_merge(cy_view o, cy_view lse, cy_view o_part, cy_view lse_part);
cy_cost cy_cost_attention_delta(cy_view delta, cy_view d_o, cy_view o);
cy_cost cy_cost_attention_backward(cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse,
    cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec);
// Where spec->pairs is 0, every row counts as reading all positions of its pages.
cy_cost cy_cost_attention_paged(
    cy_view o, cy_view q, const cy_kv_pages *pages, const cy_attention_spec *spec);
cy_cost cy_cost_attention_split(
    cy_view parts, cy_view q, const cy_kv_pages *pages, const cy_attention_spec *spec);
cy_cost cy_cost_attention_combine(cy_view o, cy_view parts);

cy_cost cy_cost_swiglu_forward(cy_view y, cy_view gate_up);
cy_cost cy_cost_swiglu_backward(cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up);

cy_cost cy_cost_embedding_forward(cy_view y, cy_view table);
cy_cost cy_cost_embedding_backward(cy_view d_table, cy_view dy);

cy_cost cy_cost_softmax_max(cy_view max, cy_view logits);
cy_cost cy_cost_softmax_sum(cy_view sum, cy_view target, cy_view logits, cy_view max);
cy_cost cy_cost_softmax_loss(cy_view max, cy_view sum, cy_view target);
cy_cost cy_cost_softmax_grad(cy_view d_logits, cy_view logits, cy_view max, cy_view sum);

cy_cost cy_cost_fill(cy_view y);
cy_cost cy_cost_copy(cy_view y, cy_view x);
cy_cost cy_cost_add(cy_view y, cy_view a, cy_view b);
cy_cost cy_cost_add_bias(cy_view y, cy_view bias);
cy_cost cy_cost_sum_rows(cy_view sum, cy_view x);

cy_cost cy_cost_sum_squares(cy_view x);
cy_cost cy_cost_clip_scale(void);
cy_cost cy_cost_adamw(cy_view weight, cy_view master, cy_view m, cy_view v, cy_view grad);
cy_cost cy_cost_random_fill(cy_view x);
cy_cost cy_cost_hash(cy_view x);

cy_cost cy_cost_step_ahead(cy_view weight, cy_view master, cy_view residual, cy_view v);
cy_cost cy_cost_topk(cy_view values, cy_view indices, cy_view residual, cy_view grad);
cy_cost cy_cost_scatter_add(cy_view y, cy_view indices, cy_view values);
cy_cost cy_cost_quantize(cy_view codes, cy_view scales, cy_view x);
cy_cost cy_cost_dequantize(cy_view y, cy_view codes, cy_view scales, bool accumulate);

#endif
