// Speed of the matrix products of training at the sizes of a 135 M model, every implementation of
// this build beside the others: GFLOP/s. Usage: products [workers] [tokens] [warm|cold|errors]
//
// Warm is the best of several runs on the same operands. Cold takes other ones each time, as a
// training step does, and is the median. Operands are numbers with all their bits: small whole ones
// take less current, and a processor that is limited by it multiplies them faster.
//
// Errors are of one product in fp32, beside sums in double: the root mean square of differences, in
// units of 2^-24 of the root mean square of the result.

#include "numbers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "build_info.h"
#include "kernel/cpu/gemm/matmul.h"
#include "kernel/cpu/cpu.h"
#include "kernel/dispatch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cy_matmul_fn *product;

typedef struct shape {
    const char *name;
    int64_t m, n, k;
    cy_matmul_spec spec;
    bool wide_c;
} shape;

// Where operand `index` of a room lies in run number `run`; warm ones stay.
static char *place(char *data, int index, int64_t run, size_t bytes, bool cold)
{
    const size_t room = (size_t)256 << 20, step = cy_arena_bytes(bytes);
    return data + room * (size_t)index + (cold ? (size_t)run % (room / step) * step : 0);
}

#define RUNS_MAX 1000

static double measure(
    cy_queue *queue, product run, const shape *s, cy_dtype dtype, char *data, bool cold)
{
    const cy_dtype c_dtype = s->wide_c ? CY_F32 : dtype;
    const bool ta = s->spec.transpose_a, tb = s->spec.transpose_b;
    const size_t a_bytes = (size_t)(s->m * s->k) * cy_dtype_size(dtype);
    const size_t b_bytes = (size_t)(s->n * s->k) * cy_dtype_size(dtype);
    const size_t c_bytes = (size_t)(s->m * s->n) * cy_dtype_size(c_dtype);
    double times[RUNS_MAX];
    int runs = 0;
    const int64_t until = cy_clock_ns() + 200000000;
    while (runs < RUNS_MAX && (runs < 3 || cy_clock_ns() < until)) {
        const cy_view a = cy_view_of(
            place(data, 0, runs, a_bytes, cold), dtype, ta ? s->k : s->m, ta ? s->m : s->k);
        const cy_view b = cy_view_of(
            place(data, 1, runs, b_bytes, cold), dtype, tb ? s->n : s->k, tb ? s->k : s->n);
        const cy_view c = cy_view_of(place(data, 2, runs, c_bytes, cold), c_dtype, s->m, s->n);
        const int64_t start = cy_clock_ns();
        run(queue, c, a, b, s->spec);
        times[runs++] = (double)(cy_clock_ns() - start);
    }
    const double median = cy_median(times, runs); // which sorts them
    const double ns = cold ? median : times[0];
    return 2.0 * (double)s->m * (double)s->n * (double)s->k / ns;
}

#define SHAPES_MAX 32

// The products of a step of t tokens; how many.
static int shapes_of_step(shape shapes[SHAPES_MAX], int64_t t)
{
    static const int64_t linear[][2] = {{576, 960}, {576, 576}, {576, 3072}, {1536, 576}};
    const cy_matmul_spec plain = {0}, forward = {.transpose_b = true};
    const cy_matmul_spec gradient = {.transpose_a = true, .accumulate = true};
    int count = 0;
    shapes[count++] = (shape){"square", 2048, 2048, 2048, plain, false};
    for (int i = 0; i < 4; i++) {
        const int64_t in = linear[i][0], out = linear[i][1];
        shapes[count++] = (shape){"forward", t, out, in, forward, false};
        shapes[count++] = (shape){"dx", t, in, out, plain, false};
        shapes[count++] = (shape){"dW", out, in, t, gradient, true};
    }
    for (int64_t tile = 256; tile <= 1024; tile *= 4) {
        shapes[count++] = (shape){"head", tile, 49152, 576, forward, false};
        shapes[count++] = (shape){"head dx", tile, 576, 49152, plain, false};
        shapes[count++] = (shape){"head dW", 49152, 576, tile, gradient, true};
    }
    shapes[count++] = (shape){"decode", 1, 3072, 576, forward, false};
    shapes[count++] = (shape){"decode head", 1, 49152, 576, forward, false};
    return count;
}

// Whose product stands in a column: the table's choice, oneDNN's, and two of ours; NULL: none here.
static void choose(product runs[4], const cy_kernels *kernels, const cy_queue *queue, bool half)
{
    const cy_cpu_state *state = queue->kernel_state;
    for (int i = 0; i < 4; i++)
        runs[i] = NULL;
    runs[0] = kernels->matmul;
#if CY_HAVE_DNNL
    if (state->dnnl != NULL) runs[1] = cy_matmul_dnnl;
#endif
#if defined(__x86_64__)
    if (half && state->cpu.amx) runs[2] = cy_matmul_amx;
    if (half && state->cpu.avx512_bf16) runs[3] = cy_matmul_avx512_bf16;
    if (!half && state->cpu.avx512) runs[2] = cy_matmul_avx512;
    if (!half && state->cpu.avx2) runs[3] = cy_matmul_avx2;
#else
    (void)state;
    (void)half;
#endif
}

static void print_row(
    cy_queue *queue, product runs[4], const shape *s, cy_dtype dtype, char *data, bool cold)
{
    printf(
        "%-5s %-12s %6d %6d %6d", cy_dtype_name(dtype), s->name, (int)s->m, (int)s->n, (int)s->k);
    for (int j = 0; j < 4; j++) {
        if (runs[j] == NULL) {
            printf(" %9s", "-");
        } else {
            printf(" %9.1f", measure(queue, runs[j], s, dtype, data, cold));
        }
        fflush(stdout);
    }
    printf("\n");
}

static double error_of(cy_queue *queue, product run, int64_t t, char *data)
{
    const int64_t n = 576, k = 576;
    const cy_view a = cy_view_of(place(data, 0, 0, 0, false), CY_F32, t, k);
    const cy_view b = cy_view_of(place(data, 1, 0, 0, false), CY_F32, n, k);
    const cy_view c = cy_view_of(place(data, 2, 0, 0, false), CY_F32, t, n);
    run(queue, c, a, b, (cy_matmul_spec){.transpose_b = true});
    double squares = 0, differences = 0;
    for (int64_t i = 0; i < t; i++) {
        const float *x = cy_view_at(a, i, 0), *made = cy_view_at(c, i, 0);
        for (int64_t j = 0; j < n; j++) {
            const float *y = cy_view_at(b, j, 0);
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)x[l] * (double)y[l];
            squares += sum * sum;
            differences += ((double)made[j] - sum) * ((double)made[j] - sum);
        }
    }
    return sqrt(differences / squares) * 0x1p24;
}

static void print_errors(cy_queue *queue, product runs[4], int64_t t, char *data)
{
    printf("%-5s %-12s %6d %6d %6d", "fp32", "forward", (int)t, 576, 576);
    for (int j = 0; j < 4; j++) {
        if (runs[j] == NULL) {
            printf(" %9s", "-");
        } else {
            printf(" %9.2f", error_of(queue, runs[j], t, data));
        }
    }
    printf("\n");
}

int main(int argument_count, char **arguments)
{
    const int workers = argument_count > 1 ? atoi(arguments[1]) : 2;
    const int64_t t = argument_count > 2 ? atoi(arguments[2]) : 2048;
    const bool cold = argument_count > 3 && strcmp(arguments[3], "cold") == 0;
    cy_queue queue = {0};
    cy_kernels kernels;
    cy_arena scratch;
    void *data, *scratch_base;
    const size_t bytes = (size_t)1 << 30;
    if (cy_thread_pool_open(&queue.pool, workers, -1, true) != CY_OK ||
        cy_memory_map(&data, bytes) != CY_OK || cy_memory_map(&scratch_base, bytes) != CY_OK ||
        cy_kernels_open(&queue, &kernels, "auto") != CY_OK) {
        fprintf(stderr, "products: %s\n", cy_error_text());
        return 1;
    }
    cy_arena_init(&scratch, "scratch", scratch_base, bytes);
    queue.scratch = &scratch;
    fill_numbers(data, bytes, false);

    shape shapes[SHAPES_MAX];
    const int count = shapes_of_step(shapes, t);
    const bool errors = argument_count > 3 && strcmp(arguments[3], "errors") == 0;
    for (int half = errors ? 0 : 1; half >= 0; half--) {
        const cy_dtype dtype = half ? CY_BF16 : CY_F32;
        product runs[4];
        choose(runs, &kernels, &queue, half == 1);
        printf("%-5s %-12s %6s %6s %6s %9s %9s %9s %9s\n", cy_dtype_name(dtype), "product", "m",
            "n", "k", "table", "oneDNN", half ? "amx" : "avx512", half ? "avx512bf" : "avx2");
        if (errors) print_errors(&queue, runs, t, data);
        for (int i = 0; i < count && !errors; i++)
            print_row(&queue, runs, &shapes[i], dtype, data, cold);
    }
    cy_kernels_close(&queue);
    cy_thread_pool_close(queue.pool);
    return 0;
}
