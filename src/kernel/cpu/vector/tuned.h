// kernel/cpu/vector/tuned.h: the table of vector operators: all operators but products and
// attention. avx2/table.c, avx512/table.c and neon/table.c include this, each compiled for its
// instruction set, and nothing else does.

#ifndef CY_KERNEL_CPU_VECTOR_TUNED_H
#define CY_KERNEL_CPU_VECTOR_TUNED_H

#include "kernel/cpu/vector/compress.h"
#include "kernel/cpu/vector/elementwise.h"
#include "kernel/cpu/vector/norm.h"
#include "kernel/cpu/vector/optimizer.h"
#include "kernel/cpu/vector/softmax.h"

// Here and not in optimizer.h, which strict mode includes: strict mode does not use it.
static void adamw_unfused(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, cy_view scale, const cy_adamw_spec *spec)
{
    adamw_of(queue, weight, master, m, v, grad, scale, spec, false);
}

// The reference serves rope_table, softmax_loss, clip_scale and scatter_add, which touch little
// memory.
static void override_with_tuned(cy_kernels *table)
{
    table->norm_forward = norm_forward;
    table->norm_apply = norm_apply;
    table->norm_backward = norm_backward;
    table->rope = rope;
    table->swiglu_forward = swiglu_forward;
    table->swiglu_backward = swiglu_backward;
    table->embedding_forward = embedding_forward;
    table->embedding_backward = embedding_backward;
    table->softmax_max = softmax_max;
    table->softmax_sum = softmax_sum;
    table->softmax_grad = softmax_grad;
    table->fill = fill;
    table->copy = copy;
    table->add = add;
    table->add_bias = add_bias;
    table->sum_rows = sum_rows;
    table->sum_squares = sum_squares;
    table->adamw = adamw;
    table->adamw_unfused = adamw_unfused;
    table->random_fill = random_fill;
    table->hash = hash;
    table->topk = topk;
    table->step_ahead = step_ahead;
    table->quantize = quantize;
    table->dequantize = dequantize;
}

#endif
