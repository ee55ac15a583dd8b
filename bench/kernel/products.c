// Speed of the matrix products of training at the sizes of a 135 M model, every implementation of
// this build beside the others: GFLOP/s, best of several runs. Usage: products [workers] [tokens]

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "build_info.h"
#include "kernel/cpu/matmul.h"
#include "kernel/cpu/state.h"
#include "kernel/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*product)(cy_queue *, cy_view, cy_view, cy_view, cy_matmul_spec);

typedef struct shape {
    const char *name;
    int64_t m, n, k;
    cy_matmul_spec spec;
    bool wide_c;
} shape;

static double measure(cy_queue *queue, product run, const shape *s, cy_dtype dtype, char *data)
{
    const cy_dtype c_dtype = s->wide_c ? CY_F32 : dtype;
    const bool ta = s->spec.transpose_a, tb = s->spec.transpose_b;
    const cy_view a = cy_view_of(data, dtype, ta ? s->k : s->m, ta ? s->m : s->k);
    const cy_view b =
        cy_view_of(data + ((size_t)256 << 20), dtype, tb ? s->n : s->k, tb ? s->k : s->n);
    const cy_view c = cy_view_of(data + ((size_t)512 << 20), c_dtype, s->m, s->n);
    int64_t best = INT64_MAX;
    const int64_t until = cy_clock_ns() + 200000000;
    for (int i = 0; i < 3 || cy_clock_ns() < until; i++) {
        const int64_t start = cy_clock_ns();
        run(queue, c, a, b, s->spec);
        const int64_t ns = cy_clock_ns() - start;
        if (ns < best) best = ns;
    }
    return 2.0 * (double)s->m * (double)s->n * (double)s->k / (double)best;
}

int main(int argument_count, char **arguments)
{
    const int workers = argument_count > 1 ? atoi(arguments[1]) : 2;
    const int64_t t = argument_count > 2 ? atoi(arguments[2]) : 2048;
    cy_queue queue = {0};
    cy_kernels kernels;
    cy_arena scratch;
    void *data, *scratch_base;
    const size_t bytes = (size_t)1 << 30;
    if (cy_pool_open(&queue.pool, workers, -1, true) != CY_OK ||
        cy_memory_map(&data, bytes) != CY_OK || cy_memory_map(&scratch_base, bytes) != CY_OK ||
        cy_kernels_open(&queue, &kernels, "auto") != CY_OK) {
        fprintf(stderr, "products: %s\n", cy_error_text());
        return 1;
    }
    cy_arena_place(&scratch, "scratch", scratch_base, bytes);
    queue.scratch = &scratch;
    for (size_t i = 0; i < bytes / 4; i++)
        ((float *)data)[i] = (float)(i % 17) - 8.0f;

    static const int64_t linear[][2] = {{576, 960}, {576, 576}, {576, 3072}, {1536, 576}};
    shape shapes[32] = {{"square", 2048, 2048, 2048, {0}, false}};
    int count = 1;
    for (int i = 0; i < 4; i++) {
        const int64_t in = linear[i][0], out = linear[i][1];
        shapes[count++] = (shape){"forward", t, out, in, {false, true, false}, false};
        shapes[count++] = (shape){"dx", t, in, out, {false, false, false}, false};
        shapes[count++] = (shape){"dW", out, in, t, {true, false, true}, true};
    }
    for (int64_t tile = 256; tile <= 1024; tile *= 4) {
        shapes[count++] = (shape){"head", tile, 49152, 576, {false, true, false}, false};
        shapes[count++] = (shape){"head dx", tile, 576, 49152, {false, false, false}, false};
        shapes[count++] = (shape){"head dW", 49152, 576, tile, {true, false, true}, true};
    }
    shapes[count++] = (shape){"decode", 1, 3072, 576, {false, true, false}, false};
    shapes[count++] = (shape){"decode head", 1, 49152, 576, {false, true, false}, false};

    const cy_cpu_state *state = queue.kernel_state;
    for (int half = 1; half >= 0; half--) {
        const cy_dtype dtype = half ? CY_BF16 : CY_F32;
        printf("%-5s %-12s %6s %6s %6s %9s %9s %9s %9s\n", cy_dtype_name(dtype), "product", "m",
            "n", "k", "table", "oneDNN", half ? "amx" : "avx512", half ? "avx512bf" : "avx2");
        for (int i = 0; i < count; i++) {
            const shape *s = &shapes[i];
            printf("%-5s %-12s %6d %6d %6d", cy_dtype_name(dtype), s->name, (int)s->m, (int)s->n,
                (int)s->k);
            product runs[4] = {kernels.matmul};
#if CY_HAVE_DNNL
            if (state->dnnl != NULL) runs[1] = cy_matmul_dnnl;
#endif
            if (half && state->cpu.amx) runs[2] = cy_matmul_amx;
            if (half && state->cpu.avx512_bf16) runs[3] = cy_matmul_avx512_bf16;
            if (!half && state->cpu.avx512) runs[2] = cy_matmul_avx512;
            if (!half && state->cpu.avx2) runs[3] = cy_matmul_avx2;
            for (int j = 0; j < 4; j++) {
                if (runs[j] == NULL) {
                    printf(" %9s", "-");
                } else {
                    printf(" %9.1f", measure(&queue, runs[j], s, dtype, data));
                }
                fflush(stdout);
            }
            printf("\n");
        }
    }
    cy_kernels_close(&queue);
    cy_pool_close(queue.pool);
    return 0;
}
