// Lists a model's parameters and optimizer state as global tensors and this rank's shards.

#include "checkpoint/state_dict.h"

#include "base/memory.h"

#include <string.h>

// The kinds in the order of the list of tensors.
static const cy_tensor_kind kinds[] = {CY_TENSOR_WEIGHT, CY_TENSOR_ADAM_M, CY_TENSOR_ADAM_V};

// `masters`: the dtypes of master copies and moments, not of weights for compute.
static cy_status list_tensors(
    cy_state_dict *parameters, const cy_manifest *manifest, bool masters, int kind_count)
{
    void *block = NULL;
    const int count = manifest->count * kind_count;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(cy_global_tensor)));
    parameters->tensors = block;
    parameters->tensor_count = count;
    for (int i = 0; i < count; i++) {
        const cy_param *param = &manifest->params[i % manifest->count];
        parameters->tensors[i] = (cy_global_tensor){
            .name = param->name,
            .kind = kinds[i / manifest->count],
            .dtype = masters ? cy_sum_dtype(param->dtype) : param->dtype,
            .dimensions = param->dimensions,
            .rows = param->rows,
            .cols = param->cols,
        };
    }
    return CY_OK;
}

static cy_status add_piece(cy_state_dict *parameters, cy_tensor_shard piece)
{
    void *block = parameters->pieces;
    CY_TRY(cy_memory_grow(
        &block, &parameters->piece_capacity, parameters->piece_count + 1, sizeof(cy_tensor_shard)));
    parameters->pieces = block;
    parameters->pieces[parameters->piece_count++] = piece;
    return CY_OK;
}

static cy_rectangle rectangle_of(const cy_slice *slice)
{
    return (cy_rectangle){
        .row_first = slice->row_first,
        .rows = slice->rows,
        .col_first = slice->col_first,
        .cols = slice->cols,
    };
}

typedef struct training_pass {
    cy_state_dict *parameters;
    const cy_manifest *manifest;
    bool moments;
    const cy_storage *storage;
    bool once;         // a shard that several ranks hold is listed by one of them
    int group;         // of the shard before
    int64_t stretches; // met so far in it
} training_pass;

// Without ZeRO all ranks of a set hold the same: they take turns.
static bool is_mine(const training_pass *pass, const cy_tensor *tensor, int64_t turn)
{
    const cy_param_set *set = cy_storage_set(pass->storage, tensor->param);
    if (tensor->slice.copy_index != 0) return false;
    return set->zero_stage > 0 || turn % cy_group_size(set->ranks) == cy_group_rank(set->ranks);
}

static cy_status add_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *stretch)
{
    training_pass *pass = context;
    const cy_slice *slice = &stretch->tensor->slice;
    if (stretch->tensor->group != pass->group) pass->stretches = 0;
    pass->group = stretch->tensor->group;
    const int64_t turn = pass->stretches++;
    if (pass->once && !is_mine(pass, stretch->tensor, turn)) return CY_OK;
    const int index = (int)(stretch->tensor->param - pass->manifest->params);
    const cy_view arrays[] = {range->master, range->m, range->v};
    for (int i = 0; i < (pass->moments ? 3 : 1); i++) {
        CY_TRY(add_piece(pass->parameters,
            cy_tensor_shard_of_range(i * pass->manifest->count + index, rectangle_of(slice),
                stretch->first, stretch->count, cy_view_at(arrays[i], 0, stretch->at),
                arrays[i].dtype)));
    }
    return CY_OK;
}

cy_status cy_state_dict_of_training(
    cy_state_dict *parameters, const cy_storage *storage, bool moments, bool once)
{
    training_pass pass = {.parameters = parameters,
        .manifest = &storage->manifest,
        .moments = moments,
        .storage = storage,
        .once = once};
    cy_status status = list_tensors(parameters, &storage->manifest, true, moments ? 3 : 1);
    if (status == CY_OK) status = cy_param_ranges_visit(storage, add_param_range, &pass);
    if (status != CY_OK) cy_state_dict_close(parameters);
    return status;
}

cy_status cy_state_dict_of_weights(cy_state_dict *parameters, const cy_storage *storage)
{
    CY_TRY(list_tensors(parameters, &storage->manifest, false, 1));
    for (int i = 0; i < storage->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[i];
        const cy_view view = cy_tensor_weight(storage, tensor, 0);
        const int index = (int)(tensor->param - storage->manifest.params);
        const cy_status status = add_piece(parameters,
            cy_tensor_shard_of_view(index, view, tensor->slice.row_first, tensor->slice.col_first));
        if (status != CY_OK) {
            cy_state_dict_close(parameters);
            return status;
        }
    }
    return CY_OK;
}

cy_status cy_state_dict_add(cy_state_dict *parameters, const cy_global_tensor *tensors, int count,
    const cy_tensor_shard *piece)
{
    void *block = NULL;
    const int before = parameters->tensor_count;
    CY_TRY(cy_memory_alloc(&block, (size_t)(before + count), sizeof(cy_global_tensor)));
    cy_global_tensor *all = block;
    memcpy(all, parameters->tensors, (size_t)before * sizeof(*all));
    memcpy(all + before, tensors, (size_t)count * sizeof(*all));
    cy_memory_free(parameters->tensors);
    parameters->tensors = all;
    parameters->tensor_count += count;
    cy_tensor_shard added = *piece;
    added.tensor += before;
    return add_piece(parameters, added);
}

void cy_state_dict_close(cy_state_dict *parameters)
{
    cy_memory_free(parameters->tensors);
    cy_memory_free(parameters->pieces);
    *parameters = (cy_state_dict){0};
}
