#include "kernel/open.h"

#include "base/assert.h"
#include "base/memory.h"
#include "build_info.h"
#include "kernel/cpu/matmul.h"
#include "kernel/cpu/state.h"
#include "kernel/cpu/tables.h"
#include "kernel/strict/strict.h"

#include <string.h>

// In ascending order: each processor that has one has all those before it.
#if defined(__aarch64__)
typedef enum level {
    LEVEL_REF,
    LEVEL_NEON,
    LEVEL_COUNT,
} level;

static const char *const level_names[LEVEL_COUNT] = {"ref", "neon"};
#else
typedef enum level {
    LEVEL_REF,
    LEVEL_AVX2,
    LEVEL_AVX512,
    LEVEL_AVX512_BF16,
    LEVEL_AMX,
    LEVEL_COUNT,
} level;

static const char *const level_names[LEVEL_COUNT] = {"ref", "avx2", "avx512", "avx512_bf16", "amx"};
#endif

static level best_level(const cy_cpu *cpu)
{
#if defined(__x86_64__)
    if (cpu->amx) return LEVEL_AMX;
    if (cpu->avx512_bf16) return LEVEL_AVX512_BF16;
    if (cpu->avx512) return LEVEL_AVX512;
    if (cpu->avx2) return LEVEL_AVX2;
#elif defined(__aarch64__)
    if (cpu->neon) return LEVEL_NEON;
#else
    (void)cpu;
#endif
    return LEVEL_REF;
}

static cy_status choose(level *chosen, const cy_cpu *cpu, const char *isa)
{
    const level best = best_level(cpu);
    if (strcmp(isa, "auto") == 0) {
        *chosen = best;
        return CY_OK;
    }
    for (int i = 0; i < LEVEL_COUNT; i++) {
        if (strcmp(isa, level_names[i]) != 0) continue;
        if (i > (int)best) {
            return CY_FAIL(CY_ERR_UNSUPPORTED, "kernels \"%s\": this processor offers up to \"%s\"",
                isa, level_names[best]);
        }
        *chosen = (level)i;
        return CY_OK;
    }
    static const char *const all[] = {"avx2", "avx512", "avx512_bf16", "amx", "neon"};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (strcmp(isa, all[i]) != 0) continue;
        return CY_FAIL(CY_ERR_UNSUPPORTED, "kernels \"%s\": this processor offers up to \"%s\"",
            isa, level_names[best]);
    }
    return CY_FAIL(CY_ERR_REQUEST,
        "kernels \"%s\": there are auto, ref, avx2, avx512, avx512_bf16, amx, neon and strict",
        isa);
}

#if defined(__x86_64__)
static void override(cy_kernels *table, cy_cpu_state *state, level chosen)
{
    static void (*const products[LEVEL_COUNT])(
        cy_queue *, cy_view, cy_view, cy_view, cy_matmul_spec) = {
        [LEVEL_AVX2] = cy_matmul_avx2,
        [LEVEL_AVX512] = cy_matmul_avx512,
        [LEVEL_AVX512_BF16] = cy_matmul_avx512_bf16,
        [LEVEL_AMX] = cy_matmul_amx,
    };
    if (chosen == LEVEL_REF) return;
    table->matmul = state->product = products[chosen];
    if (chosen >= LEVEL_AVX512) {
        cy_cpu_avx512_override(table);
    } else {
        cy_cpu_avx2_override(table);
    }
    state->attention =
        (cy_attention_ops){.wide = cy_block_avx2(), .rows = cy_attention_rows_avx2()};
    if (chosen >= LEVEL_AVX512) {
        state->attention.wide = cy_block_avx512();
        state->attention.rows = cy_attention_rows_avx512();
    }
    if (chosen == LEVEL_AVX512_BF16) state->attention.narrow = cy_block_avx512_bf16();
    if (chosen == LEVEL_AMX) {
        state->attention.narrow = cy_block_amx();
        state->attention.wide = cy_block_amx_split();
    }
    cy_cpu_attention_override(table);
}
#elif defined(__aarch64__)
static void override(cy_kernels *table, cy_cpu_state *state, level chosen)
{
    if (chosen == LEVEL_REF) return;
    table->matmul = state->product = cy_matmul_neon;
    cy_cpu_neon_override(table);
    state->attention =
        (cy_attention_ops){.wide = cy_block_neon(), .rows = cy_attention_rows_neon()};
    cy_cpu_attention_override(table);
}
#endif

#if CY_HAVE_DNNL
// Rows of `view` lie a multiple of 4 KiB apart: a column of it falls into one set of a cache, and
// who reads down columns waits for memory.
static bool aliases(cy_view view)
{
    return view.stride * (int64_t)cy_dtype_size(view.dtype) % 4096 == 0;
}

// Whichever is faster where it was measured (docs/products.md): our own for bf16 where the
// processor multiplies it, for all with tile registers but for few rows, in AVX-512 for products
// with a transposed b (the forward pass) and for those with a transposed a whose columns alias
// (some gradients of weights), for a few rows, and for fp16, which oneDNN does not take; oneDNN for
// the rest.
static void matmul_mixed(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const cy_cpu_state *state = queue->kernel_state;
    const bool forward = spec.transpose_b && !spec.transpose_a;
    const bool few = forward && c.rows <= CY_MATMUL_FEW;
    const bool narrow = a.dtype == CY_BF16 && state->attention.narrow != NULL;
    const bool turned = spec.transpose_a && !spec.transpose_b && aliases(a);
    const bool split = state->cpu.amx && c.rows >= CY_MATMUL_SPLIT_ROWS;
    const bool wide = a.dtype == CY_F32 && (split || ((forward || turned) && state->cpu.avx512));
    const bool ours = few || narrow || wide || a.dtype == CY_F16;
    if (ours || !cy_dnnl_takes(state->dnnl, a.dtype, c.dtype, spec)) {
        state->product(queue, c, a, b, spec);
    } else {
        cy_matmul_dnnl(queue, c, a, b, spec);
    }
}
#endif

// ---- strict mode: "strict" is the widest of the three tables, all of which compute the same bits

typedef struct strict_table {
    const char *name;
    level needs;
    void (*override)(cy_kernels *table);
} strict_table;

static const strict_table strict_tables[] = {
#if defined(__x86_64__)
    {"strict_avx512", LEVEL_AVX512, cy_strict_avx512_override},
    {"strict_avx2", LEVEL_AVX2, cy_strict_avx2_override},
#elif defined(__aarch64__)
    {"strict_neon", LEVEL_NEON, cy_strict_neon_override},
#endif
    {"strict_portable", LEVEL_REF, cy_strict_portable_override},
};

static bool is_strict(const char *isa)
{
    return strncmp(isa, "strict", strlen("strict")) == 0;
}

static cy_status open_strict(cy_queue *queue, cy_kernels *table, const cy_cpu *cpu, const char *isa)
{
    const level best = best_level(cpu);
    const size_t count = sizeof(strict_tables) / sizeof(*strict_tables);
    for (size_t i = 0; i < count; i++) {
        const strict_table *at = &strict_tables[i];
        if (strcmp(isa, "strict") != 0 && strcmp(isa, at->name) != 0) continue;
        if (at->needs > best) continue;
        void *block = NULL;
        CY_TRY(cy_memory_take(&block, 1, sizeof(cy_cpu_state)));
        cy_cpu_state *state = block;
        state->cpu = *cpu;
        *table = *cy_kernels_ref();
        table->name = "strict"; // whichever it is: the bits are the same
        at->override(table);
        queue->kernels = table;
        queue->kernel_state = state;
        return CY_OK;
    }
    return CY_FAIL(CY_ERR_UNSUPPORTED,
        "kernels \"%s\": there are strict, strict_portable, strict_avx2 and strict_avx512, and "
        "this "
        "processor offers up to \"%s\"",
        isa, level_names[best]);
}

cy_status cy_kernels_open(cy_queue *queue, cy_kernels *table, const char *isa)
{
    CY_ASSERT(queue->pool != NULL);
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    if (is_strict(isa)) return open_strict(queue, table, &cpu, isa);
    level chosen = LEVEL_REF;
    CY_TRY(choose(&chosen, &cpu, isa));

    void *block = NULL;
    CY_TRY(cy_memory_take(&block, 1, sizeof(cy_cpu_state)));
    cy_cpu_state *state = block;
    state->cpu = cpu;
    state->product = cy_kernels_ref()->matmul;
    cy_kernels filled = *cy_kernels_ref();
    filled.name = level_names[chosen];
#if defined(__x86_64__) || defined(__aarch64__)
    override(&filled, state, chosen);
#endif
#if CY_HAVE_DNNL
    // oneDNN takes the best instructions of the processor by itself, so it serves that choice only;
    // with AVX2 our own products are faster in every shape (docs/products.md).
    if (chosen == best_level(&cpu) && chosen > LEVEL_AVX2) {
        const cy_status status = cy_dnnl_open(&state->dnnl, cy_queue_workers(queue));
        if (status != CY_OK) {
            cy_memory_free(state);
            return status;
        }
        filled.matmul = matmul_mixed;
    }
#endif
    *table = filled;
    queue->kernels = table;
    queue->kernel_state = state;
    return CY_OK;
}

void cy_kernels_follow_formula(cy_kernels *table, bool attention, bool adamw)
{
    if (attention && !is_strict(table->name)) {
        table->attention_forward = cy_kernels_ref()->attention_forward;
        table->attention_backward = cy_kernels_ref()->attention_backward;
    }
    if (adamw) table->adamw = table->adamw_unfused;
}

void cy_kernels_close(cy_queue *queue)
{
    cy_cpu_state *state = queue->kernel_state;
    if (state == NULL) return;
#if CY_HAVE_DNNL
    cy_dnnl_close(state->dnnl);
#endif
    cy_memory_free(state);
    queue->kernel_state = NULL;
    queue->kernels = NULL;
}
