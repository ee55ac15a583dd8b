// kernel/arguments.h: the arguments of every operator, as lists.
//
// CY_ARGUMENTS_<operator> names the arguments that follow the queue, each by its kind. What a list
// becomes (a struct, parameters, a call) depends on the macro that is given for each kind:
//
//   V(name)        a view
//   P(type, name)  an array in device memory
//   N(type, name)  a number or a small struct, by value
//   S(type, name)  a pointer to a small struct of numbers
//   M(name)        cy_matmul_spec
//   A(name)        a pointer to cy_attention_spec
//   K(name)        a pointer to cy_kv_pages
//
// A new operator gets a line here and is then launched on every device that defers (deferred.c).

#ifndef CY_KERNEL_ARGUMENTS_H
#define CY_KERNEL_ARGUMENTS_H

#include "kernel/kernel.h"

// clang-format off
#define CY_ARGUMENTS_matmul(V, P, N, S, M, A, K) V(c) V(a) V(b) M(spec)
#define CY_ARGUMENTS_norm_forward(V, P, N, S, M, A, K) V(y) V(inv_rms) V(x) V(branch) V(weight) N(double, eps)
#define CY_ARGUMENTS_norm_apply(V, P, N, S, M, A, K) V(y) V(x) V(inv_rms) V(weight)
#define CY_ARGUMENTS_norm_backward(V, P, N, S, M, A, K) V(dx) V(dweight) V(dy) V(x) V(inv_rms) V(weight)
#define CY_ARGUMENTS_rope_table(V, P, N, S, M, A, K) V(table) P(double, inv_freq) N(double, scale)
#define CY_ARGUMENTS_rope(V, P, N, S, M, A, K) V(x) V(table) P(int32_t, positions) N(int, heads) N(bool, inverse)
#define CY_ARGUMENTS_attention_forward(V, P, N, S, M, A, K) V(o) V(lse) V(q) V(k) V(v) A(spec)
#define CY_ARGUMENTS_attention_merge(V, P, N, S, M, A, K) V(o) V(lse) V(o_part) V(lse_part) N(int, heads)
#define CY_ARGUMENTS_attention_delta(V, P, N, S, M, A, K) V(delta) V(d_o) V(o) N(int, heads)
#define CY_ARGUMENTS_attention_backward(V, P, N, S, M, A, K) V(dq) V(dk) V(dv) V(d_o) V(lse) V(delta) V(q) V(k) V(v) A(spec)
#define CY_ARGUMENTS_attention_paged(V, P, N, S, M, A, K) V(o) V(q) K(pages) P(int32_t, sequences) P(int32_t, positions) A(spec)
#define CY_ARGUMENTS_attention_split(V, P, N, S, M, A, K) V(parts) V(q) K(pages) P(int32_t, sequences) P(int32_t, positions) A(spec) N(int64_t, first)
#define CY_ARGUMENTS_attention_combine(V, P, N, S, M, A, K) V(o) V(parts) A(spec)
#define CY_ARGUMENTS_swiglu_forward(V, P, N, S, M, A, K) V(y) V(gate_up)
#define CY_ARGUMENTS_swiglu_backward(V, P, N, S, M, A, K) V(d_gate_up) V(y) V(dy) V(gate_up)
#define CY_ARGUMENTS_embedding_forward(V, P, N, S, M, A, K) V(y) V(table) P(int32_t, tokens) N(int64_t, first)
#define CY_ARGUMENTS_embedding_backward(V, P, N, S, M, A, K) V(d_table) V(dy) P(int32_t, tokens) N(int64_t, first)
#define CY_ARGUMENTS_softmax_max(V, P, N, S, M, A, K) V(max) V(logits) N(cy_vocab_range, range)
#define CY_ARGUMENTS_softmax_sum(V, P, N, S, M, A, K) V(sum) V(target) V(logits) V(max) P(int32_t, targets) N(cy_vocab_range, range)
#define CY_ARGUMENTS_softmax_loss(V, P, N, S, M, A, K) V(loss) V(max) V(sum) V(target) P(int32_t, targets)
#define CY_ARGUMENTS_softmax_grad(V, P, N, S, M, A, K) V(d_logits) V(logits) V(max) V(sum) P(int32_t, targets) N(cy_vocab_range, range) N(double, scale)
#define CY_ARGUMENTS_fill(V, P, N, S, M, A, K) V(y) N(double, value)
#define CY_ARGUMENTS_copy(V, P, N, S, M, A, K) V(y) V(x)
#define CY_ARGUMENTS_add(V, P, N, S, M, A, K) V(y) V(a) V(b)
#define CY_ARGUMENTS_add_bias(V, P, N, S, M, A, K) V(y) V(bias)
#define CY_ARGUMENTS_sum_rows(V, P, N, S, M, A, K) V(sum) V(x)
#define CY_ARGUMENTS_sum_squares(V, P, N, S, M, A, K) V(out) V(x)
#define CY_ARGUMENTS_clip_scale(V, P, N, S, M, A, K) V(scale) V(norm) V(sum_squares) N(double, divisor) N(double, max_norm)
#define CY_ARGUMENTS_adamw(V, P, N, S, M, A, K) V(weight) V(master) V(m) V(v) V(grad) V(scale) S(cy_adamw_spec, spec)
#define CY_ARGUMENTS_random_fill(V, P, N, S, M, A, K) V(x) N(uint64_t, key) N(uint64_t, first) N(int64_t, global_cols) N(double, std)
#define CY_ARGUMENTS_hash(V, P, N, S, M, A, K) V(hash) V(x) N(uint64_t, key) N(uint64_t, first) N(int64_t, global_cols)
#define CY_ARGUMENTS_topk(V, P, N, S, M, A, K) V(values) V(indices) V(residual) V(grad) V(sum_squares) N(double, max_norm)
#define CY_ARGUMENTS_step_ahead(V, P, N, S, M, A, K) V(weight) V(master) V(residual) V(v) S(cy_step_ahead_spec, spec)
#define CY_ARGUMENTS_scatter_add(V, P, N, S, M, A, K) V(y) V(indices) V(values)
#define CY_ARGUMENTS_quantize(V, P, N, S, M, A, K) V(codes) V(scales) V(x)
#define CY_ARGUMENTS_dequantize(V, P, N, S, M, A, K) V(y) V(codes) V(scales) N(bool, accumulate)
// clang-format on

// The parameters behind the queue, as a list that begins with a comma; and their names alone.
#define CY_PARAMETERS(list)                                                                        \
    list(CY_PARAMETER_V, CY_PARAMETER_P, CY_PARAMETER_N, CY_PARAMETER_P, CY_PARAMETER_M,           \
        CY_PARAMETER_A, CY_PARAMETER_K)
#define CY_NAMES(list)                                                                             \
    list(CY_NAME, CY_NAME_TYPED, CY_NAME_TYPED, CY_NAME_TYPED, CY_NAME, CY_NAME, CY_NAME)

#define CY_PARAMETER_V(name)       , cy_view name
#define CY_PARAMETER_P(type, name) , const type *name
#define CY_PARAMETER_N(type, name) , type name
#define CY_PARAMETER_M(name)       , cy_matmul_spec name
#define CY_PARAMETER_A(name)       , const cy_attention_spec *name
#define CY_PARAMETER_K(name)       , const cy_kv_pages *name

#define CY_NAME(name)             , name
#define CY_NAME_TYPED(type, name) , name

#endif
