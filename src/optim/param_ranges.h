// optim/param_ranges.h: which elements of which parameters a rank owns.
//
// The reducer speaks of flat ranges, the manifest of tensors; a parameter range is where they meet,
// and a rectangle is a part of a parameter range with a place in the global tensor. Initial
// weights, norms, the optimizer, hashes and checkpoints walk them. Nothing here holds memory or
// fails by itself.

#ifndef CY_OPTIM_PARAM_RANGES_H
#define CY_OPTIM_PARAM_RANGES_H

#include "model/storage.h"
#include "parallel/data/reducer.h"

// A part of an owned range that lies in one tensor: elements [first, first + count) of the rank's
// rectangle of that tensor, in row-major order, at element `at` of the range.
typedef struct cy_param_range {
    const cy_tensor *tensor;
    int64_t first;
    int64_t count;
    int64_t at;
} cy_param_range;

typedef cy_status (*cy_param_range_visit)(
    void *context, const cy_owned_range *range, const cy_param_range *param_range);

// Calls `visit` for every parameter range of every owned range, in order, until one fails.
CY_MUST_CHECK cy_status cy_param_ranges_visit(const cy_storage *storage, const cy_reducer *reducer,
    cy_param_range_visit visit, void *context);

// The parameter range's part of the range's gradients, with its exponent where they are in fixed
// point.
cy_view cy_param_range_grad(
    const cy_storage *storage, const cy_owned_range *range, const cy_param_range *param_range);

// Whole rows of a rank's rectangle, or a part of one row. Element (row, col) is number
// global_first + row * param->cols + col of the global tensor.
typedef struct cy_param_block {
    int64_t at; // in the parameter range
    int64_t rows, cols;
    int64_t global_first;
} cy_param_block;

// The next rectangle of a parameter range; *done counts the elements behind and starts at 0.
// Returns false when there is none. A parameter range that begins or ends inside a row has up to
// three.
bool cy_param_range_next(const cy_param_range *param_range, int64_t *done, cy_param_block *part);

#endif
