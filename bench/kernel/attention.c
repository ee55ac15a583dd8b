// Speed of attention at the sizes of a 135 M model (9 query heads, 3 key heads of 64): GFLOP/s of
// the pairs that see each other, best of several runs. Usage: attention [workers] [isa]

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernel/dispatch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct run {
    cy_queue queue;
    cy_view q, k, v, o, d_o, lse, delta, dq, dk, dv;
    cy_attention_spec spec;
} run;

static void forward(run *r)
{
    cy_attention_forward(&r->queue, r->o, r->lse, r->q, r->k, r->v, &r->spec);
}

static void backward(run *r)
{
    cy_attention_delta(&r->queue, r->delta, r->d_o, r->o, r->spec.heads);
    cy_attention_backward(
        &r->queue, r->dq, r->dk, r->dv, r->d_o, r->lse, r->delta, r->q, r->k, r->v, &r->spec);
}

static int64_t best_of(run *r, void (*what)(run *))
{
    int64_t best = INT64_MAX;
    const int64_t until = cy_clock_ns() + 300000000;
    for (int i = 0; i < 3 || cy_clock_ns() < until; i++) {
        const int64_t start = cy_clock_ns();
        what(r);
        const int64_t ns = cy_clock_ns() - start;
        if (ns < best) best = ns;
    }
    return best;
}

#define SPANS_MAX 16

// Operands for some spans of t tokens, from `data`; the projections as they lie in one matrix.
static void pose(run *r, cy_arena *data, cy_dtype dtype, int64_t spans, int64_t t)
{
    static cy_attention_span all[SPANS_MAX];
    const int64_t rows = spans * t, width = 15 * INT64_C(64);
    const cy_view qkv = cy_view_alloc(data, dtype, rows, width);
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t row = i / width, col = i % width;
        const float x = sinf((float)(row * 7 + col * 13));
        cy_copy(&r->queue, cy_view_cols(cy_view_rows(qkv, row, 1), col, 1),
            cy_view_of(cy_memory_writable(&x), CY_F32, 1, 1));
    }
    r->q = cy_view_cols(qkv, 0, 576);
    r->k = cy_view_cols(qkv, 576, 192);
    r->v = cy_view_cols(qkv, 768, 192);
    const cy_view d_qkv = cy_view_alloc(data, dtype, rows, width);
    r->dq = cy_view_cols(d_qkv, 0, 576);
    r->dk = cy_view_cols(d_qkv, 576, 192);
    r->dv = cy_view_cols(d_qkv, 768, 192);
    r->o = cy_view_alloc(data, dtype, rows, 576);
    r->d_o = r->q;
    r->lse = cy_view_alloc(data, CY_F32, 9, rows);
    r->delta = cy_view_alloc(data, CY_F32, 9, rows);
    int32_t *positions = cy_arena_alloc(data, (size_t)rows * sizeof(int32_t));
    for (int64_t i = 0; i < rows; i++)
        positions[i] = (int32_t)(i % t);
    for (int64_t i = 0; i < spans; i++)
        all[i] = (cy_attention_span){i * t, t, i * t, t};
    r->spec = (cy_attention_spec){.heads = 9,
        .kv_heads = 3,
        .head_dim = 64,
        .scale = 0.125,
        .spans = all,
        .span_count = (int)spans,
        .q_positions = positions,
        .k_positions = positions};
}

static void measure(run *r, cy_dtype dtype, int64_t spans, int64_t t)
{
    const int64_t f = best_of(r, forward), b = best_of(r, backward);
    const double pairs = (double)spans * (double)t * (double)(t + 1) / 2 * 9;
    printf("%-5s %6d %6d %12.1f %12.1f %10.3f %10.3f\n", cy_dtype_name(dtype), (int)spans, (int)t,
        pairs * 4 * 64 / (double)f, pairs * 10 * 64 / (double)b, (double)f / 1e6, (double)b / 1e6);
}

int main(int argument_count, char **arguments)
{
    const int workers = argument_count > 1 ? atoi(arguments[1]) : 2;
    static run r;
    cy_kernels kernels;
    cy_arena scratch, data;
    void *base;
    const size_t bytes = (size_t)1 << 30;
    if (cy_thread_pool_open(&r.queue.pool, workers, -1, true) != CY_OK ||
        cy_memory_map(&base, bytes) != CY_OK ||
        cy_kernels_open(&r.queue, &kernels, argument_count > 2 ? arguments[2] : "auto") != CY_OK) {
        fprintf(stderr, "attention: %s\n", cy_error_text());
        return 1;
    }
    printf("%-5s %6s %6s %12s %12s %10s %10s\n", "dtype", "spans", "tokens", "fwd GFLOP/s",
        "bwd GFLOP/s", "fwd ms", "bwd ms");
    static const int sizes[][2] = {{2, 1024}, {1, 2048}, {1, 4096}, {16, 256}};
    for (int half = 1; half >= 0; half--) {
        const cy_dtype dtype = half ? CY_BF16 : CY_F32;
        for (int s = 0; s < 4; s++) {
            cy_arena_init(&data, "data", base, bytes / 2);
            cy_arena_init(&scratch, "scratch", (char *)base + bytes / 2, bytes / 2);
            r.queue.scratch = &scratch;
            pose(&r, &data, dtype, sizes[s][0], sizes[s][1]);
            measure(&r, dtype, sizes[s][0], sizes[s][1]);
        }
    }
    cy_kernels_close(&r.queue);
    cy_thread_pool_close(r.queue.pool);
    return 0;
}
