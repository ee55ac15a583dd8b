#include "train/residual_state.h"

#include "base/memory.h"
#include "base/numbers.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "kept_back."

// What a rank's vector is like.
typedef struct vector_of {
    int64_t count;
    int64_t order; // a hash of which parameter lies where
} vector_of;

static int64_t hash_order(const cy_storage *storage)
{
    uint64_t hash = 0;
    for (int i = 0; i < storage->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[i];
        const int64_t first = cy_storage_part_of(storage, tensor)->first + tensor->offset;
        char line[160];
        const int length = snprintf(line, sizeof(line), "%016llx %s %lld", (unsigned long long)hash,
            tensor->param->name, (long long)first);
        hash = cy_hash_bytes((const unsigned char *)line, (size_t)length);
    }
    return (int64_t)hash;
}

static void name_vector(char *name, const cy_mesh *mesh, int number, int64_t order)
{
    const cy_coordinates at = cy_mesh_coordinates(mesh, number);
    snprintf(name, CY_RESIDUAL_NAME_BYTES, PREFIX "tp%dof%d.cp%dof%d.pp%dof%d.dp%dof%d.%016llx",
        at.at[CY_AXIS_TP], mesh->size[CY_AXIS_TP], at.at[CY_AXIS_CP], mesh->size[CY_AXIS_CP],
        at.at[CY_AXIS_PP], mesh->size[CY_AXIS_PP], at.at[CY_AXIS_DP], mesh->size[CY_AXIS_DP],
        (unsigned long long)order);
}

static cy_status take_lists(cy_residual_state *list, int world)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)world, CY_RESIDUAL_NAME_BYTES));
    list->names = block;
    CY_TRY(cy_memory_alloc(&block, (size_t)world, sizeof(cy_global_tensor)));
    list->tensors = block;
    list->count = world;
    return CY_OK;
}

static cy_status fill_lists(
    cy_residual_state *list, const vector_of *all, const cy_rank *rank, cy_view residual)
{
    CY_TRY(take_lists(list, rank->mesh.world));
    for (int i = 0; i < list->count; i++) {
        name_vector(list->names[i], &rank->mesh, i, all[i].order);
        list->tensors[i] = (cy_global_tensor){
            .name = list->names[i],
            .kind = CY_TENSOR_OTHER,
            .dtype = residual.dtype,
            .dimensions = 1,
            .rows = 1,
            .cols = all[i].count,
        };
    }
    const cy_rectangle whole = {.rows = 1, .cols = residual.cols};
    list->piece = cy_tensor_shard_of_range(
        rank->rank, whole, 0, residual.cols, residual.data, residual.dtype);
    return CY_OK;
}

cy_status cy_residual_state_list(cy_residual_state *list, cy_engine *engine, const cy_rank *rank)
{
    if (engine->compressed == NULL) return CY_OK;
    const cy_view residual = cy_reducer_residual(engine->compressed);
    if (cy_view_is_none(residual)) return CY_OK;
    void *block = NULL;
    const int world = rank->mesh.world;
    CY_TRY(cy_memory_alloc(&block, (size_t)world, sizeof(vector_of)));
    vector_of mine = {.count = residual.cols, .order = hash_order(&engine->storage)};
    cy_status status = cy_group_all_gather(engine->options.groups.world, &engine->queue,
        cy_view_of(block, CY_I64, world, 2), cy_view_of(&mine, CY_I64, 1, 2));
    if (status == CY_OK) status = fill_lists(list, block, rank, residual);
    cy_memory_free(block);
    return status;
}

void cy_residual_state_close(cy_residual_state *list)
{
    cy_memory_free(list->names);
    cy_memory_free(list->tensors);
    *list = (cy_residual_state){0};
}

static bool has_any(const cy_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        const cy_global_tensor *tensor = &checkpoint->tensors[i].tensor;
        if (tensor->kind == CY_TENSOR_OTHER &&
            strncmp(tensor->name, PREFIX, sizeof(PREFIX) - 1) == 0) {
            return true;
        }
    }
    return false;
}

// The same answer on every rank: all look for the parts of all.
static bool has_all(const cy_checkpoint *checkpoint, const cy_residual_state *list)
{
    for (int i = 0; i < list->count; i++) {
        const cy_stored_tensor *stored =
            cy_checkpoint_find(checkpoint, CY_TENSOR_OTHER, list->names[i]);
        if (stored == NULL || stored->tensor.cols != list->tensors[i].cols) return false;
    }
    return list->count > 0;
}

bool cy_residual_state_is_complete(
    const cy_residual_state *list, const cy_checkpoint *checkpoint, bool *residual_dropped)
{
    const bool there = has_all(checkpoint, list);
    *residual_dropped = !there && has_any(checkpoint);
    return there;
}
