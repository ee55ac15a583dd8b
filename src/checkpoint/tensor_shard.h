// checkpoint/tensor_shard.h: which elements of a global tensor a rank holds, and where in memory.
//
// A checkpoint consists of global tensors, matrices of rows by cols (a vector is one row), and of
// shards of them, which the code calls `piece`. A shard is a range of the row-major elements of a
// rectangle: tensor parallelism cuts a tensor into rectangles, ZeRO cuts the elements of a
// rectangle anywhere, a pipeline stage holds no shard of the other stages' tensors. The shards that
// one mesh saved and those that another loads are sets of global elements: cy_tensor_shard_overlap
// walks the elements that two of them share, and loading on another mesh needs nothing else.
//
// Plain data; all pointers are borrowed. Pure functions, safe from any thread, except for
// cy_tensor_shard_read, which uses a queue.

#ifndef CY_CHECKPOINT_TENSOR_SHARD_H
#define CY_CHECKPOINT_TENSOR_SHARD_H

#include "base/status.h"
#include "device/device.h"
#include "device/view.h"

// The role of a global tensor in training. Weight and moments of one parameter share its name.
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
    int tensor;     // index into the caller's list of global tensors
    cy_dtype dtype; // in memory
    cy_rectangle rectangle;
    int64_t first;
    int64_t count;
    void *data;     // borrowed; only read while saving
    int64_t stride; // elements between rows in memory, at least rectangle.cols
} cy_tensor_shard;

// A matrix in memory as the whole rectangle whose first element is (row_first, col_first).
cy_tensor_shard cy_tensor_shard_of_view(
    int tensor, cy_view view, int64_t row_first, int64_t col_first);

// A dense range that starts at element `first` of a rectangle: a ZeRO shard's part of a parameter.
cy_tensor_shard cy_tensor_shard_of_range(
    int tensor, cy_rectangle rectangle, int64_t first, int64_t count, void *data, cy_dtype dtype);

// The address of element `index` of the rectangle; first <= index < first + count.
void *cy_tensor_shard_at(const cy_tensor_shard *piece, int64_t index);

// True if the elements lie one after the other in memory.
bool cy_tensor_shard_dense(const cy_tensor_shard *piece);

// Reads elements [index, index + count) of a shard whose memory belongs to the device of `queue`;
// NULL: to the host. *bytes is where they lie dense on the host: `buffer`, which has room for them,
// or the memory itself where the host has access to it and they are dense there. A copy would cost
// a save of weights that nothing converts one more pass over every byte.
CY_MUST_CHECK cy_status cy_tensor_shard_read(const char **bytes, char *buffer, cy_queue *queue,
    const cy_tensor_shard *piece, int64_t index, int64_t count);

// Calls run(context, a_index, b_index, count) for maximal runs of elements that two shards of one
// tensor share and that follow each other in both: a_index and b_index are the numbers of the run's
// first element in the two rectangles. In ascending order of global rows. Stops at the first
// failure.
typedef cy_status (*cy_shard_overlap_run)(
    void *context, int64_t a_index, int64_t b_index, int64_t count);
CY_MUST_CHECK cy_status cy_tensor_shard_overlap(
    const cy_tensor_shard *a, const cy_tensor_shard *b, cy_shard_overlap_run run, void *context);

// Fails with CY_ERR_CORRUPT unless the shards [count] of one tensor cover each of its elements
// exactly once. Rectangles must be equal or disjoint. Sorts the shards. `name` is for the text.
CY_MUST_CHECK cy_status cy_tensor_shards_check_cover(
    cy_tensor_shard *pieces, int64_t count, const char *name, int64_t rows, int64_t cols);

#endif
