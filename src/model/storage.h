// model/storage.h: where a rank keeps its parameters, and the reducers that own their arrays.
//
// The parameters of a rank are divided into groups: those of a group lie on the same ranks and have
// the same dtypes (as the buffers of Megatron's distributed data parallelism). A model without
// experts and with one dtype has one group. The parameters of a group lie in one flat range of
// elements, in the order in which the backward pass makes their gradients final: final norm and
// head, the layers from last to first, the embedding; segment after segment where a rank has
// several. A rank with the head of a model with tied embeddings holds the embedding too; where the
// first segment is elsewhere, as a copy. Weights, gradients, master copies and moments of a group
// are flat ranges with these offsets, so the optimizer and the group's reducer see arrays, not
// parameters.
//
// A unit is what is gathered and freed together under ZeRO-3: the head, one layer, the embedding.
// It has a part in each group that holds some of its parameters. Fused matrices are entries that
// lie next to each other: q, k, v; gate, up.
//
// A storage owns its tables and its groups' reducers; the data belongs to arenas. Read-only after
// it is opened, except for the `weights` and `grads` of a part, which say where its data lies now,
// and `grads_empty`. The rank's thread alone uses it. Only collectives fail.

#ifndef CY_MODEL_STORAGE_H
#define CY_MODEL_STORAGE_H

#include "device/queue.h"
#include "device/view.h"
#include "model/strict_sums.h"
#include "parallel/data/reducer.h"

// Parameters that the same ranks share.
typedef struct cy_param_set {
    bool (*holds)(const cy_param *param); // NULL: every parameter
    cy_group *ranks; // borrowed: they hold the same parameters and see other tokens; gradients are
                     // summed over them, and ZeRO divides arrays among them
    cy_group *norm;  // borrowed: ranks that own different elements of the set
    int zero_stage;
} cy_param_set;

// One manifest entry as this rank holds it.
typedef struct cy_tensor {
    const cy_param *param; // borrowed from the manifest
    cy_slice slice;        // the rectangle of it that is here
    int unit, group;
    int64_t offset; // elements from the start of the unit's part in the group
} cy_tensor;

// The parameters of a unit that belong to one group.
typedef struct cy_unit_part {
    int number;    // of the unit among those of the group, or -1: it has no parameters there
    int64_t first; // elements from the start of the group's flat range
    int64_t count; // elements, with padding
    int tensor_first, tensor_count;
    void *weights; // borrowed: [count] in the group's weight dtype
    void *grads;   // borrowed: [count] in its gradient dtype; NULL where nothing is trained
} cy_unit_part;

typedef struct cy_unit {
    int layer; // as in cy_param_key: -1 embedding, 0.. layers, `layers` final norm and head
    bool is_copy;
    // The matrices of the layer's products hold no gradients yet: the next are written, not added.
    bool grads_empty;
} cy_unit;

typedef struct cy_param_group {
    int set; // among the sets
    cy_dtype weight_dtype;
    cy_dtype grad_dtype;
    int64_t count; // elements of all units
    int unit_count;
    int tensor_first, tensor_count;
    cy_reducer *reducer; // owned; NULL: the weights are whole, and bound by cy_storage_bind
} cy_param_group;

// A run of layers that follow each other, with the end of the model that it has.
typedef struct cy_segment {
    int layer_first, layer_count;
    bool embedding; // it reads tokens: the first of the model
    bool head;      // the last: final norm and output projection
} cy_segment;

// The part of the model that a rank holds: one segment, or, as a stage of a pipeline, several.
typedef struct cy_model_shard {
    const cy_segment *segments; // borrowed while opening, [segment_count], in the order in which
                                // their gradients become final
    int segment_count;
    int tp_rank, tp_size;
    const cy_param_set *sets; // borrowed, [set_count]: a parameter belongs to the last that holds
    int set_count;            // it; 0: all parameters are one set, and no other rank shares it
    bool fixed_grads;         // gradients are CY_FX64
} cy_model_shard;

typedef struct cy_storage {
    cy_manifest manifest;   // owned
    cy_model_shard part;    // without segments
    cy_param_group *groups; // owned, [group_count], by set
    int group_count;
    cy_tensor *tensors; // owned, [tensor_count]: group by group, in the order of the flat range
    int tensor_count;
    cy_unit *units; // owned, [unit_count], in the order of the flat ranges
    int unit_count;
    cy_unit_part *parts; // owned, [unit_count, group_count]
    int *unit_of;        // owned, [layers + 2]: the unit of layer i - 1, or -1
    const cy_sums *sums; // borrowed: of gradients in fixed point; NULL: floating point
} cy_storage;

CY_MUST_CHECK cy_status cy_storage_open(cy_storage *storage, const cy_model_shape *shape,
    const cy_model_shard *part, cy_precision precision);
void cy_storage_close(cy_storage *storage);

// ---- tensors

// The set of a parameter, here or elsewhere.
const cy_param_set *cy_storage_set(const cy_storage *storage, const cy_param *param);

// Index of the unit of a layer, or -1 when it is not here.
int cy_storage_unit(const cy_storage *storage, int layer);

// The part of a unit in a group, and the one that a tensor lies in.
cy_unit_part *cy_storage_part(const cy_storage *storage, int unit, int group);
cy_unit_part *cy_storage_part_of(const cy_storage *storage, const cy_tensor *tensor);

// The tensor of a key, or NULL when it is not here; likewise of a role in a unit, where no expert
// has it.
const cy_tensor *cy_storage_find(const cy_storage *storage, cy_param_key key);
const cy_tensor *cy_storage_tensor(const cy_storage *storage, int unit, cy_role role);

// The matrix of a tensor and the `fused_extra` entries that follow it in storage, at the present
// weights or gradients. None where the tensor is NULL or there are no gradients.
cy_view cy_tensor_weight(const cy_storage *storage, const cy_tensor *tensor, int fused_extra);
cy_view cy_tensor_grad(const cy_storage *storage, const cy_tensor *tensor, int fused_extra);

// The same by unit and role.
cy_view cy_storage_weight(const cy_storage *storage, int unit, cy_role role, int fused_extra);
cy_view cy_storage_grad(const cy_storage *storage, int unit, cy_role role, int fused_extra);

// ---- where the data lies

// Bytes of the whole weights of a group: a multiple of 64.
size_t cy_storage_weight_bytes(const cy_storage *storage, int group);

// Points the weights and gradients of all units of a group into whole flat ranges; either may be
// NULL.
void cy_storage_bind(cy_storage *storage, int group, void *weights, void *grads);

// Points the weights and gradients of a unit to where the reducers hold them now; those of groups
// without a reducer stay.
void cy_storage_bind_unit(cy_storage *storage, int unit);

// ---- the reducers of all groups: what the calls mean is told in parallel/data/reducer.h

void cy_storage_alloc(cy_storage *storage, cy_arena *run);
cy_reducer_bytes cy_storage_memory(const cy_storage *storage);

// The start of an optimizer step: gradients are zero, or marked empty by cy_storage_clear_grads
// where all of them are whole and floating point.
void cy_storage_begin_step(cy_storage *storage, cy_queue *queue);

// Zeros wherever whole gradients are only added to. The matrices of layers' products are marked
// empty instead, which spares them being written once and read once more than needed.
void cy_storage_clear_grads(cy_storage *storage, cy_queue *queue);

// Returns when the owned gradients of all groups are sums over the ranks of their sets.
CY_MUST_CHECK cy_status cy_storage_finish_grads(cy_storage *storage);

// After the update: every rank's weights are the new ones.
CY_MUST_CHECK cy_status cy_storage_share_weights(cy_storage *storage);

#endif
