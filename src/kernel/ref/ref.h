// kernel/ref/ref.h: the operators of the portable table; kernel.h says what each computes.
//
// They read any floating dtype, compute in double and round once. They take no scratch memory and
// do nothing on a dry queue. Tuned tables call them for the dtypes they do not serve.

#ifndef CY_KERNEL_REF_REF_H
#define CY_KERNEL_REF_REF_H

#include "kernel/kernel.h"

void cy_ref_matmul(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec);

void cy_ref_norm_forward(cy_queue *queue, cy_view y, cy_view inv_rms, cy_view x, cy_view branch,
    cy_view weight, double eps);
void cy_ref_norm_apply(cy_queue *queue, cy_view y, cy_view x, cy_view inv_rms, cy_view weight);
void cy_ref_norm_backward(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy, cy_view x,
    cy_view inv_rms, cy_view weight);

void cy_ref_rope_table(cy_queue *queue, cy_view table, const double *inv_freq, double scale);
void cy_ref_rope(
    cy_queue *queue, cy_view x, cy_view table, const int32_t *positions, int heads, bool inverse);

void cy_ref_attention_forward(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k,
    cy_view v, const cy_attention_spec *spec);
void cy_ref_attention_merge(
    cy_queue *queue, cy_view o, cy_view lse, cy_view o_part, cy_view lse_part, int heads);
void cy_ref_attention_delta(cy_queue *queue, cy_view delta, cy_view d_o, cy_view o, int heads);
void cy_ref_attention_backward(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o,
    cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec);
void cy_ref_attention_paged(cy_queue *queue, cy_view o, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec);
void cy_ref_attention_split(cy_queue *queue, cy_view parts, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec,
    int64_t first);
void cy_ref_attention_combine(
    cy_queue *queue, cy_view o, cy_view parts, const cy_attention_spec *spec);

void cy_ref_swiglu_forward(cy_queue *queue, cy_view y, cy_view gate_up);
void cy_ref_swiglu_backward(
    cy_queue *queue, cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up);

void cy_ref_embedding_forward(
    cy_queue *queue, cy_view y, cy_view table, const int32_t *tokens, int64_t first);
void cy_ref_embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first);

void cy_ref_softmax_max(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range);
void cy_ref_softmax_sum(cy_queue *queue, cy_view sum, cy_view target, cy_view logits, cy_view max,
    const int32_t *targets, cy_vocab_range range);
void cy_ref_softmax_loss(cy_queue *queue, cy_view loss, cy_view max, cy_view sum, cy_view target,
    const int32_t *targets);
void cy_ref_softmax_grad(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max,
    cy_view sum, const int32_t *targets, cy_vocab_range range, double scale);

void cy_ref_fill(cy_queue *queue, cy_view y, double value);
void cy_ref_copy(cy_queue *queue, cy_view y, cy_view x);
void cy_ref_add_views(cy_queue *queue, cy_view y, cy_view a, cy_view b);
void cy_ref_add_bias(cy_queue *queue, cy_view y, cy_view bias);
void cy_ref_sum_rows(cy_queue *queue, cy_view sum, cy_view x);

void cy_ref_sum_squares(cy_queue *queue, cy_view out, cy_view x);
void cy_ref_clip_scale(cy_queue *queue, cy_view scale, cy_view norm, cy_view sum_squares,
    double divisor, double max_norm);
void cy_ref_adamw(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, cy_view scale, const cy_adamw_spec *spec);
void cy_ref_random_fill(
    cy_queue *queue, cy_view x, uint64_t key, uint64_t first, int64_t global_cols, double std);
void cy_ref_hash(
    cy_queue *queue, cy_view hash, cy_view x, uint64_t key, uint64_t first, int64_t global_cols);

void cy_ref_step_ahead(cy_queue *queue, cy_view weight, cy_view master, cy_view residual, cy_view v,
    const cy_step_ahead_spec *spec);
void cy_ref_topk(
    cy_queue *queue, cy_view values, cy_view indices, cy_view residual, cy_view grad, double scale);
void cy_ref_scatter_add(cy_queue *queue, cy_view y, cy_view indices, cy_view values);
void cy_ref_quantize(cy_queue *queue, cy_view codes, cy_view scales, cy_view x);
void cy_ref_dequantize(cy_queue *queue, cy_view y, cy_view codes, cy_view scales, bool accumulate);

#endif
