#include "parallel/data/reducer.h"

#include "base/assert.h"
#include "base/memory.h"

struct cy_reducer {
    cy_reducer_spec spec;
    cy_flat_range *units; // owned, [unit_count]
    int unit_count;
    int64_t count;                        // elements of all units
    cy_view weights, grads, master, m, v; // [1, count]
};

cy_status cy_reducer_open(
    cy_reducer **reducer, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count)
{
    if (spec->zero_stage != 0) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "distributed.zero_stage %d: only 0", spec->zero_stage);
    }
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, 1, sizeof(cy_reducer)));
    cy_reducer *made = block;
    made->spec = *spec;
    const cy_status status = cy_memory_take(&block, (size_t)unit_count, sizeof(cy_flat_range));
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    made->units = block;
    made->unit_count = unit_count;
    for (int i = 0; i < unit_count; i++) {
        CY_ASSERT(units[i].first == made->count);
        made->units[i] = units[i];
        made->count += units[i].count;
    }
    *reducer = made;
    return CY_OK;
}

void cy_reducer_close(cy_reducer *reducer)
{
    if (reducer == NULL) return;
    cy_memory_free(reducer->units);
    cy_memory_free(reducer);
}

void cy_reducer_take(cy_reducer *reducer, cy_arena *run)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const int64_t count = reducer->count;
    reducer->weights = cy_view_take(run, spec->weight_dtype, 1, count);
    if (!spec->train) return;
    reducer->master = reducer->weights;
    if (spec->master_dtype != spec->weight_dtype) {
        reducer->master = cy_view_take(run, spec->master_dtype, 1, count);
    }
    reducer->m = cy_view_take(run, spec->master_dtype, 1, count);
    reducer->v = cy_view_take(run, spec->master_dtype, 1, count);
    reducer->grads = cy_view_take(run, spec->grad_dtype, 1, count);
}

cy_reducer_bytes cy_reducer_memory(const cy_reducer *reducer)
{
    const bool separate = reducer->spec.master_dtype != reducer->spec.weight_dtype;
    return (cy_reducer_bytes){
        .weights = cy_view_bytes(reducer->weights),
        .gradients = cy_view_bytes(reducer->grads),
        .optimizer = cy_view_bytes(reducer->m) + cy_view_bytes(reducer->v) +
            (separate ? cy_view_bytes(reducer->master) : 0),
    };
}

void *cy_reducer_weights(const cy_reducer *reducer, int unit)
{
    return cy_view_at(reducer->weights, 0, reducer->units[unit].first);
}

void *cy_reducer_grads(const cy_reducer *reducer, int unit)
{
    if (!reducer->spec.train) return NULL;
    return cy_view_at(reducer->grads, 0, reducer->units[unit].first);
}

void cy_reducer_zero(cy_reducer *reducer)
{
    cy_fill(reducer->spec.queue, reducer->grads, 0.0);
}

cy_status cy_reducer_before_unit(cy_reducer *reducer, int unit)
{
    CY_ASSERT(unit < reducer->unit_count);
    return CY_OK;
}

cy_status cy_reducer_after_unit(cy_reducer *reducer, int unit)
{
    CY_ASSERT(unit < reducer->unit_count);
    return CY_OK;
}

cy_status cy_reducer_gradient_final(cy_reducer *reducer, int unit, bool last)
{
    if (!last) return CY_OK;
    const cy_flat_range range = reducer->units[unit];
    return cy_group_all_reduce(reducer->spec.group, reducer->spec.queue,
        cy_view_cols(reducer->grads, range.first, range.count), CY_SUM);
}

cy_status cy_reducer_finish(cy_reducer *reducer)
{
    (void)reducer;
    return CY_OK;
}

cy_status cy_reducer_share_weights(cy_reducer *reducer)
{
    (void)reducer;
    return CY_OK;
}

int cy_reducer_owned_count(const cy_reducer *reducer)
{
    return reducer->unit_count;
}

cy_owned_range cy_reducer_owned(const cy_reducer *reducer, int index)
{
    const cy_flat_range range = reducer->units[index];
    const bool separate = reducer->spec.master_dtype != reducer->spec.weight_dtype;
    return (cy_owned_range){
        .first = range.first,
        .count = range.count,
        .weight =
            separate ? cy_view_cols(reducer->weights, range.first, range.count) : cy_view_none(),
        .master = cy_view_cols(reducer->master, range.first, range.count),
        .m = cy_view_cols(reducer->m, range.first, range.count),
        .v = cy_view_cols(reducer->v, range.first, range.count),
        .grad = cy_view_cols(reducer->grads, range.first, range.count),
    };
}
