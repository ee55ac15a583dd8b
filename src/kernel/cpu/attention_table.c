// The attention operators of the table: which blocks and rows they are computed with was chosen
// when the queue's kernels were opened.

#include "kernel/cpu/attention/attention.h"
#include "kernel/cpu/state.h"
#include "kernel/cpu/cpu.h"

static const cy_attention_ops *ops_of(const cy_queue *queue)
{
    const cy_cpu_state *state = queue->kernel_state;
    return &state->attention;
}

static void forward(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v,
    const cy_attention_spec *spec)
{
    cy_flash_forward(queue, ops_of(queue), o, lse, q, k, v, spec);
}

static void backward(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse,
    cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    cy_flash_backward(queue, ops_of(queue), dq, dk, dv, d_o, lse, delta, q, k, v, spec);
}

static void paged(cy_queue *queue, cy_view o, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec)
{
    cy_flash_paged(queue, ops_of(queue), o, q, pages, sequences, positions, spec);
}

static void parts(cy_queue *queue, cy_view parts_out, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec,
    int64_t first)
{
    cy_flash_parts(queue, ops_of(queue), parts_out, q, pages, sequences, positions, spec, first);
}

static void join(cy_queue *queue, cy_view o, cy_view parts_in, const cy_attention_spec *spec)
{
    cy_flash_join(queue, ops_of(queue), o, parts_in, spec);
}

static void merge(
    cy_queue *queue, cy_view o, cy_view lse, cy_view o_part, cy_view lse_part, int heads)
{
    cy_flash_merge(queue, ops_of(queue), o, lse, o_part, lse_part, heads);
}

static void delta(cy_queue *queue, cy_view delta_out, cy_view d_o, cy_view o, int heads)
{
    cy_flash_delta(queue, ops_of(queue), delta_out, d_o, o, heads);
}

void cy_cpu_attention_override(cy_kernels *table)
{
    table->attention_forward = forward;
    table->attention_backward = backward;
    table->attention_paged = paged;
    table->attention_parts = parts;
    table->attention_join = join;
    table->attention_merge = merge;
    table->attention_delta = delta;
}
