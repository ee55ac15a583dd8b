// checkpoint/compare.h: how far two checkpoints of one model lie apart, tensor by tensor.
//
// Two trainings that should be the same, on other meshes or in other versions, leave checkpoints
// that say how far they are. Whichever mesh wrote them: global tensors are compared.

#ifndef CY_CHECKPOINT_COMPARE_H
#define CY_CHECKPOINT_COMPARE_H

#include "checkpoint/checkpoint.h"

typedef struct cy_tensor_difference {
    double norm;     // 2-norm of one's tensor
    double distance; // 2-norm of the difference
    bool equal;      // every element has the same bits, once both are doubles
} cy_tensor_difference;

// |one - other| / |one|; 0 of equal ones, infinite where `one` is zero and the other is not.
double cy_tensor_difference_relative(const cy_tensor_difference *difference);

// Compares the tensor of that kind and name, which both must have in one shape. Reads both in parts
// of some megabytes; looks at no checksums.
CY_MUST_CHECK cy_status cy_checkpoint_compare(cy_tensor_difference *difference, cy_checkpoint *one,
    cy_checkpoint *other, const cy_global_tensor *tensor);

#endif
