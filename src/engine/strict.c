// Strict mode: decides from the largest terms of all ranks whether a step fitted, and sets
// exponents.

#include "kernel/peak.h"
#include "engine/engine_parts.h"

#include <math.h>
#include <string.h>

// A step that does not fit is tried up to TRIES more times, each with exponents raised by RAISE
// bits.
#define RAISE 8
#define TRIES 4

// Bits of head room of an evaluation beyond those of a step.
#define EVALUATION_ROOM 12

static bool is_strict(const cy_engine *engine)
{
    return engine->context.sums != NULL;
}

cy_status cy_engine_open_strict(cy_engine *engine)
{
    const cy_config *config = engine->options.config;
    if (!config->training.strict) return CY_OK;
    CY_TRY(cy_sums_open(&engine->sums, &config->shape, config->training.seq_length));
    engine->context.sums = &engine->sums;
    engine->context.kv_group = engine->options.groups.kv;
    engine->context.kv_copy = cy_group_rank(engine->options.groups.kv);
    engine->context.cp.in_order = true;
    return CY_OK;
}

void cy_engine_alloc_strict(cy_engine *engine, cy_arena *run)
{
    if (!is_strict(engine)) {
        engine->loss = cy_view_alloc(run, CY_F64, 1, 1);
        return;
    }
    engine->loss = cy_fixed_alloc(&engine->sums.loss, run, 1, 1);
    engine->amaxes = cy_view_alloc(run, CY_I32, 1, engine->sums.count + 1);
    _Atomic uint32_t *amaxes = engine->amaxes.data;
    cy_sums_bind(&engine->sums, amaxes);
    engine->queue.fixed_overflow = amaxes + engine->sums.count;
}

// Kernels start from no terms and no overflow.
static void clear_amaxes(cy_engine *engine)
{
    cy_queue_set(&engine->queue, engine->amaxes.data, 0, cy_view_bytes(engine->amaxes));
}

void cy_engine_begin_try(cy_engine *engine)
{
    if (!is_strict(engine)) return;
    engine->loss.exponent = engine->sums.loss.exponent;
    clear_amaxes(engine);
}

// The bits of floats that are not negative are ordered as the floats are, with NaN above all.
cy_status cy_engine_reduce_amaxes(cy_engine *engine)
{
    if (!is_strict(engine)) return CY_OK;
    return cy_group_all_reduce(
        engine->options.groups.world, &engine->queue, engine->amaxes, CY_MAX);
}

static bool has_overflowed(const cy_engine *engine)
{
    return engine->amaxes_read[engine->sums.count] != 0;
}

static cy_status report(const cy_engine *engine, int64_t step, int raised)
{
    const cy_manifest *manifest = &engine->storage.manifest;
    const char *found = NULL;
    for (int i = 0; i < manifest->count && found == NULL; i++) {
        const cy_fixed *sum = cy_sums_gradient(&engine->sums, &manifest->params[i]);
        const uint32_t largest = engine->amaxes_read[sum - engine->sums.table];
        if (cy_sums_exceeded(largest)) found = manifest->params[i].name;
    }
    return CY_FAIL(CY_ERR_NOT_FINITE,
        "step %lld: no number, or beyond fixed point with exponents raised by %d; first tensor "
        "whose gradient is so: %s",
        (long long)step, raised, found != NULL ? found : "none");
}

cy_status cy_engine_end_try(cy_engine *engine, int64_t step, int *raised, bool *again)
{
    *again = false;
    if (!is_strict(engine) || !has_overflowed(engine)) return CY_OK;
    if (*raised == TRIES * RAISE) {
        const cy_status status = report(engine, step, *raised);
        cy_sums_raise(&engine->sums, -*raised);
        return status;
    }
    cy_sums_raise(&engine->sums, RAISE);
    *raised += RAISE;
    *again = true;
    return CY_OK;
}

int cy_engine_repeats(int raised)
{
    return raised / RAISE;
}

void cy_engine_end_step(cy_engine *engine, int raised)
{
    if (!is_strict(engine) || engine->queue.dry) return;
    cy_sums_update_exponents(&engine->sums, engine->amaxes_read, raised);
}

void cy_engine_begin_evaluation(cy_engine *engine)
{
    if (!is_strict(engine)) return;
    engine->loss.exponent = engine->sums.loss.exponent;
    cy_sums_raise(&engine->sums, EVALUATION_ROOM);
    clear_amaxes(engine);
}

cy_status cy_engine_end_evaluation(cy_engine *engine)
{
    if (!is_strict(engine)) return CY_OK;
    cy_sums_raise(&engine->sums, -EVALUATION_ROOM);
    if (engine->queue.dry || !has_overflowed(engine)) return CY_OK;
    return CY_FAIL(CY_ERR_NOT_FINITE,
        "evaluation: no number, or a term %d bits beyond the room of a training step",
        EVALUATION_ROOM);
}

cy_status cy_engine_peak(const cy_engine *engine, double *flops_per_s)
{
    const cy_dtype dtype = engine->options.config->model.dtype;
    const bool fits = !is_strict(engine) && cy_queue_host_access(&engine->queue);
    if (fits) return cy_peak_measure(flops_per_s, &engine->queue, dtype);
    cy_queue fast = {.pool = engine->pool};
    cy_kernels table;
    const char *isa = engine->options.isa;
    const bool level = strncmp(isa, "strict", strlen("strict")) != 0; // not a table of strict mode
    CY_TRY(cy_kernels_open(&fast, &table, level ? isa : "auto"));
    const cy_status status = cy_peak_measure(flops_per_s, &fast, dtype);
    cy_kernels_close(&fast);
    return status;
}

double cy_engine_loss(const cy_engine *engine)
{
    if (!is_strict(engine)) return engine->readings->loss;
    return ldexp((double)engine->readings->loss_units, engine->loss.exponent);
}
