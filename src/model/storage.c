// Lays out the parameters of a rank, group by group, and finds them by key, unit and role.

#include "model/storage.h"

#include "base/memory.h"
#include "base/status.h"
#include "kernel/kernel.h"

// Fused groups start at a multiple of this many elements: 64 bytes of 16-bit data.
#define ALIGN_ELEMENTS 32

// The order in which a unit's gradients become final in the backward pass.
static const cy_role order[] = {
    CY_ROLE_FINAL_NORM,
    CY_ROLE_HEAD,
    CY_ROLE_DOWN,
    CY_ROLE_GATE,
    CY_ROLE_UP,
    CY_ROLE_NORM2,
    CY_ROLE_OUT,
    CY_ROLE_OUT_BIAS,
    CY_ROLE_Q_NORM,
    CY_ROLE_K_NORM,
    CY_ROLE_Q,
    CY_ROLE_K,
    CY_ROLE_V,
    CY_ROLE_Q_BIAS,
    CY_ROLE_K_BIAS,
    CY_ROLE_V_BIAS,
    CY_ROLE_NORM1,
    CY_ROLE_EMBED,
};
#define ORDER_COUNT ((int)(sizeof(order) / sizeof(order[0])))

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

// Parts of a fused matrix follow each other without a gap.
static bool follows_fused(cy_role role)
{
    return role == CY_ROLE_K || role == CY_ROLE_V || role == CY_ROLE_UP || role == CY_ROLE_K_BIAS ||
        role == CY_ROLE_V_BIAS;
}

// ---- units

static void list_unit(cy_storage *storage, int layer, bool is_copy)
{
    storage->units[storage->unit_count] = (cy_unit){.layer = layer, .is_copy = is_copy};
    storage->unit_of[layer + 1] = storage->unit_count++;
}

static bool needs_embedding(const cy_storage *storage, const cy_segment *segment)
{
    return segment->embedding || (segment->head && storage->manifest.shape.tied);
}

// The embedding follows the last of the segments that add to its gradient.
static void list_segment(cy_storage *storage, const cy_model_shard *part, int index)
{
    const cy_segment *segment = &part->segments[index];
    if (segment->head) list_unit(storage, storage->manifest.shape.layers, false);
    for (int i = segment->layer_count - 1; i >= 0; i--)
        list_unit(storage, segment->layer_first + i, false);
    if (!needs_embedding(storage, segment)) return;
    bool is_copy = true;
    for (int i = 0; i < part->segment_count; i++) {
        if (i > index && needs_embedding(storage, &part->segments[i])) return;
        if (part->segments[i].embedding) is_copy = false;
    }
    list_unit(storage, -1, is_copy);
}

// ---- groups

static int set_of(const cy_storage *storage, const cy_param *param)
{
    int set = storage->part.set_count - 1;
    while (
        set > 0 && storage->part.sets[set].holds != NULL && !storage->part.sets[set].holds(param))
        set--;
    return set < 0 ? 0 : set;
}

static int group_of(const cy_storage *storage, int set, cy_dtype dtype)
{
    for (int i = 0; i < storage->group_count; i++) {
        const cy_param_group *group = &storage->groups[i];
        if (group->set == set && group->weight_dtype == dtype) return i;
    }
    return -1;
}

// Groups of the parameters of all units, in the order of sets and then of the units.
static cy_status list_groups(cy_storage *storage)
{
    void *block = NULL;
    size_t capacity = 0;
    const int sets = storage->part.set_count > 0 ? storage->part.set_count : 1;
    for (int set = 0; set < sets; set++) {
        for (int unit = 0; unit < storage->unit_count; unit++) {
            int count;
            const cy_param *params =
                cy_manifest_layer(&storage->manifest, storage->units[unit].layer, &count);
            for (int i = 0; i < count; i++) {
                const cy_dtype dtype = params[i].dtype;
                if (set_of(storage, &params[i]) != set) continue;
                if (group_of(storage, set, dtype) >= 0) continue;
                const size_t number = (size_t)storage->group_count;
                CY_TRY(cy_memory_grow(&block, &capacity, number + 1, sizeof(cy_param_group)));
                storage->groups = block;
                storage->groups[storage->group_count++] = (cy_param_group){
                    .set = set,
                    .weight_dtype = dtype,
                    .grad_dtype = storage->part.fixed_grads ? CY_FX64 : cy_sum_dtype(dtype),
                };
            }
        }
    }
    return CY_OK;
}

// ---- tensors

// A parameter's place behind `offset` elements of the part; returns where the next may begin.
static int64_t place_tensor(
    cy_storage *storage, int unit, int group, const cy_param *param, int64_t offset)
{
    const cy_model_shard *part = &storage->part;
    const cy_model_shape *shape = &storage->manifest.shape;
    if (!follows_fused(param->key.role)) offset = round_up(offset, ALIGN_ELEMENTS);
    cy_slice slice = cy_param_slice(param, shape, part->tp_rank, part->tp_size);
    if (storage->units[unit].is_copy) slice.copy_index += slice.copies;
    storage->tensors[storage->tensor_count++] =
        (cy_tensor){.param = param, .slice = slice, .unit = unit, .group = group, .offset = offset};
    return offset + cy_param_most_elements(param, shape, part->tp_size);
}

// The parameters of a fused matrix, beginning with role order[first], of one expert after another.
static int64_t place_fused(cy_storage *storage, int unit, int group, int first, int64_t offset)
{
    const int layer = storage->units[unit].layer;
    for (int expert = CY_DENSE; expert < storage->manifest.shape.experts; expert++) {
        for (int i = first; i == first || (i < ORDER_COUNT && follows_fused(order[i])); i++) {
            const cy_param_key key = {order[i], layer, expert};
            const cy_param *param = cy_manifest_find(&storage->manifest, key);
            if (param == NULL) continue;
            if (group_of(storage, set_of(storage, param), param->dtype) != group) continue;
            offset = place_tensor(storage, unit, group, param, offset);
        }
    }
    return offset;
}

static int64_t unit_multiple(const cy_storage *storage, int set)
{
    if (storage->part.set_count == 0) return ALIGN_ELEMENTS;
    return INT64_C(64) * cy_group_size(storage->part.sets[set].ranks);
}

static void place_part(cy_storage *storage, int unit, int index)
{
    cy_param_group *group = &storage->groups[index];
    cy_unit_part *part = cy_storage_part(storage, unit, index);
    *part =
        (cy_unit_part){.number = -1, .first = group->count, .tensor_first = storage->tensor_count};
    int64_t offset = 0;
    for (int i = 0; i < ORDER_COUNT; i++) {
        if (!follows_fused(order[i])) offset = place_fused(storage, unit, index, i, offset);
    }
    part->tensor_count = storage->tensor_count - part->tensor_first;
    if (part->tensor_count == 0) return;
    part->number = group->unit_count++;
    part->count = round_up(offset, unit_multiple(storage, group->set));
    group->count += part->count;
    group->tensor_count += part->tensor_count;
}

static void place_tensors(cy_storage *storage)
{
    for (int i = 0; i < storage->group_count; i++) {
        storage->groups[i].tensor_first = storage->tensor_count;
        for (int unit = 0; unit < storage->unit_count; unit++)
            place_part(storage, unit, i);
    }
    int params = 0;
    for (int unit = 0; unit < storage->unit_count; unit++) {
        int count;
        cy_manifest_layer(&storage->manifest, storage->units[unit].layer, &count);
        params += count;
    }
    CY_ASSERT(storage->tensor_count == params); // each has its place
}

// ---- opening

static cy_status open_tables(cy_storage *storage, const cy_model_shard *part)
{
    const int layers = storage->manifest.shape.layers;
    CY_TRY(CY_ALLOC(&storage->tensors, (size_t)storage->manifest.count));
    CY_TRY(CY_ALLOC(&storage->units, (size_t)layers + 2));
    CY_TRY(CY_ALLOC(&storage->unit_of, (size_t)layers + 2));
    for (int i = 0; i < layers + 2; i++)
        storage->unit_of[i] = -1;
    for (int i = 0; i < part->segment_count; i++)
        list_segment(storage, part, i);
    CY_TRY(list_groups(storage));
    CY_TRY(CY_ALLOC(&storage->parts, (size_t)storage->unit_count * (size_t)storage->group_count));
    place_tensors(storage);
    return CY_OK;
}

cy_status cy_storage_open(cy_storage *storage, const cy_model_shape *shape,
    const cy_model_shard *part, cy_precision precision)
{
    cy_storage made = {.part = *part};
    made.part.segments = NULL;
    cy_status status = cy_manifest_open(&made.manifest, shape, precision);
    if (status == CY_OK) status = open_tables(&made, part);
    if (status != CY_OK) {
        cy_storage_close(&made);
        return status;
    }
    *storage = made;
    return CY_OK;
}

void cy_storage_close(cy_storage *storage)
{
    for (int i = 0; i < storage->group_count; i++)
        cy_reducer_close(storage->groups[i].reducer);
    cy_manifest_close(&storage->manifest);
    cy_memory_free(storage->groups);
    cy_memory_free(storage->tensors);
    cy_memory_free(storage->units);
    cy_memory_free(storage->parts);
    cy_memory_free(storage->unit_of);
    *storage = (cy_storage){0};
}

// ---- finding tensors

const cy_param_set *cy_storage_set(const cy_storage *storage, const cy_param *param)
{
    return &storage->part.sets[set_of(storage, param)];
}

int cy_storage_unit(const cy_storage *storage, int layer)
{
    CY_ASSERT(-1 <= layer && layer <= storage->manifest.shape.layers);
    return storage->unit_of[layer + 1];
}

cy_unit_part *cy_storage_part(const cy_storage *storage, int unit, int group)
{
    return &storage->parts[unit * storage->group_count + group];
}

cy_unit_part *cy_storage_part_of(const cy_storage *storage, const cy_tensor *tensor)
{
    return cy_storage_part(storage, tensor->unit, tensor->group);
}

const cy_tensor *cy_storage_find(const cy_storage *storage, cy_param_key key)
{
    const int unit = cy_storage_unit(storage, key.layer);
    for (int g = 0; unit >= 0 && g < storage->group_count; g++) {
        const cy_unit_part *part = cy_storage_part(storage, unit, g);
        for (int i = 0; i < part->tensor_count; i++) {
            const cy_tensor *tensor = &storage->tensors[part->tensor_first + i];
            if (cy_param_key_compare(tensor->param->key, key) == 0) return tensor;
        }
    }
    return NULL;
}

const cy_tensor *cy_storage_tensor(const cy_storage *storage, int unit, cy_role role)
{
    if (unit < 0) return NULL;
    return cy_storage_find(storage, (cy_param_key){role, storage->units[unit].layer, CY_DENSE});
}

static cy_view view_at(const cy_tensor *tensor, int fused_extra, void *base, cy_dtype dtype)
{
    if (base == NULL) return cy_view_none();
    int64_t rows = tensor->slice.rows;
    int64_t cols = tensor->slice.cols;
    for (int i = 1; i <= fused_extra; i++) {
        const cy_slice *next = &tensor[i].slice;
        CY_ASSERT(tensor[i].unit == tensor->unit && tensor[i].group == tensor->group);
        CY_ASSERT(follows_fused(tensor[i].param->key.role));
        if (tensor->param->dimensions == 1) {
            cols += next->cols;
        } else {
            CY_ASSERT(next->cols == cols);
            rows += next->rows;
        }
    }
    char *data = (char *)base + tensor->offset * (int64_t)cy_dtype_size(dtype);
    return cy_view_of(data, dtype, rows, cols);
}

cy_view cy_tensor_weight(const cy_storage *storage, const cy_tensor *tensor, int fused_extra)
{
    if (tensor == NULL) return cy_view_none();
    const cy_param_group *group = &storage->groups[tensor->group];
    void *weights = cy_storage_part_of(storage, tensor)->weights;
    return view_at(tensor, fused_extra, weights, group->weight_dtype);
}

cy_view cy_tensor_grad(const cy_storage *storage, const cy_tensor *tensor, int fused_extra)
{
    if (tensor == NULL) return cy_view_none();
    const cy_param_group *group = &storage->groups[tensor->group];
    void *grads = cy_storage_part_of(storage, tensor)->grads;
    const cy_view grad = view_at(tensor, fused_extra, grads, group->grad_dtype);
    if (storage->sums == NULL || cy_view_is_none(grad)) return grad;
    return cy_fixed_view(cy_sums_gradient(storage->sums, tensor->param), grad);
}

cy_view cy_storage_weight(const cy_storage *storage, int unit, cy_role role, int fused_extra)
{
    return cy_tensor_weight(storage, cy_storage_tensor(storage, unit, role), fused_extra);
}

cy_view cy_storage_grad(const cy_storage *storage, int unit, cy_role role, int fused_extra)
{
    return cy_tensor_grad(storage, cy_storage_tensor(storage, unit, role), fused_extra);
}

// ---- where the data lies

size_t cy_storage_weight_bytes(const cy_storage *storage, int group)
{
    const cy_param_group *of = &storage->groups[group];
    return (size_t)of->count * cy_dtype_size(of->weight_dtype);
}

void cy_storage_bind(cy_storage *storage, int group, void *weights, void *grads)
{
    const cy_param_group *of = &storage->groups[group];
    const int64_t weight_size = (int64_t)cy_dtype_size(of->weight_dtype);
    const int64_t grad_size = (int64_t)cy_dtype_size(of->grad_dtype);
    for (int i = 0; i < storage->unit_count; i++) {
        cy_unit_part *part = cy_storage_part(storage, i, group);
        part->weights = weights == NULL ? NULL : (char *)weights + part->first * weight_size;
        part->grads = grads == NULL ? NULL : (char *)grads + part->first * grad_size;
    }
}

void cy_storage_bind_unit(cy_storage *storage, int unit)
{
    for (int g = 0; g < storage->group_count; g++) {
        const cy_reducer *reducer = storage->groups[g].reducer;
        cy_unit_part *part = cy_storage_part(storage, unit, g);
        if (reducer == NULL || part->number < 0) continue;
        part->weights = cy_reducer_weights(reducer, part->number);
        part->grads = cy_reducer_grads(reducer, part->number);
    }
}

// ---- the reducers of all groups

void cy_storage_alloc(cy_storage *storage, cy_arena *run)
{
    for (int g = 0; g < storage->group_count; g++)
        cy_reducer_alloc(storage->groups[g].reducer, run);
}

cy_reducer_bytes cy_storage_memory(const cy_storage *storage)
{
    cy_reducer_bytes all = {0};
    for (int g = 0; g < storage->group_count; g++) {
        const cy_reducer_bytes bytes = cy_reducer_memory(storage->groups[g].reducer);
        all.weights += bytes.weights;
        all.gradients += bytes.gradients;
        all.optimizer += bytes.optimizer;
        all.units += bytes.units;
        all.compression += bytes.compression;
    }
    return all;
}

static bool is_product(cy_role role)
{
    return role == CY_ROLE_Q || role == CY_ROLE_K || role == CY_ROLE_V || role == CY_ROLE_OUT ||
        role == CY_ROLE_GATE || role == CY_ROLE_UP || role == CY_ROLE_DOWN;
}

static void clear_part(cy_storage *storage, cy_queue *queue, int unit, int group)
{
    const cy_unit_part *part = cy_storage_part(storage, unit, group);
    const cy_view all = cy_view_of(part->grads, storage->groups[group].grad_dtype, 1, part->count);
    int64_t done = 0; // up to here cleared, or left
    for (int t = 0; t < part->tensor_count; t++) {
        const cy_tensor *tensor = &storage->tensors[part->tensor_first + t];
        if (!is_product(tensor->param->key.role)) continue;
        cy_fill(queue, cy_view_cols(all, done, tensor->offset - done), 0.0);
        done = tensor->offset + tensor->slice.rows * tensor->slice.cols;
        storage->units[unit].grads_empty = true;
    }
    cy_fill(queue, cy_view_cols(all, done, part->count - done), 0.0);
}

void cy_storage_clear_grads(cy_storage *storage, cy_queue *queue)
{
    for (int unit = 0; unit < storage->unit_count; unit++) {
        storage->units[unit].grads_empty = false;
        for (int g = 0; g < storage->group_count; g++) {
            if (cy_storage_part(storage, unit, g)->number >= 0) clear_part(storage, queue, unit, g);
        }
    }
}

void cy_storage_begin_step(cy_storage *storage, cy_queue *queue)
{
    bool clears = storage->sums == NULL;
    for (int g = 0; g < storage->group_count; g++)
        clears = clears && storage->part.sets[storage->groups[g].set].zero_stage < 2;
    if (clears) {
        for (int unit = 0; unit < storage->unit_count; unit++)
            cy_storage_bind_unit(storage, unit); // a dry run comes before they are placed
        cy_storage_clear_grads(storage, queue);
    }
    for (int g = 0; g < storage->group_count; g++)
        (clears ? cy_reducer_begin : cy_reducer_zero)(storage->groups[g].reducer);
}

cy_status cy_storage_finish_grads(cy_storage *storage)
{
    for (int g = 0; g < storage->group_count; g++)
        CY_TRY(cy_reducer_finish(storage->groups[g].reducer));
    return CY_OK;
}

cy_status cy_storage_share_weights(cy_storage *storage)
{
    for (int g = 0; g < storage->group_count; g++)
        CY_TRY(cy_reducer_share_weights(storage->groups[g].reducer));
    return CY_OK;
}
