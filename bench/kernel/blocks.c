// Speed of block products alone, one thread: what kernel/cpu/gemm/microkernel.h's multiply reaches
// by where its operands lie, every instruction set of this processor beside the others: GFLOP/s.
//
// Usage: blocks [zeros]
//
// build/bench/products says what whole products keep of that. Zeros take less current, and a
// processor that is limited by it multiplies them faster: no speed that numbers can have.

#include "numbers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/status.h"
#include "kernel/cpu/gemm/microkernel.h"

#include <stdio.h>
#include <string.h>

// Blocks of these sizes, out of `count` left ones and `count` right ones in turn.
typedef struct shape {
    int64_t rows, cols, depth;
    int64_t count;
} shape;

// Attention's first. Then, in bf16: 36 KiB, which a first cache of 48 holds; 306 and 360 KiB of
// which two operands of 32 rows and columns still fit there; 720 KiB of which they do not; and what
// only larger caches hold, or none.
static const shape shapes[] = {
    {32, 128, 64, 1},
    {32, 64, 128, 1},
    {64, 64, 64, 1},
    {32, 32, 288, 1},
    {32, 512, 288, 1},
    {128, 512, 288, 1},
    {256, 960, 576, 1},
    {128, 512, 576, 1},
    {128, 512, 576, 16},
    {128, 512, 576, 384},
};

// Instruction sets, and fp32 split on AMX.
#define SETS 5

#define RUN_NS INT64_C(200000000)

static double measure(const cy_microkernel *ops, const shape *s, char *left, char *right, float *c)
{
    const size_t left_bytes = cy_microkernel_left_bytes(ops, s->rows, s->depth);
    const size_t right_bytes = cy_microkernel_right_bytes(ops, s->cols, s->depth);
    double best = 0;
    ops->enter();
    const int64_t until = cy_clock_ns() + RUN_NS;
    do {
        // As many blocks as fill a millisecond or so, and every one of them at least once.
        const int64_t blocks = s->count < 16 ? 16 : s->count;
        const int64_t start = cy_clock_ns();
        for (int64_t i = 0; i < blocks; i++) {
            const size_t at = (size_t)(i % s->count);
            ops->multiply(c, s->cols, left + at * left_bytes, s->depth, right + at * right_bytes,
                s->rows, s->cols, s->depth, false);
        }
        const double ns = (double)(cy_clock_ns() - start);
        const double rate = 2.0 * (double)(blocks * s->rows * s->cols * s->depth) / ns;
        if (rate > best) best = rate;
    } while (cy_clock_ns() < until);
    ops->leave();
    return best;
}

int main(int argument_count, char **arguments)
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    const cy_microkernel *ops[SETS] = {NULL};
#if defined(__x86_64__)
    if (cpu.avx2) ops[0] = cy_microkernel_avx2();
    if (cpu.avx512) ops[1] = cy_microkernel_avx512();
    if (cpu.avx512_bf16) ops[2] = cy_microkernel_avx512_bf16();
    if (cpu.amx) ops[3] = cy_microkernel_amx();
    if (cpu.amx) ops[4] = cy_microkernel_amx_split();
#endif
    const size_t room = (size_t)1 << 30;
    void *left, *right, *c;
    if (cy_memory_map(&left, room) != CY_OK || cy_memory_map(&right, room) != CY_OK ||
        cy_memory_map(&c, (size_t)1 << 20) != CY_OK) {
        fprintf(stderr, "blocks: %s\n", cy_error_text());
        return 1;
    }
    const bool zeros = argument_count > 1 && strcmp(arguments[1], "zeros") == 0;
    fill_numbers(left, room, zeros);
    fill_numbers(right, room, zeros);
    printf("%-19s %6s %10s", "rows x cols x depth", "blocks", "KiB, bf16");
    for (int j = 0; j < SETS; j++)
        printf(" %11s", ops[j] == NULL ? "-" : ops[j]->isa);
    printf("\n");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const shape *s = &shapes[i];
        char size[32];
        snprintf(size, sizeof(size), "%d x %d x %d", (int)s->rows, (int)s->cols, (int)s->depth);
        printf("%-19s %6d %10d", size, (int)s->count,
            (int)(s->count * (s->rows + s->cols) * s->depth * 2 / 1024));
        for (int j = 0; j < SETS; j++) {
            if (ops[j] == NULL) {
                printf(" %11s", "-");
            } else {
                printf(" %11.0f", measure(ops[j], s, left, right, c));
            }
            fflush(stdout);
        }
        printf("\n");
    }
    return 0;
}
