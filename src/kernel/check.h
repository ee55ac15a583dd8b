// kernel/check.h: what operators assert of their arguments. Included by kernel/*.c only.

#ifndef CY_KERNEL_CHECK_H
#define CY_KERNEL_CHECK_H

#include "device/queue.h"
#include "device/view.h"

static inline bool is_float(cy_view view)
{
    return cy_dtype_is_float(view.dtype) != 0;
}

// fp32 or fp64: statistics, accumulators outside strict mode.
static inline bool is_wide(cy_view view)
{
    return view.dtype == CY_F32 || view.dtype == CY_F64;
}

static inline bool is_accumulator(cy_view view)
{
    return is_wide(view) || view.dtype == CY_FX64;
}

static inline bool is_number(cy_view view)
{
    return is_float(view) || view.dtype == CY_FX64;
}

static inline bool has_shape(cy_view view, int64_t rows, int64_t cols)
{
    return view.data != NULL && view.rows == rows && view.cols == cols &&
        (view.stride >= cols || rows <= 1);
}

static inline bool same_shape(cy_view a, cy_view b)
{
    return has_shape(a, b.rows, b.cols);
}

static inline bool same_view(cy_view a, cy_view b)
{
    return a.data == b.data && a.dtype == b.dtype && (a.stride == b.stride || a.rows <= 1);
}

// Whether two matrices share an element. Ranges of columns of one wider matrix do not.
static inline bool overlap(cy_view a, cy_view b)
{
    if (cy_view_is_none(a) || cy_view_is_none(b)) return false;
    if (cy_view_count(a) == 0 || cy_view_count(b) == 0) return false;
    const uintptr_t a_first = (uintptr_t)a.data, b_first = (uintptr_t)b.data;
    const size_t a_size = cy_dtype_size(a.dtype), b_size = cy_dtype_size(b.dtype);
    const uintptr_t a_end = a_first + (size_t)((a.rows - 1) * a.stride + a.cols) * a_size;
    const uintptr_t b_end = b_first + (size_t)((b.rows - 1) * b.stride + b.cols) * b_size;
    if (a_end <= b_first || b_end <= a_first) return false;
    const size_t pitch = (size_t)a.stride * a_size;
    if (pitch != (size_t)b.stride * b_size || pitch == 0) return true;
    const size_t a_row = (size_t)a.cols * a_size, b_row = (size_t)b.cols * b_size;
    const size_t offset = b_first >= a_first ? (b_first - a_first) % pitch
                                             : (pitch - (a_first - b_first) % pitch) % pitch;
    return offset < a_row || offset + b_row > pitch;
}

// Pieces of measuring arenas have no addresses of their own, so a dry queue cannot tell.
static inline bool apart(const cy_queue *queue, cy_view a, cy_view b)
{
    return queue->dry || !overlap(a, b);
}

#endif
