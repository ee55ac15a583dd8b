// support/shards.h: a small model's tensors, cut as a mesh would cut them, with values that say
// where they belong.

#ifndef CY_TESTS_SHARDS_H
#define CY_TESTS_SHARDS_H

#include "checkpoint/tensor_shard.h"

#define CY_TEST_TENSORS 15 // five parameters with two moments each

typedef struct cy_test_mesh {
    int tp; // cuts rows or columns, unevenly where it does not divide
    int dp; // cuts each rectangle's elements
    int pp; // deals the parameters out
} cy_test_mesh;

static inline int cy_test_mesh_size(cy_test_mesh mesh)
{
    return mesh.tp * mesh.dp * mesh.pp;
}

// `scale` multiplies rows and columns.
void cy_test_tensors(cy_global_tensor *tensors, int scale);

// The value of an element of a tensor; `run` tells two trainings apart.
float cy_test_value(int tensor, int64_t row, int64_t col, int run);

// What one rank holds.
typedef struct cy_test_shard {
    cy_tensor_shard pieces[CY_TEST_TENSORS];
    int count;
    int64_t bytes;    // of all pieces
    float *memory;    // owned, [elements]
    int64_t elements; // gaps included
} cy_test_shard;

// Pieces with memory, filled with the values when `fill`, otherwise with -1. Without dp the rows
// lie `gap` elements apart.
void cy_test_shard_open(cy_test_shard *shard, const cy_global_tensor *tensors, cy_test_mesh mesh,
    int rank, int gap, bool fill, int run);
void cy_test_shard_close(cy_test_shard *shard);

// The number of elements that are not what they should be, gaps included.
int64_t cy_test_shard_wrong(
    const cy_test_shard *shard, const cy_global_tensor *tensors, int gap, int run);

#endif
