// Measures zigzag against contiguous context parallelism: the processor time of attention, forward
// and backward, of the rank that has most to do, with two ranks and 8192 positions.

#define _GNU_SOURCE
#include "figures.h"

#include "support/machine.h"

#include "parallel/context/layout.h"

#include <math.h>
#include <time.h>

#define LENGTH   8192
#define HEADS    8
#define KV_HEADS 4
#define DIM      INT64_C(64)

typedef struct operands {
    cy_test_machine machine;
    cy_view q, k, v, o, lse, delta, d_o, dq, dk, dv;
} operands;

static double now_s(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void take(operands *with, cy_arena *arena)
{
    const int64_t t = LENGTH / 2;
    cy_view *const wide[] = {&with->q, &with->o, &with->d_o};
    cy_view *const narrow[] = {&with->k, &with->v};
    for (int i = 0; i < 3; i++)
        *wide[i] = cy_view_alloc(arena, CY_BF16, t, HEADS * DIM);
    for (int i = 0; i < 2; i++)
        *narrow[i] = cy_view_alloc(arena, CY_BF16, t, KV_HEADS * DIM);
    with->dq = cy_view_alloc(arena, CY_F32, t, HEADS * DIM);
    with->dk = cy_view_alloc(arena, CY_F32, t, KV_HEADS * DIM);
    with->dv = cy_view_alloc(arena, CY_F32, t, KV_HEADS * DIM);
    with->lse = cy_view_alloc(arena, CY_F32, HEADS, t);
    with->delta = cy_view_alloc(arena, CY_F32, HEADS, t);
}

// All keys that a rank's queries meet, forward and backward.
static double time_rank(operands *with, const cy_context_layout *layout, int rank)
{
    cy_context_tables tables;
    figure_need(cy_context_tables_open(&tables, layout, rank));
    tables.by_rank = malloc(LENGTH * sizeof(int32_t));
    tables.in_order = malloc(LENGTH * sizeof(int32_t));
    if (tables.by_rank == NULL || tables.in_order == NULL) abort();
    figure_need(cy_context_tables_fill(&tables, &with->machine.queue));
    const cy_attention_spec base = {
        .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = DIM, .scale = 0.125};
    const double start = now_s();
    for (int k_rank = 0; k_rank < layout->ranks; k_rank++) {
        const cy_attention_spec spec = cy_context_spec_of(&tables, &base, k_rank);
        if (spec.span_count == 0) continue;
        cy_attention_forward(
            &with->machine.queue, with->o, with->lse, with->q, with->k, with->v, &spec);
        cy_attention_backward(&with->machine.queue, with->dq, with->dk, with->dv, with->d_o,
            with->lse, with->delta, with->q, with->k, with->v, &spec);
    }
    const double seconds = now_s() - start;
    free(tables.by_rank);
    free(tables.in_order);
    cy_context_tables_close(&tables);
    return seconds;
}

static double time_slowest(operands *with, bool zigzag)
{
    const cy_context_layout layout = {
        .ranks = 2, .zigzag = zigzag, .length = LENGTH, .sequences = 1};
    return fmax(time_rank(with, &layout, 0), time_rank(with, &layout, 1));
}

int main(void)
{
    static operands with;
    figure_need(cy_test_machine_open(&with.machine, "auto", 1, (size_t)256 << 20));
    take(&with, &with.machine.data);
    double quotients[FIGURE_ROUNDS];
    for (int i = 0; i < FIGURE_ROUNDS; i++) {
        const double contiguous = time_slowest(&with, false), zigzag = time_slowest(&with, true);
        fprintf(stderr, "contiguous %.3f s, zigzag %.3f s\n", contiguous, zigzag);
        quotients[i] = contiguous / zigzag;
    }
    figure_median("balance.contiguous_over_zigzag", quotients, FIGURE_ROUNDS, "of-time");
    figure_need(cy_test_machine_close(&with.machine));
    return 0;
}
