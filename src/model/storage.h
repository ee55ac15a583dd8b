// model/storage.h: where a rank keeps its parameters.
//
// All parameters of a rank lie in one flat range of elements, in the order in which the backward
// pass makes their gradients final: final norm and head, the layers from last to first, the
// embedding; segment after segment where a rank has several. A rank with the head of a model with
// tied embeddings holds the embedding too; where the first segment is elsewhere, as a copy.
// Weights, gradients, master copies and moments are flat ranges with these offsets, so the
// optimizer and the reducer see arrays, not parameters. A unit is what is gathered and freed
// together under ZeRO-3: the head, one layer, the embedding.
//
// Fused matrices are entries that lie next to each other: q, k, v; gate, up.
// A storage owns its tables; the data belongs to arenas. Read-only after it is opened, except for
// the `weights` and `grads` of a unit, which say where its data lies now, and `grads_empty`.

#ifndef CY_MODEL_STORAGE_H
#define CY_MODEL_STORAGE_H

#include "device/queue.h"
#include "device/view.h"
#include "model/strict_sums.h"
#include "parallel/data/reducer.h"

// One manifest entry as this rank holds it.
typedef struct cy_tensor {
    const cy_param *param; // borrowed from the manifest
    cy_slice slice;        // the rectangle of it that is here
    int unit;
    int64_t offset; // elements from the start of the unit
} cy_tensor;

typedef struct cy_unit {
    int layer;     // as in cy_param: -1 embedding, 0.. layers, `layers` final norm and head
    int64_t first; // elements from the start of the flat range
    int64_t count; // elements, with padding
    int tensor_first, tensor_count;
    void *weights; // borrowed: [count] in the weight dtype
    void *grads;   // borrowed: [count] in the gradient dtype; NULL where nothing is trained
    // The matrices of the layer's products hold no gradients yet: the next are written, not added.
    bool grads_empty;
} cy_unit;

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
    int64_t unit_multiple; // a unit's count is a multiple of this (ranks that share it, times 64)
} cy_model_shard;

typedef struct cy_storage {
    cy_manifest manifest; // owned
    cy_model_shard part;  // without segments
    cy_tensor *tensors;   // owned, [tensor_count], in the order of the flat range
    int tensor_count;
    cy_unit *units; // owned, [unit_count], likewise
    int unit_count;
    int *unit_of;  // owned, [layers + 2]: the unit of layer i - 1, or -1
    int64_t count; // elements of all units
    cy_dtype weight_dtype;
    cy_dtype grad_dtype;
    const cy_sums *sums; // borrowed: of gradients in fixed point; NULL: floating point
} cy_storage;

CY_MUST_CHECK cy_status cy_storage_open(cy_storage *storage, const cy_model_shape *shape,
    const cy_model_shard *part, cy_dtype weight_dtype, cy_dtype grad_dtype);
void cy_storage_close(cy_storage *storage);

// Index of the unit of a layer, or -1 when it is not here.
int cy_storage_unit(const cy_storage *storage, int layer);

// The tensor of a role in a unit, or NULL.
const cy_tensor *cy_storage_tensor(const cy_storage *storage, int unit, cy_role role);

// The matrix of `role` and the `fused_extra` entries that follow it in storage, at the unit's
// present weights or gradients. None where the model has no such parameter or there are no
// gradients.
cy_view cy_storage_weight(const cy_storage *storage, int unit, cy_role role, int fused_extra);
cy_view cy_storage_grad(const cy_storage *storage, int unit, cy_role role, int fused_extra);

// Points every unit's weights and gradients into whole flat ranges; either may be NULL.
void cy_storage_bind(cy_storage *storage, void *weights, void *grads);

// Points the weights and gradients of one unit to where the reducer holds them now.
void cy_storage_bind_unit(cy_storage *storage, const cy_reducer *reducer, int unit);

// The start of an optimizer step where all gradients are whole and floating point: zeros wherever
// they are only added to. The matrices of layers' products are marked empty instead, which spares
// them being written once and read once more than needed.
void cy_storage_clear_grads(cy_storage *storage, cy_queue *queue);

#endif
