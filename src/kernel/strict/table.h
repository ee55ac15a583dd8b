// kernel/strict/table.h: all operators of strict mode, compiled once for each instruction set:
// Included by the tables of this folder only, which give it its vectors.
// avx2/table.c, avx512/table.c, neon/table.c and portable/table.c include this and nothing else
// does.

#ifndef CY_KERNEL_STRICT_TABLE_H
#define CY_KERNEL_STRICT_TABLE_H

#define CY_SIXTEEN_LANES // before kernel/cpu/vector/vector.h

#include "kernel/strict/step.h" // first: base/random_batch.h has a name that rope.h takes too

#include "kernel/cpu/rope.h"
#include "kernel/cpu/swiglu.h"
#include "kernel/strict/attention_backward.h"
#include "kernel/strict/operators.h"
#include "kernel/strict/rows.h"

// Left to the reference: attention_merge and attention_paged, which strict training does not use,
// and whatever the dtype is not fp32, bf16 or fixed point.
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
