// tests/kernel/mirror.h: the operators behind the test device, for tests that read and write their
// matrices themselves.
//
// A mirror is memory of the test device of which the test has the host's address. Its table calls
// each operator with the device's addresses of what it is given, through launch records, and waits.
// Cells outside of the memory (a sum's largest term, the flag of an overflow) are copied in and
// out.

#ifndef CY_TESTS_KERNEL_MIRROR_H
#define CY_TESTS_KERNEL_MIRROR_H

#include "kernel/harness.h"

#include "device/device.h"
#include "kernel/arguments.h"
#include "kernel/dispatch.h"

#define MIRROR_CELLS 16

typedef struct mirror {
    cy_device *device; // owned
    cy_queue later;
    cy_arena scratch;
    size_t bytes;                    // of the memory, and of the scratch memory
    void *memory, *scratched, *cell; // owned, the device's addresses
    char *host;                      // the memory, as the host reaches it
    _Atomic uint32_t *cells[MIRROR_CELLS];
    int cell_count;
    cy_attention_spec spec;
    cy_kv_pages pages;
} mirror;

static inline bool mirror_holds(const mirror *on, const volatile void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer, first = (uintptr_t)on->host;
    return at >= first && at - first <= on->bytes;
}

static inline void *mirror_pointer(const mirror *on, const void *pointer)
{
    if (pointer == NULL) return NULL;
    assert_true(mirror_holds(on, pointer));
    return (char *)on->memory + ((const char *)pointer - on->host);
}

// The device's copy of a cell, until mirror_end.
static inline void *mirror_cell(mirror *on, _Atomic uint32_t *cell)
{
    if (cell == NULL) return NULL;
    char *copy = on->cell;
    int i = 0;
    while (i < on->cell_count && on->cells[i] != cell)
        i++;
    copy += (size_t)i * sizeof(uint32_t);
    if (i < on->cell_count) return copy;
    assert_true(i < MIRROR_CELLS);
    const uint32_t value = atomic_load(cell);
    cy_queue_upload(&on->later, copy, &value, sizeof(value));
    CY_CHECK_OK(cy_queue_synchronize(&on->later));
    on->cells[on->cell_count++] = cell;
    return copy;
}

static inline cy_view mirror_view(mirror *on, cy_view view)
{
    view.data = mirror_pointer(on, view.data);
    if (view.dtype == CY_FX64) view.largest = mirror_cell(on, view.largest);
    return view;
}

static inline const cy_attention_spec *mirror_spec(mirror *on, const cy_attention_spec *spec)
{
    on->spec = *spec;
    on->spec.q_positions = mirror_pointer(on, spec->q_positions);
    on->spec.k_positions = mirror_pointer(on, spec->k_positions);
    return &on->spec;
}

static inline const cy_kv_pages *mirror_pages(mirror *on, const cy_kv_pages *pages)
{
    on->pages = *pages;
    on->pages.keys = mirror_view(on, pages->keys);
    on->pages.values = mirror_view(on, pages->values);
    on->pages.page_table = mirror_pointer(on, pages->page_table);
    return &on->pages;
}

static inline void mirror_begin(mirror *on, const cy_queue *queue)
{
    on->cell_count = 0;
    on->later.fixed_overflow = mirror_cell(on, queue->fixed_overflow);
}

static inline void mirror_end(mirror *on)
{
    uint32_t values[MIRROR_CELLS];
    cy_queue_download(&on->later, values, on->cell, (size_t)on->cell_count * sizeof(uint32_t));
    CY_CHECK_OK(cy_queue_synchronize(&on->later));
    for (int i = 0; i < on->cell_count; i++)
        atomic_store(on->cells[i], values[i]);
    assert_int_equal(on->scratch.used, 0);
}

#define MIRROR_V(name)       , mirror_view(on, name)
#define MIRROR_P(type, name) , mirror_pointer(on, name)
#define MIRROR_N(type, name) , name
#define MIRROR_M(name)       , name
#define MIRROR_A(name)       , mirror_spec(on, name)
#define MIRROR_K(name)       , mirror_pages(on, name)

#define MIRROR_OPERATOR(op)                                                                        \
    static void mirror_##op(cy_queue *queue CY_PARAMETERS(CY_ARGUMENTS_##op))                      \
    {                                                                                              \
        mirror *on = queue->kernel_state;                                                          \
        if (queue->dry) {                                                                          \
            cy_queue dry = *queue;                                                                 \
            dry.kernels = on->later.kernels;                                                       \
            dry.direct = on->later.direct;                                                         \
            dry.kernel_state = on->later.kernel_state;                                             \
            dry.kernels->op(&dry CY_NAMES(CY_ARGUMENTS_##op));                                     \
            return;                                                                                \
        }                                                                                          \
        mirror_begin(on, queue);                                                                   \
        on->later.kernels->op(&on->later CY_ARGUMENTS_##op(                                        \
            MIRROR_V, MIRROR_P, MIRROR_N, MIRROR_N, MIRROR_M, MIRROR_A, MIRROR_K));                \
        mirror_end(on);                                                                            \
    }

CY_OPERATORS(MIRROR_OPERATOR)

#define MIRROR_SLOT(op) .op = mirror_##op,

static const cy_kernels mirror_kernels = {
    .name = "mirror",
    CY_OPERATORS(MIRROR_SLOT).adamw_unfused = mirror_adamw,
};

// Opens the device, and a bench in its memory whose operators have `workers` threads; `isa` is that
// of cy_kernels_open. CY_ERR_UNSUPPORTED where this processor has not got it: nothing is open then.
static inline cy_status bench_open_mirror(
    bench *at, mirror *on, cy_kernels *table, const char *isa, int workers)
{
    *on = (mirror){.bytes = BENCH_BYTES};
    CY_CHECK_OK(cy_thread_pool_open(&on->later.pool, workers, -1, false));
    const cy_status status = cy_kernels_open(&on->later, table, isa);
    if (status == CY_ERR_UNSUPPORTED) {
        cy_thread_pool_close(on->later.pool);
        return status;
    }
    CY_CHECK_OK(status);
    CY_CHECK_OK(cy_device_open(&on->device, "test", 11));
    CY_CHECK_OK(cy_device_alloc(on->device, &on->memory, on->bytes));
    CY_CHECK_OK(cy_device_alloc(on->device, &on->scratched, on->bytes));
    CY_CHECK_OK(cy_device_alloc(on->device, &on->cell, MIRROR_CELLS * sizeof(uint32_t)));
    cy_arena_init_remote(&on->scratch, "scratch", on->scratched, on->bytes);
    on->later.scratch = &on->scratch;
    CY_CHECK_OK(cy_queue_open(&on->later, on->device));
    cy_kernels_defer(&on->later);
    on->host = cy_queue_launch_address(&on->later, on->memory);

    bench_open(at, &mirror_kernels, workers);
    cy_memory_unmap(at->memory_base, BENCH_BYTES);
    at->memory_base = on->host;
    cy_arena_init(&at->memory, "test", at->memory_base, BENCH_BYTES);
    at->queue.kernel_state = on;
    return CY_OK;
}

static inline void bench_close_mirror(bench *at, mirror *on)
{
    cy_arena_rewind(&at->memory, 0);
    (void)cy_arena_alloc(&at->memory, BENCH_BYTES); // without poison, as it was
    CY_CHECK_OK(cy_memory_map(&at->memory_base, BENCH_BYTES));
    cy_arena_init(&at->memory, "test", at->memory_base, BENCH_BYTES);
    bench_close(at);
    cy_queue_close(&on->later);
    cy_kernels_close(&on->later);
    cy_thread_pool_close(on->later.pool);
    cy_device_free(on->device, on->cell, MIRROR_CELLS * sizeof(uint32_t));
    cy_device_free(on->device, on->scratched, on->bytes);
    cy_device_free(on->device, on->memory, on->bytes);
    cy_device_close(on->device);
}

#endif
