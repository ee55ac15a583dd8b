// Computes with tensor shards: addresses, overlaps, and whether a set covers a tensor once.

#include "checkpoint/tensor_shard.h"

#include "base/memory.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>

// How many rectangles are searched for one that overlaps another, to name it in the failure.
#define RECTANGLES_TOLD 1024

const char *cy_tensor_kind_name(cy_tensor_kind kind)
{
    switch (kind) {
    case CY_TENSOR_WEIGHT:
        return "weight";
    case CY_TENSOR_ADAM_M:
        return "adam_m";
    case CY_TENSOR_ADAM_V:
        return "adam_v";
    case CY_TENSOR_OTHER:
        return "other";
    case CY_TENSOR_KINDS:
        break;
    }
    return "unknown";
}

cy_tensor_shard cy_tensor_shard_of_view(
    int tensor, cy_view view, int64_t row_first, int64_t col_first)
{
    return (cy_tensor_shard){
        .tensor = tensor,
        .rectangle = {row_first, view.rows, col_first, view.cols},
        .first = 0,
        .count = view.rows * view.cols,
        .data = view.data,
        .dtype = view.dtype,
        .stride = view.stride,
    };
}

cy_tensor_shard cy_tensor_shard_of_range(
    int tensor, cy_rectangle rectangle, int64_t first, int64_t count, void *data, cy_dtype dtype)
{
    CY_ASSERT(first >= 0 && count >= 0 && first + count <= rectangle.rows * rectangle.cols);
    return (cy_tensor_shard){
        .tensor = tensor,
        .rectangle = rectangle,
        .first = first,
        .count = count,
        .data = data,
        .dtype = dtype,
        .stride = rectangle.cols,
    };
}

void *cy_tensor_shard_at(const cy_tensor_shard *piece, int64_t index)
{
    const int64_t cols = piece->rectangle.cols;
    const int64_t row = index / cols - piece->first / cols;
    const int64_t col = index % cols - piece->first % cols;
    return (char *)piece->data + (row * piece->stride + col) * (int64_t)cy_dtype_size(piece->dtype);
}

bool cy_tensor_shard_dense(const cy_tensor_shard *piece)
{
    const int64_t cols = piece->rectangle.cols;
    if (piece->stride == cols || piece->count == 0) return true;
    return piece->first / cols == (piece->first + piece->count - 1) / cols;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

cy_status cy_tensor_shard_read(const char **bytes, char *buffer, cy_queue *queue,
    const cy_tensor_shard *piece, int64_t index, int64_t count)
{
    cy_queue host = {0};
    if (queue == NULL) queue = &host;
    const bool dense = cy_tensor_shard_dense(piece);
    if (dense && cy_queue_host_access(queue)) {
        *bytes = cy_tensor_shard_at(piece, index);
        return CY_OK;
    }
    const int64_t cols = piece->rectangle.cols;
    const size_t size = cy_dtype_size(piece->dtype);
    char *at = buffer;
    while (count > 0) {
        const int64_t to_row_end = cols - index % cols;
        const int64_t some = dense ? count : smaller(count, to_row_end);
        cy_queue_download(queue, at, cy_tensor_shard_at(piece, index), (size_t)some * size);
        at += (size_t)some * size;
        index += some;
        count -= some;
    }
    *bytes = buffer;
    return cy_queue_synchronize(queue);
}

// The global columns [*from, *to) of one global row that a shard holds.
static void row_span(const cy_tensor_shard *piece, int64_t row, int64_t *from, int64_t *to)
{
    const cy_rectangle *r = &piece->rectangle;
    const int64_t start = (row - r->row_first) * r->cols; // index of the row's first element
    *from = r->col_first + larger(piece->first - start, 0);
    *to = r->col_first + smaller(piece->first + piece->count - start, r->cols);
}

// The global rows [*from, *to) in which a shard holds elements.
static void rows_of(const cy_tensor_shard *piece, int64_t *from, int64_t *to)
{
    const cy_rectangle *r = &piece->rectangle;
    *from = r->row_first + piece->first / r->cols;
    *to = r->row_first + (piece->first + piece->count - 1) / r->cols + 1;
}

static int64_t index_of(const cy_tensor_shard *piece, int64_t row, int64_t col)
{
    const cy_rectangle *r = &piece->rectangle;
    return (row - r->row_first) * r->cols + (col - r->col_first);
}

static bool same_rectangle(const cy_rectangle *a, const cy_rectangle *b)
{
    return a->row_first == b->row_first && a->rows == b->rows && a->col_first == b->col_first &&
        a->cols == b->cols;
}

static bool same_columns(const cy_rectangle *a, const cy_rectangle *b)
{
    return a->col_first == b->col_first && a->cols == b->cols;
}

cy_status cy_tensor_shard_overlap(
    const cy_tensor_shard *a, const cy_tensor_shard *b, cy_shard_overlap_run run, void *context)
{
    if (a->count == 0 || b->count == 0) return CY_OK;
    int64_t row, row_end, b_row, b_end;
    rows_of(a, &row, &row_end);
    rows_of(b, &b_row, &b_end);
    row = larger(row, b_row);
    row_end = smaller(row_end, b_end);
    if (row >= row_end) return CY_OK;

    if (same_columns(&a->rectangle, &b->rectangle)) {
        // Both number the same elements in the same order, some rows apart: one run holds all that
        // they share.
        const int64_t shift = (b->rectangle.row_first - a->rectangle.row_first) * a->rectangle.cols;
        const int64_t from = larger(a->first, b->first + shift);
        const int64_t to = smaller(a->first + a->count, b->first + b->count + shift);
        return from < to ? run(context, from, from - shift, to - from) : CY_OK;
    }
    for (; row < row_end; row++) {
        int64_t from, to, b_from, b_to;
        row_span(a, row, &from, &to);
        row_span(b, row, &b_from, &b_to);
        from = larger(from, b_from);
        to = smaller(to, b_to);
        if (from >= to) continue;
        CY_TRY(run(context, index_of(a, row, from), index_of(b, row, from), to - from));
    }
    return CY_OK;
}

static int by_place(const void *left, const void *right)
{
    const cy_tensor_shard *a = left;
    const cy_tensor_shard *b = right;
    const int64_t keys[5][2] = {
        {a->rectangle.row_first, b->rectangle.row_first},
        {a->rectangle.col_first, b->rectangle.col_first},
        {a->rectangle.rows, b->rectangle.rows},
        {a->rectangle.cols, b->rectangle.cols},
        {a->first, b->first},
    };
    for (int i = 0; i < 5; i++) {
        if (keys[i][0] != keys[i][1]) return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

static bool rectangles_meet(const cy_rectangle *a, const cy_rectangle *b)
{
    return a->row_first < b->row_first + b->rows && b->row_first < a->row_first + a->rows &&
        a->col_first < b->col_first + b->cols && b->col_first < a->col_first + a->cols;
}

static bool rectangle_fits(const cy_rectangle *r, int64_t rows, int64_t cols)
{
    return r->row_first >= 0 && r->col_first >= 0 && r->rows > 0 && r->cols > 0 &&
        r->rows <= rows && r->cols <= cols && r->row_first <= rows - r->rows &&
        r->col_first <= cols - r->cols;
}

// Checks that the shards of one rectangle, [count] sorted by `first`, follow each other without
// gaps.
static cy_status check_ranges(const cy_tensor_shard *pieces, int64_t count, const char *name)
{
    const cy_rectangle *r = &pieces[0].rectangle;
    int64_t next = 0;
    for (int64_t i = 0; i <= count; i++) {
        const int64_t first = i < count ? pieces[i].first : r->rows * r->cols;
        if (first != next) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: elements %" PRId64 " to %" PRId64 " of rows %" PRId64 "+%" PRId64
                ", columns %" PRId64 "+%" PRId64 " are there %s",
                name, smaller(first, next), larger(first, next), r->row_first, r->rows,
                r->col_first, r->cols, first > next ? "not at all" : "twice");
        }
        if (i < count) next += pieces[i].count;
    }
    return CY_OK;
}

// The index after the last shard with the rectangle of shard `start`. Sorted shards of one
// rectangle are neighbours.
static int64_t rectangle_end(const cy_tensor_shard *pieces, int64_t count, int64_t start)
{
    int64_t end = start + 1;
    while (end < count && same_rectangle(&pieces[start].rectangle, &pieces[end].rectangle))
        end++;
    return end;
}

static cy_status check_each_rectangle(
    const cy_tensor_shard *pieces, int64_t count, const char *name)
{
    for (int64_t start = 0, end; start < count; start = end) {
        end = rectangle_end(pieces, count, start);
        CY_TRY(check_ranges(pieces + start, end - start, name));
    }
    return CY_OK;
}

typedef struct corner {
    int64_t row, col;
} corner;

static int by_row_and_col(const void *left, const void *right)
{
    const corner *a = left;
    const corner *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    return a->col < b->col ? -1 : a->col > b->col;
}

static corner *add_corners(corner *at, const cy_rectangle *r)
{
    *at++ = (corner){r->row_first, r->col_first};
    *at++ = (corner){r->row_first, r->col_first + r->cols};
    *at++ = (corner){r->row_first + r->rows, r->col_first};
    *at++ = (corner){r->row_first + r->rows, r->col_first + r->cols};
    return at;
}

// The first corner that occurs an odd number of times in the sorted list, or NULL.
static const corner *first_odd(const corner *corners, int64_t count)
{
    for (int64_t i = 0; i < count; i += 2) {
        if (i + 1 == count || by_row_and_col(&corners[i], &corners[i + 1]) != 0) return &corners[i];
    }
    return NULL;
}

// The first rectangle that overlaps an earlier one, among the first RECTANGLES_TOLD; or NULL.
static const cy_rectangle *first_twice(const cy_tensor_shard *pieces, int64_t count)
{
    int64_t seen = 0;
    for (int64_t i = 0; i < count && seen < RECTANGLES_TOLD; i = rectangle_end(pieces, count, i)) {
        const cy_rectangle *r = &pieces[i].rectangle;
        seen++;
        // Sorted by row, the search ends at the first that begins below this one.
        int64_t looked = seen;
        for (int64_t j = rectangle_end(pieces, count, i); j < count && looked < RECTANGLES_TOLD;
             j = rectangle_end(pieces, count, j)) {
            const cy_rectangle *other = &pieces[j].rectangle;
            if (other->row_first >= r->row_first + r->rows) break;
            if (rectangles_meet(r, other)) return other;
            looked++;
        }
    }
    return NULL;
}

// Fails with the reason why rectangles of `area` elements in all are no tiling.
static cy_status tell_of_tiling(const cy_tensor_shard *pieces, int64_t count, const char *name,
    const corner *odd, int64_t area, int64_t all)
{
    const cy_rectangle *r = first_twice(pieces, count);
    if (r != NULL) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: rows %" PRId64 "+%" PRId64 ", columns %" PRId64 "+%" PRId64 " are there twice",
            name, r->row_first, r->rows, r->col_first, r->cols);
    }
    if (area < all || odd == NULL) {
        return CY_FAIL(
            CY_ERR_CORRUPT, "%s: %" PRId64 " of %" PRId64 " elements are there", name, area, all);
    }
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s: the element of row %" PRId64 ", column %" PRId64 " is not there once", name, odd->row,
        odd->col);
}

// Checks that the rectangles are a tiling of the tensor. They are if they have as many elements as
// the tensor and each point occurs an even number of times among the corners of the rectangles and
// of the tensor. The corners decide for each element whether the number of rectangles that hold it
// is odd: if all points are even, each element is held by an odd number of rectangles, so by at
// least one, and by exactly one because the areas are equal. Otherwise an even number of rectangles
// holds the element at the first odd point. The work is that of sorting, wherever the rectangles
// lie.
static cy_status check_tiling(
    const cy_tensor_shard *pieces, int64_t count, const char *name, int64_t rows, int64_t cols)
{
    void *memory = NULL;
    int64_t area = 0;
    CY_TRY(cy_memory_alloc(&memory, (size_t)count + 1, 4 * sizeof(corner)));
    corner *corners = memory;
    corner *end = add_corners(corners, &(cy_rectangle){0, rows, 0, cols});
    for (int64_t i = 0; i < count; i = rectangle_end(pieces, count, i)) {
        const cy_rectangle *r = &pieces[i].rectangle;
        end = add_corners(end, r);
        if (area <= rows * cols) area += r->rows * r->cols; // beyond that the sum could overflow
    }
    qsort(corners, (size_t)(end - corners), sizeof(*corners), by_row_and_col);
    const corner *odd = first_odd(corners, end - corners);
    cy_status status = CY_OK;
    if (odd != NULL || area != rows * cols)
        status = tell_of_tiling(pieces, count, name, odd, area, rows * cols);
    cy_memory_free(memory);
    return status;
}

cy_status cy_tensor_shards_check_cover(
    cy_tensor_shard *pieces, int64_t count, const char *name, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < count; i++) {
        const cy_tensor_shard *piece = &pieces[i];
        const cy_rectangle *r = &piece->rectangle;
        if (!rectangle_fits(r, rows, cols)) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: rows %" PRId64 "+%" PRId64 ", columns %" PRId64 "+%" PRId64
                " do not lie in a tensor of %" PRId64 " x %" PRId64,
                name, r->row_first, r->rows, r->col_first, r->cols, rows, cols);
        }
        if (piece->first < 0 || piece->count <= 0 || piece->first > r->rows * r->cols ||
            piece->count > r->rows * r->cols - piece->first) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: elements %" PRId64 "+%" PRId64 " do not lie in a rectangle of %" PRId64
                " x %" PRId64,
                name, piece->first, piece->count, r->rows, r->cols);
        }
    }
    qsort(pieces, (size_t)count, sizeof(*pieces), by_place);
    CY_TRY(check_each_rectangle(pieces, count, name));
    return check_tiling(pieces, count, name, rows, cols);
}
