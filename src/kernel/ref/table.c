#include "kernel/ref/ref.h"

static const cy_kernels ref_kernels = {
    .name = "ref",
    .matmul = cy_ref_matmul,
    .norm_forward = cy_ref_norm_forward,
    .norm_apply = cy_ref_norm_apply,
    .norm_backward = cy_ref_norm_backward,
    .rope_table = cy_ref_rope_table,
    .rope = cy_ref_rope,
    .attention_forward = cy_ref_attention_forward,
    .attention_merge = cy_ref_attention_merge,
    .attention_delta = cy_ref_attention_delta,
    .attention_backward = cy_ref_attention_backward,
    .attention_paged = cy_ref_attention_paged,
    .attention_split = cy_ref_attention_split,
    .attention_combine = cy_ref_attention_combine,
    .swiglu_forward = cy_ref_swiglu_forward,
    .swiglu_backward = cy_ref_swiglu_backward,
    .embedding_forward = cy_ref_embedding_forward,
    .embedding_backward = cy_ref_embedding_backward,
    .softmax_max = cy_ref_softmax_max,
    .softmax_sum = cy_ref_softmax_sum,
    .softmax_loss = cy_ref_softmax_loss,
    .softmax_grad = cy_ref_softmax_grad,
    .fill = cy_ref_fill,
    .copy = cy_ref_copy,
    .add = cy_ref_add_views,
    .add_bias = cy_ref_add_bias,
    .sum_rows = cy_ref_sum_rows,
    .sum_squares = cy_ref_sum_squares,
    .clip_scale = cy_ref_clip_scale,
    .adamw = cy_ref_adamw,
    .adamw_unfused = cy_ref_adamw,
    .random_fill = cy_ref_random_fill,
    .hash = cy_ref_hash,
    .topk = cy_ref_topk,
    .step_ahead = cy_ref_step_ahead,
    .scatter_add = cy_ref_scatter_add,
    .quantize = cy_ref_quantize,
    .dequantize = cy_ref_dequantize,
};

const cy_kernels *cy_kernels_ref(void)
{
    return &ref_kernels;
}
