// checkpoint/tensor_shard.h: which elements of a global tensor a rank holds, and where.
//
// A checkpoint knows global tensors, matrices of rows by cols (a vector is one row), and pieces of
// them. A piece is a range of the row-major elements of a rectangle: tensor parallelism cuts
// rectangles, ZeRO cuts a rectangle's elements anywhere, a pipeline stage holds no piece of the
// other stages' tensors. What one mesh wrote as pieces any other reads as pieces: both are sets of
// global elements, and cy_tensor_shard_overlap walks what two of them share.
//
// Plain data; all pointers are borrowed. Pure functions, safe from any thread.

#ifndef CY_CHECKPOINT_TENSOR_SHARD_H
#define CY_CHECKPOINT_TENSOR_SHARD_H

#include "base/status.h"
#include "device/view.h"

// What a global tensor is to the training. The values of one parameter share its name.
typedef enum cy_tensor_kind {
    CY_TENSOR_WEIGHT, // the master copy of a parameter
    CY_TENSOR_ADAM_M,
    CY_TENSOR_ADAM_V,
    CY_TENSOR_OTHER,
    CY_TENSOR_KINDS,
} cy_tensor_kind;

// "weight", "adam_m", "adam_v", "other". Static storage.
const char *cy_tensor_kind_name(cy_tensor_kind kind);

typedef struct cy_global_tensor {
    const char *name; // borrowed: as Hugging Face names the parameter
    cy_tensor_kind kind;
    cy_dtype dtype; // in the file
    int dimensions; // 1 or 2; shape [cols] or [rows, cols]
    int64_t rows;   // 1 where dimensions is 1
    int64_t cols;
} cy_global_tensor;

// A rectangle of a global tensor.
typedef struct cy_rectangle {
    int64_t row_first, rows;
    int64_t col_first, cols;
} cy_rectangle;

// Elements [first, first + count) of the row-major elements of a rectangle, and their memory: the
// element at (row, col) of the rectangle lies (row - row0) * stride + (col - col0) elements after
// `data`, where (row0, col0) is the place of element `first`.
typedef struct cy_tensor_shard {
    int tensor;     // its place in the caller's list of global tensors
    cy_dtype dtype; // in memory
    cy_rectangle rectangle;
    int64_t first;
    int64_t count;
    void *data;     // borrowed; only read while saving
    int64_t stride; // elements between rows in memory, at least rectangle.cols
} cy_tensor_shard;

// A whole rectangle in a matrix in memory: its corner stands at (row_first, col_first).
cy_tensor_shard cy_tensor_shard_of_view(
    int tensor, cy_view view, int64_t row_first, int64_t col_first);

// A dense range that starts at element `first` of a rectangle: a ZeRO shard's part of a parameter.
cy_tensor_shard cy_tensor_shard_of_range(
    int tensor, cy_rectangle rectangle, int64_t first, int64_t count, void *data, cy_dtype dtype);

// Where element `index` of the rectangle's elements lies; first <= index < first + count.
void *cy_tensor_shard_at(const cy_tensor_shard *piece, int64_t index);

// True if the elements lie one after the other in memory.
bool cy_tensor_shard_dense(const cy_tensor_shard *piece);

// Calls run(context, a_index, b_index, count) for maximal runs of elements that two pieces of one
// tensor share and that follow each other in both: a_index and b_index count the elements of the
// pieces' rectangles. In ascending order of global rows. Stops at the first failure.
typedef cy_status (*cy_shard_overlap_run)(
    void *context, int64_t a_index, int64_t b_index, int64_t count);
CY_MUST_CHECK cy_status cy_tensor_shard_overlap(
    const cy_tensor_shard *a, const cy_tensor_shard *b, cy_shard_overlap_run run, void *context);

// Fails with CY_ERR_CORRUPT unless the pieces of one tensor cover each of its elements exactly
// once. Rectangles must be equal or disjoint. Sorts the pieces. `name` is for the text.
CY_MUST_CHECK cy_status cy_tensor_shards_check_cover(
    cy_tensor_shard *pieces, int64_t count, const char *name, int64_t rows, int64_t cols);

#endif
