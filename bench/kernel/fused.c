// What a feed-forward layer would gain from going through all of its operators tile by tile, while
// the tile is in the second cache, instead of operator by operator: milliseconds of a layer's
// forward pass in bf16, two threads, layers in turn whose operands are no longer in any cache.
//
// Usage: fused
//
// The tiles have their weights packed beforehand, which whole products pack at each call. Needs
// AMX.

#include "numbers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/status.h"
#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/dispatch.h"

#include <stdio.h>

enum {
    TOKENS = 2048, // and sizes of SmolLM-135M
    HIDDEN = 576,
    FFN = 1536,
    LAYERS = 30,
    THREADS = 2,
    MOST_ROWS = 512,
    ROUNDS = 3,
};
#define DATA_BYTES    ((size_t)2 << 30)
#define SCRATCH_BYTES ((size_t)64 << 20)

typedef struct layer {
    cy_view x, gate_up, product, y;
    cy_view w_gate_up, w_down;
    char *packed_gate_up, *packed_down;
} layer;

// A thread's own queue, for the operators between its products, and room for one tile.
typedef struct tile_buffers {
    cy_queue queue;
    cy_kernels kernels;
    cy_arena scratch;
    float *gate_up; // [rows, 2 * piece]
    float *y;       // [rows, HIDDEN]
    char *product;  // bf16 [rows, piece]
} tile_buffers;

typedef struct bench {
    cy_queue queue;
    cy_kernels kernels;
    cy_arena data, scratch;
    const cy_microkernel *ops;
    layer layers[LAYERS];
    tile_buffers rooms[THREADS];
    const layer *now;
    int64_t rows;  // of a tile
    int64_t piece; // columns of the feed-forward layer that it goes through at once
} bench;

// ---- a layer tile by tile

static char *columns_of(char *packed, int64_t column, int64_t depth)
{
    return packed + (size_t)(column * depth) * sizeof(uint16_t);
}

static void run_tile(void *context, int64_t index, int worker)
{
    bench *b = context;
    const layer *l = b->now;
    tile_buffers *room = &b->rooms[worker];
    const int64_t rows = b->rows, piece = b->piece, wide = 2 * piece;
    const cy_view x = cy_view_rows(l->x, index * rows, rows);
    const cy_view product = cy_view_of(room->product, CY_BF16, rows, piece);
    b->ops->enter();
    for (int64_t col = 0; col < FFN; col += piece) {
        for (int64_t up = 0; up < 2; up++) {
            b->ops->multiply(room->gate_up + up * piece, wide, x.data, x.stride,
                columns_of(l->packed_gate_up, up * FFN + col, HIDDEN), rows, piece, HIDDEN, false);
        }
        const cy_view kept =
            cy_view_cols(cy_view_rows(l->gate_up, index * rows, rows), 2 * col, wide);
        b->ops->convert(kept, cy_view_of(room->gate_up, CY_F32, rows, wide));
        room->kernels.swiglu_forward(&room->queue, product, kept);
        b->ops->multiply(room->y, HIDDEN, room->product, piece,
            columns_of(l->packed_down, col, HIDDEN), rows, HIDDEN, piece, col > 0);
    }
    b->ops->convert(
        cy_view_rows(l->y, index * rows, rows), cy_view_of(room->y, CY_F32, rows, HIDDEN));
    b->ops->leave();
}

static double tiled_ms(bench *b, int64_t rows, int64_t piece)
{
    b->rows = rows;
    b->piece = piece;
    const int64_t start = cy_clock_ns();
    for (int i = 0; i < LAYERS; i++) {
        b->now = &b->layers[i];
        cy_queue_run(&b->queue, run_tile, b, TOKENS / rows);
    }
    return (double)(cy_clock_ns() - start) * 1e-6 / LAYERS;
}

// ---- operator by operator

static double whole_ms(bench *b)
{
    const cy_matmul_spec turned = {.transpose_b = true};
    const int64_t start = cy_clock_ns();
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &b->layers[i];
        b->kernels.matmul(&b->queue, l->gate_up, l->x, l->w_gate_up, turned);
        b->kernels.swiglu_forward(&b->queue, l->product, l->gate_up);
        b->kernels.matmul(&b->queue, l->y, l->product, l->w_down, turned);
    }
    return (double)(cy_clock_ns() - start) * 1e-6 / LAYERS;
}

// ----

static cy_status open_room(tile_buffers *room, cy_arena *data)
{
    void *memory = NULL;
    CY_TRY(cy_thread_pool_open(&room->queue.pool, 1, -1, true));
    CY_TRY(cy_memory_map(&memory, SCRATCH_BYTES));
    cy_arena_init(&room->scratch, "scratch", memory, SCRATCH_BYTES);
    room->queue.scratch = &room->scratch;
    room->gate_up = cy_arena_alloc(data, sizeof(float) * MOST_ROWS * 2 * FFN);
    room->y = cy_arena_alloc(data, sizeof(float) * MOST_ROWS * HIDDEN);
    room->product = cy_arena_alloc(data, sizeof(uint16_t) * MOST_ROWS * FFN);
    return cy_kernels_open(&room->queue, &room->kernels, "amx");
}

static cy_status open_bench(bench *b)
{
    void *data = NULL, *scratch = NULL;
    CY_TRY(cy_thread_pool_open(&b->queue.pool, THREADS, -1, true));
    CY_TRY(cy_memory_map(&data, DATA_BYTES));
    CY_TRY(cy_memory_map(&scratch, SCRATCH_BYTES));
    fill_numbers(data, DATA_BYTES, false);
    cy_arena_init(&b->data, "data", data, DATA_BYTES);
    cy_arena_init(&b->scratch, "scratch", scratch, SCRATCH_BYTES);
    b->queue.scratch = &b->scratch;
    CY_TRY(cy_kernels_open(&b->queue, &b->kernels, "amx"));
    b->ops = cy_microkernel_amx();
    for (int i = 0; i < LAYERS; i++) {
        b->layers[i] = (layer){
            .x = cy_view_alloc(&b->data, CY_BF16, TOKENS, HIDDEN),
            .gate_up = cy_view_alloc(&b->data, CY_BF16, TOKENS, 2 * (int64_t)FFN),
            .product = cy_view_alloc(&b->data, CY_BF16, TOKENS, FFN),
            .y = cy_view_alloc(&b->data, CY_BF16, TOKENS, HIDDEN),
            .w_gate_up = cy_view_alloc(&b->data, CY_BF16, 2 * (int64_t)FFN, HIDDEN),
            .w_down = cy_view_alloc(&b->data, CY_BF16, HIDDEN, FFN),
            .packed_gate_up = cy_arena_alloc(&b->data, sizeof(uint16_t) * 2 * FFN * HIDDEN),
            .packed_down = cy_arena_alloc(&b->data, sizeof(uint16_t) * FFN * HIDDEN),
        };
    }
    for (int i = 0; i < THREADS; i++)
        CY_TRY(open_room(&b->rooms[i], &b->data));
    return CY_OK;
}

int main(void)
{
    static bench b;
    static const int64_t sizes[][2] = {
        {64, 512}, {128, 256}, {128, 512}, {128, 768}, {256, 256}, {256, 512}, {512, 512}};
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    if (!cpu.amx) {
        printf("fused: this processor has no AMX\n");
        return 0;
    }
    const cy_status status = open_bench(&b);
    if (status != CY_OK) {
        fprintf(stderr, "fused: error: %s\n", cy_error_text());
        return 1;
    }
    whole_ms(&b);
    printf("whole");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        printf("  %3dx%3d", (int)sizes[i][0], (int)sizes[i][1]);
    printf("   rows x columns of a tile\n");
    for (int round = 0; round < ROUNDS; round++) {
        printf("%5.2f", whole_ms(&b));
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            printf("  %7.2f", tiled_ms(&b, sizes[i][0], sizes[i][1]));
        printf("\n");
    }
    return 0;
}
