// device/view.h: a matrix in the memory of a device.
//
// Kernels and groups work on matrices of `rows` by `cols` elements, row-major, with `stride`
// elements from one row to the next: activations are [tokens, features], weights [out, in] as
// Hugging Face stores them, and a vector is one row. A view is plain data and never owns its
// matrix. Functions of views are pure; any thread may call them.
//
// Fixed point (CY_FX64): an element is integer * 2^exponent. The result of a sum does not depend on
// the order of its terms; strict mode is built on this. The end of this file tells how exponents
// are chosen.

#ifndef CY_DEVICE_VIEW_H
#define CY_DEVICE_VIEW_H

#include <cyclotron/dtype.h>

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cy_view {
    void *data; // borrowed; NULL only in cy_view_none()
    cy_dtype dtype;
    int exponent; // of CY_FX64, otherwise 0
    int64_t rows;
    int64_t cols;
    int64_t stride;            // in elements, at least cols
    int64_t block_k;           // of CY_FX64: elements of k in a term of a product; see cy_fixed
    _Atomic uint32_t *largest; // borrowed, of CY_FX64, device memory: see cy_fixed; may be NULL
} cy_view;

// The dtype of sums, statistics and master copies of data of `dtype`.
static inline cy_dtype cy_sum_dtype(cy_dtype dtype)
{
    return dtype == CY_F64 ? CY_F64 : CY_F32;
}

// No matrix: for optional arguments.
static inline cy_view cy_view_none(void)
{
    return (cy_view){0};
}

static inline bool cy_view_is_none(cy_view view)
{
    return view.data == NULL;
}

// A dense matrix at `data`.
static inline cy_view cy_view_of(void *data, cy_dtype dtype, int64_t rows, int64_t cols)
{
    return (cy_view){.data = data, .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
}

static inline bool cy_view_is_dense(cy_view view)
{
    return view.stride == view.cols || view.rows <= 1;
}

static inline int64_t cy_view_count(cy_view view)
{
    return view.rows * view.cols;
}

// Bytes of the elements, without the gaps between rows.
static inline size_t cy_view_bytes(cy_view view)
{
    return (size_t)cy_view_count(view) * cy_dtype_size(view.dtype);
}

// The address of element (row, col), which may lie outside the matrix.
static inline void *cy_view_address(cy_view view, int64_t row, int64_t col)
{
    return (char *)view.data + (row * view.stride + col) * (int64_t)cy_dtype_size(view.dtype);
}

// The address of element (row, col).
static inline void *cy_view_at(cy_view view, int64_t row, int64_t col)
{
    CY_DEBUG_ASSERT(row >= 0 && row < view.rows && col >= 0 && col < view.cols);
    return cy_view_address(view, row, col);
}

// Rows [first, first + count) and columns [first, first + count) of a view. They must exist.
static inline cy_view cy_view_rows(cy_view view, int64_t first, int64_t count)
{
    CY_DEBUG_ASSERT(first >= 0 && count >= 0 && first + count <= view.rows);
    view.data = cy_view_address(view, first, 0);
    view.rows = count;
    return view;
}

static inline cy_view cy_view_cols(cy_view view, int64_t first, int64_t count)
{
    CY_DEBUG_ASSERT(first >= 0 && count >= 0 && first + count <= view.cols);
    view.data = cy_view_address(view, 0, first);
    view.cols = count;
    return view;
}

// `view` as a part of the same sum as `like`, where that is fixed point.
static inline cy_view cy_view_of_sum(cy_view view, cy_view like)
{
    view.exponent = like.exponent;
    view.block_k = like.block_k;
    view.largest = like.largest;
    return view;
}

// A new dense matrix from an arena; its content is undefined.
static inline cy_view cy_view_alloc(cy_arena *arena, cy_dtype dtype, int64_t rows, int64_t cols)
{
    const size_t bytes = (size_t)(rows * cols) * cy_dtype_size(dtype);
    return cy_view_of(cy_arena_alloc(arena, bytes), dtype, rows, cols);
}

// ---- fixed point: the unit of a sum, the blocks of its terms, and the largest term
//
// Strict mode keeps sums that are split over ranks in CY_FX64. The exponent of a sum must be chosen
// before its terms are known, so it follows from the largest term of the previous step, which
// kernels record in memory of the device. A cy_fixed is a value on the host and does not change
// during a step: views carry its fields.

typedef struct cy_fixed {
    int exponent;    // the unit is 2^exponent
    int64_t block_k; // elements of k in one term of a product; see cy_matmul_spec
    // borrowed, device memory: size of the largest term so far, in units, as the bits of an fp32;
    // NULL where nobody asks for it
    _Atomic uint32_t *largest;
} cy_fixed;

// Makes a view of CY_FX64 a part of a sum.
static inline cy_view cy_fixed_view(const cy_fixed *fixed, cy_view view)
{
    view.exponent = fixed->exponent;
    view.block_k = fixed->block_k;
    view.largest = fixed->largest;
    return view;
}

// A new matrix of a sum from an arena; its content is undefined.
static inline cy_view cy_fixed_alloc(
    const cy_fixed *fixed, cy_arena *arena, int64_t rows, int64_t cols)
{
    return cy_fixed_view(fixed, cy_view_alloc(arena, CY_FX64, rows, cols));
}

#endif
