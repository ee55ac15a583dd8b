// Chooses the operators for this processor: the table of an instruction set level, products through
// oneDNN or by this library, and the tables of strict mode.

#include "kernel/dispatch.h"

#include "base/memory.h"
#include "base/status.h"
#include "build_info.h"
#include "kernel/cpu/gemm/matmul.h"
#include "kernel/cpu/cpu.h"
#include "kernel/strict/strict.h"

#include <stdio.h>
#include <string.h>

// In ascending order: a processor that has one level has all levels before it.
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

// The levels that this processor has, for a hint.
static void list_levels(char *text, size_t bytes, level best)
{
    size_t used = 0;
    for (int i = 0; i <= (int)best && used < bytes; i++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", i == 0 ? "" : ", ", level_names[i]);
}

static bool is_level(const char *isa)
{
    static const char *const all[] = {"ref", "avx2", "avx512", "avx512_bf16", "amx", "neon"};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (strcmp(isa, all[i]) == 0) return true;
    }
    return false;
}

// Whether the build is limited to levels below this one, whatever the processor has.
static bool is_beyond_build(const char *isa)
{
    bool beyond = false;
    for (int i = 0; i < LEVEL_COUNT; i++) {
        if (strcmp(isa, level_names[i]) == 0) return beyond;
        if (strcmp(CY_MAX_ISA, level_names[i]) == 0) beyond = true;
    }
    return false;
}

static cy_status choose(level *chosen, const cy_cpu *cpu, const char *isa)
{
    const level best = best_level(cpu);
    if (strcmp(isa, "auto") == 0) {
        *chosen = best;
        return CY_OK;
    }
    for (int i = 0; i <= (int)best; i++) {
        if (strcmp(isa, level_names[i]) != 0) continue;
        *chosen = (level)i;
        return CY_OK;
    }
    char supported[64] = "";
    list_levels(supported, sizeof(supported), best);
    if (is_beyond_build(isa)) {
        const cy_status status =
            CY_FAIL(CY_ERR_UNSUPPORTED, "isa \"%s\": this build is held to %s", isa, CY_MAX_ISA);
        cy_error_set_hint("this build supports %s", supported);
        return status;
    }
    const cy_status status = is_level(isa)
        ? CY_FAIL(CY_ERR_UNSUPPORTED, "isa \"%s\": this processor does not support it", isa)
        : CY_FAIL(CY_ERR_REQUEST,
              "isa \"%s\": there are auto, ref, avx2, avx512, avx512_bf16, amx and neon", isa);
    cy_error_set_hint("this processor supports %s", supported);
    return status;
}

#if defined(__x86_64__)
static void override(cy_kernels *table, cy_cpu_state *state, level chosen)
{
    static cy_matmul_fn *const products[LEVEL_COUNT] = {
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
        (cy_attention_ops){.wide = cy_microkernel_avx2(), .rows = cy_attention_rows_avx2()};
    if (chosen >= LEVEL_AVX512) {
        state->attention.wide = cy_microkernel_avx512();
        state->attention.rows = cy_attention_rows_avx512();
    }
    if (chosen == LEVEL_AVX512_BF16) state->attention.narrow = cy_microkernel_avx512_bf16();
    if (chosen == LEVEL_AMX) {
        state->attention.narrow = cy_microkernel_amx();
        state->attention.wide = cy_microkernel_amx_split();
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
        (cy_attention_ops){.wide = cy_microkernel_neon(), .rows = cy_attention_rows_neon()};
    cy_cpu_attention_override(table);
}
#endif

// Whether rows of `view` lie a multiple of 4 KiB apart: then a column falls into one set of a
// cache, and a read down a column waits for memory.
static bool aliases(cy_view view)
{
    return view.stride * (int64_t)cy_dtype_size(view.dtype) % 4096 == 0;
}

// Chooses the implementation that was measured to be faster (docs/products.md). This library's own
// serves: bf16 where the processor multiplies bf16; fp32 with tile registers, unless rows are few;
// fp32 with AVX-512 for a transposed b (the forward pass) and for a transposed a whose columns
// alias (some gradients of weights); a few rows; and fp16. oneDNN serves the rest, if it supports
// it.
static bool goes_to_dnnl(const cy_cpu_state *state, cy_view c, cy_view a, cy_matmul_spec spec)
{
#if CY_HAVE_DNNL
    if (state->dnnl == NULL) return false;
    const bool forward = spec.transpose_b && !spec.transpose_a;
    const bool few = forward && c.rows <= CY_MATMUL_FEW;
    const bool narrow = a.dtype == CY_BF16 && state->attention.narrow != NULL;
    const bool turned = spec.transpose_a && !spec.transpose_b && aliases(a);
    const bool split = state->cpu.amx && c.rows >= CY_MATMUL_SPLIT_ROWS;
    const bool wide = a.dtype == CY_F32 && (split || ((forward || turned) && state->cpu.avx512));
    if (few || narrow || wide || a.dtype == CY_F16) return false;
    return cy_dnnl_supports(state->dnnl, a.dtype, c.dtype, spec);
#else
    (void)state, (void)c, (void)a, (void)spec;
    (void)aliases;
    return false;
#endif
}

#if CY_HAVE_DNNL
static void matmul_mixed(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const cy_cpu_state *state = queue->kernel_state;
    if (goes_to_dnnl(state, c, a, spec)) {
        cy_matmul_dnnl(queue, c, a, b, spec);
    } else {
        state->product(queue, c, a, b, spec);
    }
}

// oneDNN is limited to the chosen level, unless that is the processor's highest. If this process
// has already used oneDNN above the level, or oneDNN has no engine, this library computes all
// products.
static cy_status open_dnnl(
    cy_cpu_state *state, cy_kernels *table, const cy_cpu *cpu, level chosen, int workers)
{
    cy_dnnl_limit limit = CY_DNNL_ANY;
    if (chosen == LEVEL_REF) return CY_OK;
#if defined(__x86_64__)
    // With AVX2 our own products are faster in every shape (docs/products.md).
    if (chosen == LEVEL_AVX2) return CY_OK;
    static const cy_dnnl_limit limits[LEVEL_COUNT] = {
        [LEVEL_AVX512] = CY_DNNL_AVX512,
        [LEVEL_AVX512_BF16] = CY_DNNL_AVX512_BF16,
        [LEVEL_AMX] = CY_DNNL_AMX,
    };
    const bool all = chosen == best_level(cpu) && CY_MAX_ISA[0] == '\0';
    if (!all) limit = limits[chosen];
#else
    (void)cpu;
#endif
    const cy_status status = cy_dnnl_open(&state->dnnl, workers, limit);
    if (status == CY_ERR_UNSUPPORTED) return CY_OK;
    CY_TRY(status);
    table->matmul = matmul_mixed;
    return CY_OK;
}
#endif

// ---- strict mode: "strict" is the widest of the tables, all of which compute the same bits

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

static cy_status take_state(cy_cpu_state **state, const cy_cpu *cpu, level chosen)
{
    CY_TRY(CY_ALLOC(state, 1));
    (*state)->cpu = *cpu;
    cy_cpu_limit(&(*state)->cpu, level_names[chosen]);
    (*state)->product = cy_kernels_ref()->matmul;
    return CY_OK;
}

static cy_status open_strict(cy_queue *queue, cy_kernels *table, const cy_cpu *cpu, const char *isa)
{
    const level best = best_level(cpu);
    const size_t count = sizeof(strict_tables) / sizeof(*strict_tables);
    for (size_t i = 0; i < count; i++) {
        const strict_table *at = &strict_tables[i];
        if (strcmp(isa, "strict") != 0 && strcmp(isa, at->name) != 0) continue;
        if (at->needs > best) continue;
        cy_cpu_state *state = NULL;
        CY_TRY(take_state(&state, cpu, at->needs));
        *table = *cy_kernels_ref();
        table->name = "strict"; // whichever it is: the bits are the same
        at->override(table);
        queue->kernels = table;
        queue->kernel_state = state;
        return CY_OK;
    }
    return CY_FAIL(CY_ERR_UNSUPPORTED,
        "kernels \"%s\": there are strict, strict_portable, strict_avx2 and strict_avx512, and "
        "this processor offers up to \"%s\"",
        isa, level_names[best]);
}

cy_status cy_kernels_open_strict(cy_queue *queue, cy_kernels *table, const char *isa)
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    if (is_strict(isa)) return open_strict(queue, table, &cpu, isa);
    level chosen = LEVEL_REF;
    CY_TRY(choose(&chosen, &cpu, isa));
    size_t widest = 0; // they are in descending order, and the last one needs nothing
    while (strict_tables[widest].needs > chosen)
        widest++;
    return open_strict(queue, table, &cpu, strict_tables[widest].name);
}

cy_status cy_kernels_open(cy_queue *queue, cy_kernels *table, const char *isa)
{
    CY_ASSERT(queue->pool != NULL);
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    if (is_strict(isa)) return open_strict(queue, table, &cpu, isa);
    level chosen = LEVEL_REF;
    CY_TRY(choose(&chosen, &cpu, isa));

    cy_cpu_state *state = NULL;
    CY_TRY(take_state(&state, &cpu, chosen));
    cy_kernels filled = *cy_kernels_ref();
    filled.name = level_names[chosen];
#if defined(__x86_64__) || defined(__aarch64__)
    override(&filled, state, chosen);
#endif
#if CY_HAVE_DNNL
    const cy_status status = open_dnnl(state, &filled, &cpu, chosen, cy_queue_workers(queue));
    if (status != CY_OK) {
        cy_memory_free(state);
        return status;
    }
#endif
    *table = filled;
    queue->kernels = table;
    queue->kernel_state = state;
    return CY_OK;
}

// ---- the implementation that computes a product

cy_matmul_backend cy_kernels_matmul_backend(
    const cy_queue *queue, cy_dtype dtype, cy_matmul_kind kind)
{
    static const cy_matmul_spec specs[] = {
        [CY_MATMUL_FORWARD] = {.transpose_b = true},
        [CY_MATMUL_INPUT_GRADIENT] = {0},
        [CY_MATMUL_WEIGHT_GRADIENT] = {.transpose_a = true, .accumulate = true},
        [CY_MATMUL_FEW_ROWS] = {.transpose_b = true},
    };
    const cy_cpu_state *state = queue->kernel_state;
    if (state == NULL || state->product == cy_kernels_ref()->matmul) return CY_MATMUL_PORTABLE;
    // Widths that are no multiple of 4 KiB, and sums of gradients in fp32.
    const int64_t rows = kind == CY_MATMUL_FEW_ROWS ? 1 : 960;
    const cy_dtype sums = kind == CY_MATMUL_WEIGHT_GRADIENT ? CY_F32 : dtype;
    const cy_view c = cy_view_of(NULL, sums, rows, 960);
    const cy_view a = cy_view_of(NULL, dtype, rows, 960);
    return goes_to_dnnl(state, c, a, specs[kind]) ? CY_MATMUL_DNNL : CY_MATMUL_TUNED;
}

const char *cy_kernels_library(const cy_queue *queue)
{
#if CY_HAVE_DNNL
    const cy_cpu_state *state = queue->kernel_state;
    if (state != NULL && state->dnnl != NULL) return cy_dnnl_isa();
    if (state != NULL && state->cpu.avx2 && !state->cpu.avx512) {
        return "not used: our own products are faster at this level";
    }
    if (state != NULL && state->product != cy_kernels_ref()->matmul) {
        return "not used: this process has used it beyond the level, or it has no engine";
    }
    return "not used: the level has no tuned products";
#else
    (void)queue;
    return "not built in";
#endif
}

int cy_kernels_matmuls(
    cy_matmul_fn *products[CY_MATMUL_FUNCTIONS], const cy_queue *queue, cy_dtype dtype)
{
    const cy_cpu_state *state = queue->kernel_state;
    int count = 0;
    products[count++] = queue->kernels->matmul;
    if (state == NULL) return count;
    if (state->product != queue->kernels->matmul) products[count++] = state->product;
#if CY_HAVE_DNNL
    const cy_matmul_spec forward = {.transpose_b = true};
    if (state->dnnl != NULL && cy_dnnl_supports(state->dnnl, dtype, dtype, forward)) {
        products[count++] = cy_matmul_dnnl;
    }
#else
    (void)dtype;
#endif
    return count;
}

bool cy_kernels_has_native_matmul(const cy_queue *queue, cy_dtype dtype)
{
    const cy_cpu_state *state = queue->kernel_state;
    if (dtype != CY_BF16 && dtype != CY_F16) return true;
    if (state == NULL || state->attention.narrow == NULL) return false;
    return state->attention.narrow->dtype == dtype;
}

void cy_kernels_use_reference(cy_kernels *table, bool attention, bool adamw)
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
    queue->direct = NULL;
}
