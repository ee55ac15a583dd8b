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

static void add_unit(cy_storage *storage, int layer, bool is_copy)
{
    const cy_model_shard *part = &storage->part;
    cy_unit *unit = &storage->units[storage->unit_count];
    *unit =
        (cy_unit){.layer = layer, .first = storage->count, .tensor_first = storage->tensor_count};
    int64_t offset = 0;
    int param_count;
    const cy_param *params = cy_manifest_layer(&storage->manifest, layer, &param_count);
    const cy_param *by_role[CY_ROLE_COUNT] = {NULL};
    for (int i = 0; i < param_count; i++)
        by_role[params[i].key.role] = &params[i];
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        const cy_param *param = by_role[order[i]];
        if (param == NULL) continue;
        if (!follows_fused(order[i])) offset = round_up(offset, ALIGN_ELEMENTS);
        cy_slice slice =
            cy_param_slice(param, &storage->manifest.shape, part->tp_rank, part->tp_size);
        if (is_copy) slice.copy_index += slice.copies;
        storage->tensors[storage->tensor_count++] = (cy_tensor){
            .param = param, .slice = slice, .unit = storage->unit_count, .offset = offset};
        offset += cy_param_most_elements(param, &storage->manifest.shape, part->tp_size);
    }
    unit->count = round_up(offset, part->unit_multiple > 0 ? part->unit_multiple : ALIGN_ELEMENTS);
    unit->tensor_count = storage->tensor_count - unit->tensor_first;
    CY_ASSERT(unit->tensor_count == param_count); // each has its place
    storage->unit_of[layer + 1] = storage->unit_count;
    storage->count += unit->count;
    storage->unit_count++;
}

static bool needs_embedding(const cy_storage *storage, const cy_segment *segment)
{
    return segment->embedding || (segment->head && storage->manifest.shape.tied);
}

// The embedding follows the last of the segments that add to its gradient.
static void add_segment(cy_storage *storage, const cy_model_shard *part, int index)
{
    const cy_segment *segment = &part->segments[index];
    if (segment->head) add_unit(storage, storage->manifest.shape.layers, false);
    for (int i = segment->layer_count - 1; i >= 0; i--)
        add_unit(storage, segment->layer_first + i, false);
    if (!needs_embedding(storage, segment)) return;
    bool is_copy = true;
    for (int i = 0; i < part->segment_count; i++) {
        if (i > index && needs_embedding(storage, &part->segments[i])) return;
        if (part->segments[i].embedding) is_copy = false;
    }
    add_unit(storage, -1, is_copy);
}

cy_status cy_storage_open(cy_storage *storage, const cy_model_shape *shape,
    const cy_model_shard *part, cy_dtype weight_dtype, cy_dtype grad_dtype)
{
    CY_ASSERT(part->unit_multiple % ALIGN_ELEMENTS == 0);
    void *block = NULL;
    cy_storage made = {.part = *part, .weight_dtype = weight_dtype, .grad_dtype = grad_dtype};
    cy_status status = cy_manifest_open(&made.manifest, shape);
    if (status != CY_OK) return status;
    status = cy_memory_alloc(&block, (size_t)made.manifest.count + 1, sizeof(cy_tensor));
    if (status != CY_OK) goto close;
    made.tensors = block;
    status = cy_memory_alloc(&block, (size_t)shape->layers + 2, sizeof(cy_unit));
    if (status != CY_OK) goto close;
    made.units = block;
    status = cy_memory_alloc(&block, (size_t)shape->layers + 2, sizeof(int));
    if (status != CY_OK) goto close;
    made.unit_of = block;
    for (int i = 0; i < shape->layers + 2; i++)
        made.unit_of[i] = -1;

    for (int i = 0; i < part->segment_count; i++)
        add_segment(&made, part, i);
    made.part.segments = NULL;
    *storage = made;
    return CY_OK;

close:
    cy_storage_close(&made);
    return status;
}

void cy_storage_close(cy_storage *storage)
{
    cy_manifest_close(&storage->manifest);
    cy_memory_free(storage->tensors);
    cy_memory_free(storage->units);
    cy_memory_free(storage->unit_of);
    *storage = (cy_storage){0};
}

int cy_storage_unit(const cy_storage *storage, int layer)
{
    CY_ASSERT(-1 <= layer && layer <= storage->manifest.shape.layers);
    return storage->unit_of[layer + 1];
}

const cy_tensor *cy_storage_tensor(const cy_storage *storage, int unit, cy_role role)
{
    if (unit < 0) return NULL;
    const cy_unit *place = &storage->units[unit];
    for (int i = 0; i < place->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[place->tensor_first + i];
        if (tensor->param->key.role == role) return tensor;
    }
    return NULL;
}

static cy_view view_at(
    const cy_storage *storage, int unit, cy_role role, int fused_extra, void *base, cy_dtype dtype)
{
    const cy_tensor *tensor = cy_storage_tensor(storage, unit, role);
    if (tensor == NULL || base == NULL) return cy_view_none();
    int64_t rows = tensor->slice.rows;
    int64_t cols = tensor->slice.cols;
    for (int i = 1; i <= fused_extra; i++) {
        const cy_slice *next = &tensor[i].slice;
        CY_ASSERT(tensor[i].unit == unit && follows_fused(tensor[i].param->key.role));
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

cy_view cy_storage_weight(const cy_storage *storage, int unit, cy_role role, int fused_extra)
{
    if (unit < 0) return cy_view_none();
    return view_at(
        storage, unit, role, fused_extra, storage->units[unit].weights, storage->weight_dtype);
}

cy_view cy_storage_grad(const cy_storage *storage, int unit, cy_role role, int fused_extra)
{
    if (unit < 0) return cy_view_none();
    const cy_view grad =
        view_at(storage, unit, role, fused_extra, storage->units[unit].grads, storage->grad_dtype);
    const cy_tensor *tensor = cy_storage_tensor(storage, unit, role);
    if (storage->sums == NULL || tensor == NULL || cy_view_is_none(grad)) return grad;
    return cy_fixed_view(cy_sums_gradient(storage->sums, tensor->param), grad);
}

void cy_storage_bind(cy_storage *storage, void *weights, void *grads)
{
    const int64_t weight_size = (int64_t)cy_dtype_size(storage->weight_dtype);
    const int64_t grad_size = (int64_t)cy_dtype_size(storage->grad_dtype);
    for (int i = 0; i < storage->unit_count; i++) {
        cy_unit *unit = &storage->units[i];
        unit->weights = weights == NULL ? NULL : (char *)weights + unit->first * weight_size;
        unit->grads = grads == NULL ? NULL : (char *)grads + unit->first * grad_size;
    }
}

void cy_storage_bind_unit(cy_storage *storage, const cy_reducer *reducer, int unit)
{
    storage->units[unit].weights = cy_reducer_weights(reducer, unit);
    storage->units[unit].grads = cy_reducer_grads(reducer, unit);
}

static bool is_product(cy_role role)
{
    return role == CY_ROLE_Q || role == CY_ROLE_K || role == CY_ROLE_V || role == CY_ROLE_OUT ||
        role == CY_ROLE_GATE || role == CY_ROLE_UP || role == CY_ROLE_DOWN;
}

void cy_storage_clear_grads(cy_storage *storage, cy_queue *queue)
{
    for (int i = 0; i < storage->unit_count; i++) {
        cy_unit *unit = &storage->units[i];
        const cy_view all = cy_view_of(unit->grads, storage->grad_dtype, 1, unit->count);
        int64_t done = 0; // up to here cleared, or left
        unit->grads_empty = false;
        for (int t = 0; t < unit->tensor_count; t++) {
            const cy_tensor *tensor = &storage->tensors[unit->tensor_first + t];
            if (!is_product(tensor->param->key.role)) continue;
            cy_fill(queue, cy_view_cols(all, done, tensor->offset - done), 0.0);
            done = tensor->offset + tensor->slice.rows * tensor->slice.cols;
            unit->grads_empty = true;
        }
        cy_fill(queue, cy_view_cols(all, done, unit->count - done), 0.0);
    }
}
