#include "train/replicas.h"

#include "base/memory.h"

static int64_t hash_weights(cy_engine *engine)
{
    int64_t sum = 0;
    const cy_view hash = cy_view_of(&sum, CY_I64, 1, 1);
    for (int i = 0; i < engine->storage.unit_count; i++) {
        const cy_unit *unit = &engine->storage.units[i];
        if (unit->weights == NULL) continue; // kept as shards
        const cy_view all = cy_view_of(unit->weights, engine->storage.weight_dtype, 1, unit->count);
        cy_hash(&engine->queue, hash, all, 0, (uint64_t)unit->first, unit->count);
    }
    return sum;
}

static cy_status compare(cy_engine *engine, int64_t *hashes)
{
    cy_group *group = engine->options.groups.gradient;
    const int size = cy_group_size(group);
    int64_t mine = hash_weights(engine);
    CY_TRY(cy_group_all_gather(group, &engine->queue, cy_view_of(hashes, CY_I64, size, 1),
        cy_view_of(&mine, CY_I64, 1, 1)));
    for (int i = 1; i < size; i++) {
        if (hashes[i] == hashes[0]) continue;
        return CY_FAIL(CY_ERR_PEER,
            "%s rank %d of %d holds other weights than rank 0: hash %016llx, not %016llx",
            cy_group_dimension(group), i, size, (unsigned long long)hashes[i],
            (unsigned long long)hashes[0]);
    }
    return CY_OK;
}

cy_status cy_replicas_check(cy_engine *engine)
{
    void *block = NULL;
    const int size = cy_group_size(engine->options.groups.gradient);
    if (size == 1) return CY_OK;
    CY_TRY(cy_memory_take(&block, (size_t)size, sizeof(int64_t)));
    const cy_status status = compare(engine, block);
    cy_memory_free(block);
    return status;
}
