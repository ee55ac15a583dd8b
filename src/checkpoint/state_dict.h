// checkpoint/state_dict.h: lists a model's parameters and optimizer state as tensors and shards.
//
// The list of global tensors repeats the model's manifest three times for training (weights and
// both moments), so it is the same on every mesh. The shards are what a rank owns of them.

#ifndef CY_CHECKPOINT_STATE_DICT_H
#define CY_CHECKPOINT_STATE_DICT_H

#include "checkpoint/checkpoint.h"
#include "optim/adamw.h"

// Start from a zeroed struct; free with cy_state_dict_close. Names are borrowed from the manifest.
typedef struct cy_state_dict {
    cy_global_tensor *tensors; // owned, [tensor_count]: weights first, then moments
    int tensor_count;
    cy_tensor_shard *pieces; // owned, [piece_count]
    size_t piece_count;
    size_t piece_capacity;
} cy_state_dict;

// What a rank owns while training: master copies and, with `moments`, both moments. With `once`, a
// shard that several ranks hold is listed by one of them only, as a save needs it.
CY_MUST_CHECK cy_status cy_state_dict_of_training(
    cy_state_dict *parameters, const cy_storage *storage, bool moments, bool once);

// All weights of a storage whose units are in memory: for generation and evaluation.
CY_MUST_CHECK cy_status cy_state_dict_of_weights(
    cy_state_dict *parameters, const cy_storage *storage);

// Adds tensors [count], the same on all ranks, and this rank's shard of one of them; its `tensor`
// is an index into `tensors`. Names are borrowed.
CY_MUST_CHECK cy_status cy_state_dict_add(cy_state_dict *parameters,
    const cy_global_tensor *tensors, int count, const cy_tensor_shard *piece);

void cy_state_dict_close(cy_state_dict *parameters);

#endif
