// cyclotron/matrix.h: a matrix in the caller's memory. Plain data: whoever made the memory says
// when it may go and which thread may touch it.

#ifndef CYCLOTRON_MATRIX_H
#define CYCLOTRON_MATRIX_H

#include <cyclotron/dtype.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// `rows` by `cols` elements, row after row. Activations are [tokens, features], weights [out, in]
// as Hugging Face stores them, a vector is one row.
typedef struct cy_matrix {
    void *data;     // borrowed: element (0, 0)
    cy_dtype dtype; // of its elements
    int64_t rows;   // at least 1
    int64_t cols;   // at least 1
    int64_t stride; // elements from one row to the next, at least cols
} cy_matrix;

// A matrix without gaps between its rows.
static inline cy_matrix cy_matrix_of(void *data, cy_dtype dtype, int64_t rows, int64_t cols)
{
    cy_matrix matrix;
    matrix.data = data;
    matrix.dtype = dtype;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.stride = cols;
    return matrix;
}

#ifdef __cplusplus
}
#endif

#endif
